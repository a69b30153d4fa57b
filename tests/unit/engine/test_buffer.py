"""The claim buffer: attempts in flight never exceed the slots, and a few more claims wait in the buffer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from doorstep.clock import MILLISECOND
from doorstep.engine.buffer import ClaimBuffer
from doorstep.model.claim import Claim
from tests.support.builders import NOW, a_claim, new_id

ENDPOINT = new_id()


def claims(count: int) -> list[Claim]:
    return [a_claim(endpoint_id=ENDPOINT) for _ in range(count)]


def test_only_what_has_a_slot_is_started_and_in_the_order_it_was_taken() -> None:
    buffer, held = ClaimBuffer(), claims(5)
    buffer[ENDPOINT].slots = 3
    buffer.add(held)
    assert buffer.start() == held[:3]
    assert buffer.start() == []
    assert (buffer.busy, buffer.waiting, buffer[ENDPOINT].held) == (3, 2, 5)


def test_a_slot_that_becomes_free_is_given_to_the_next() -> None:
    buffer, held = ClaimBuffer(), claims(2)
    buffer[ENDPOINT].slots = 1
    buffer.add(held)
    buffer.start()
    buffer.finished(ENDPOINT, 1, NOW)
    assert buffer.start() == [held[1]]


def test_a_claim_whose_try_did_not_begin_should_release_so_often_in_a_row_and_no_more() -> None:
    buffer, (claim, other) = ClaimBuffer(), [a_claim(endpoint_id=ENDPOINT, delivery_id=new_id()) for _ in range(2)]
    for _ in range(3):
        assert [buffer.should_release(claim, started=False) for _ in range(6)] == [True] * 5 + [False]
    assert buffer.should_release(claim, started=False)
    assert not buffer.should_release(claim, started=True)
    assert all(buffer.should_release(claim, started=False) for _ in range(5))
    assert buffer.should_release(other, started=False)


def test_a_claim_that_comes_without_a_quota_gets_one_slot_of_its_own() -> None:
    buffer, held = ClaimBuffer(), claims(3)
    buffer.add(held)
    assert buffer.start() == held[:1]


def test_claims_made_for_free_slots_give_no_slots_to_claims_that_already_wait() -> None:
    buffer = ClaimBuffer()
    buffer[ENDPOINT].slots = 2
    buffer.add(claims(10))
    assert len(buffer.start()) == 2
    buffer.admit(claims(1))
    assert len(buffer.start()) == 1
    assert (buffer[ENDPOINT].slots, buffer.waiting) == (3, 8)


def test_a_cancelled_claim_frees_its_slot_and_is_no_sign_of_speed() -> None:
    buffer = ClaimBuffer()
    buffer.add(claims(1))
    buffer.start()
    buffer.cancel(claims(1)[0])
    assert (buffer.busy, buffer[ENDPOINT].busy) == (0, 0)
    assert buffer[ENDPOINT].ahead(NOW + 100 * MILLISECOND) == 0


def test_as_much_is_held_ahead_as_was_finished_in_the_last_tenth_of_a_second() -> None:
    buffer = ClaimBuffer()
    buffer[ENDPOINT].slots = 50
    buffer.add(claims(50))
    buffer.start()
    buffer.finished(ENDPOINT, 1, NOW)
    buffer.finished(ENDPOINT, 29, NOW + 50 * MILLISECOND)
    assert buffer[ENDPOINT].ahead(NOW + 100 * MILLISECOND) == 30


def test_an_endpoint_that_has_gone_quiet_is_given_nothing_ahead() -> None:
    buffer = ClaimBuffer()
    buffer[ENDPOINT].slots = 50
    buffer.add(claims(50))
    buffer.start()
    buffer.finished(ENDPOINT, 30, NOW)
    assert buffer[ENDPOINT].ahead(NOW + 200 * MILLISECOND) == 0


def test_it_is_hungry_when_half_of_what_is_wanted_is_gone() -> None:
    buffer = ClaimBuffer()
    holding = buffer[ENDPOINT]
    holding.slots, holding.target = 4, 4
    buffer.add(claims(4))
    buffer.start()
    buffer.finished(ENDPOINT, 1, NOW)
    assert not holding.low
    buffer.finished(ENDPOINT, 1, NOW)
    assert holding.low


def test_what_has_not_been_started_can_be_given_up_for_one_endpoint_or_for_all() -> None:
    buffer, ours, theirs = ClaimBuffer(), claims(3), [a_claim()]
    buffer.add([*ours, *theirs])
    buffer.start()
    buffer.add([theirs[0]._replace(token=2)])
    assert buffer.take_waiting(ENDPOINT) == ours[1:]
    assert buffer.take_waiting() == [theirs[0]._replace(token=2)]
    assert (buffer.waiting, buffer.busy) == (0, 2)


def test_endpoints_of_which_nothing_is_held_are_forgotten_and_busy_ones_are_not() -> None:
    buffer = ClaimBuffer()
    buffer.add([*claims(1), a_claim()])
    buffer.start()
    buffer.finished(ENDPOINT, 1, NOW)
    buffer.forget_idle(NOW + 200 * MILLISECOND)
    assert ENDPOINT not in buffer._endpoints
    assert len(buffer._endpoints) == 1


moves = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 5)),
        st.tuples(st.just("slots"), st.integers(0, 5)),
        st.tuples(st.just("start"), st.just(0)),
        st.tuples(st.just("finish"), st.integers(1, 5)),
        st.tuples(st.just("cancel"), st.just(1)),
        st.tuples(st.just("release"), st.just(0)),
        st.tuples(st.just("forget"), st.just(0)),
    ),
    max_size=60,
)


@given(moves)
def test_no_slot_leaks_and_no_claim_is_lost_whatever_is_done(plan: list[tuple[str, int]]) -> None:
    buffer = ClaimBuffer()
    waiting = busy = 0
    for step, (move, count) in enumerate(plan):
        now = NOW + step * 30 * MILLISECOND
        if move == "add":
            buffer.add(claims(count))
            waiting += count
        elif move == "slots":
            buffer[ENDPOINT].slots = buffer.busy_of(ENDPOINT) + count
        elif move == "start":
            started = len(buffer.start())
            waiting, busy = waiting - started, busy + started
        elif move == "finish" and busy >= count:
            buffer.finished(ENDPOINT, count, now)
            busy -= count
        elif move == "cancel" and busy:
            buffer.cancel(claims(1)[0])
            busy -= 1
        elif move == "release":
            assert len(buffer.take_waiting()) == waiting
            waiting = 0
        elif move == "forget":
            buffer.forget_idle(now)
        assert (buffer.busy, buffer.busy_of(ENDPOINT), buffer.waiting) == (busy, busy, waiting)
