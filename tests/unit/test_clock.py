"""The clock follows the machine's or a store's time, and small corrections never let a history go backwards."""

from __future__ import annotations

import pytest

from doorstep.clock import SECOND, AnchoredClock, Instant


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


class SetClock(AnchoredClock):
    """A clock whose readings a test sets."""

    def __init__(self) -> None:
        self.wall: Instant = 1_000_000 * SECOND
        self.elapsed: Instant = 50 * SECOND
        super().__init__()

    def _wall(self) -> Instant:  # type: ignore[override]
        return self.wall

    def _elapsed(self) -> Instant:  # type: ignore[override]
        return self.elapsed


@pytest.mark.parametrize("jump", [600 * SECOND, -600 * SECOND, SECOND, -SECOND])
def test_the_next_reading_follows_a_wall_clock_that_was_set_and_the_jump_is_counted(jump: Instant) -> None:
    clock = SetClock()
    ever = AnchoredClock.jumps_ever
    clock.wall += jump
    assert clock.now() == clock.wall
    assert (clock.jumps, AnchoredClock.jumps_ever) == (1, ever + 1)
    clock.wall += SECOND
    clock.elapsed += SECOND
    assert clock.now() == clock.wall
    assert clock.jumps == 1


def test_a_correction_of_less_than_a_second_moves_no_instant_backwards() -> None:
    clock = SetClock()
    before = clock.now()
    clock.wall -= SECOND - 1
    assert clock.now() == before
    assert clock.jumps == 0


def test_a_clock_that_follows_a_shared_store_ignores_the_wall_clock_of_this_machine() -> None:
    clock = SetClock()
    clock.follow(7 * SECOND)
    clock.wall += 600 * SECOND
    clock.elapsed += SECOND
    assert clock.now() == 8 * SECOND


def test_a_process_that_is_frozen_between_the_two_readings_sees_no_jump() -> None:
    clock = SetClock()
    readings = iter([clock.elapsed, clock.elapsed + 60 * SECOND])
    clock.wall += 60 * SECOND
    clock._elapsed = lambda: next(readings)  # type: ignore[method-assign]
    clock.now()
    assert clock.jumps == 0
