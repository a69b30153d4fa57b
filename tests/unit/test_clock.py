"""The clock follows a store's time, but times in a history never go backwards."""

from __future__ import annotations

from doorstep.clock import SECOND, AnchoredClock


def test_a_clock_set_back_a_little_stands_still_and_never_hands_out_an_earlier_instant() -> None:
    clock = AnchoredClock()
    before = clock.now()
    clock.follow(before - SECOND // 2)
    assert clock.now() >= before
    assert clock.now() - before < SECOND // 4


def test_a_clock_set_back_a_lot_steps_at_once() -> None:
    clock = AnchoredClock()
    before = clock.now()
    assert clock.follow(before - 60 * SECOND) <= -59 * SECOND
    assert clock.now() < before - 59 * SECOND


def test_a_clock_that_stood_still_goes_on_when_it_is_set_forward() -> None:
    clock = AnchoredClock()
    before = clock.now()
    clock.follow(before - SECOND // 2)
    clock.follow(before + SECOND)
    assert clock.now() >= before + SECOND
