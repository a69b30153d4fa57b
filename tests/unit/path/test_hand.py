"""What a worker holds: never more under way than places, and a little more in hand than it can try."""

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


def test_only_what_has_a_place_is_dealt_and_in_the_order_it_was_taken() -> None:
    hand, held = ClaimBuffer(), claims(5)
    hand[ENDPOINT].places = 3
    hand.take(held)
    assert hand.deal() == held[:3]
    assert hand.deal() == []
    assert (hand.busy, hand.waiting, hand[ENDPOINT].held) == (3, 2, 5)


def test_a_place_that_becomes_free_is_given_to_the_next() -> None:
    hand, held = ClaimBuffer(), claims(2)
    hand[ENDPOINT].places = 1
    hand.take(held)
    hand.deal()
    hand.finished(ENDPOINT, 1, NOW)
    assert hand.deal() == [held[1]]


def test_a_claim_whose_try_did_not_begin_may_go_back_so_often_in_a_row_and_no_more() -> None:
    hand, (claim, other) = ClaimBuffer(), [a_claim(endpoint_id=ENDPOINT, delivery_id=new_id()) for _ in range(2)]
    for _ in range(3):
        assert [hand.may_go_back(claim, begun=False) for _ in range(6)] == [True] * 5 + [False]
    assert hand.may_go_back(claim, begun=False)
    assert not hand.may_go_back(claim, begun=True)
    assert all(hand.may_go_back(claim, begun=False) for _ in range(5))
    assert hand.may_go_back(other, begun=False)


def test_a_claim_that_comes_without_a_quota_gets_one_place_of_its_own() -> None:
    hand, held = ClaimBuffer(), claims(3)
    hand.take(held)
    assert hand.deal() == held[:1]


def test_a_claim_that_is_put_down_frees_its_place_and_is_no_sign_of_speed() -> None:
    hand = ClaimBuffer()
    hand.take(claims(1))
    hand.deal()
    hand.put_down(ENDPOINT)
    assert (hand.busy, hand[ENDPOINT].busy) == (0, 0)
    assert hand[ENDPOINT].ahead(NOW + 100 * MILLISECOND) == 0


def test_as_much_is_held_ahead_as_was_finished_in_the_last_tenth_of_a_second() -> None:
    hand = ClaimBuffer()
    hand[ENDPOINT].places = 50
    hand.take(claims(50))
    hand.deal()
    hand.finished(ENDPOINT, 1, NOW)
    hand.finished(ENDPOINT, 29, NOW + 50 * MILLISECOND)
    assert hand[ENDPOINT].ahead(NOW + 100 * MILLISECOND) == 30


def test_an_endpoint_that_has_gone_quiet_is_given_nothing_ahead() -> None:
    hand = ClaimBuffer()
    hand[ENDPOINT].places = 50
    hand.take(claims(50))
    hand.deal()
    hand.finished(ENDPOINT, 30, NOW)
    assert hand[ENDPOINT].ahead(NOW + 200 * MILLISECOND) == 0


def test_it_is_hungry_when_half_of_what_is_wanted_is_gone() -> None:
    hand = ClaimBuffer()
    holding = hand[ENDPOINT]
    holding.places, holding.target = 4, 4
    hand.take(claims(4))
    hand.deal()
    hand.finished(ENDPOINT, 1, NOW)
    assert not holding.hungry
    hand.finished(ENDPOINT, 1, NOW)
    assert holding.hungry


def test_what_has_not_been_started_can_be_given_up_for_one_endpoint_or_for_all() -> None:
    hand, ours, theirs = ClaimBuffer(), claims(3), [a_claim()]
    hand.take([*ours, *theirs])
    hand.deal()
    hand.take([theirs[0]._replace(token=2)])
    assert hand.give_up_waiting(ENDPOINT) == ours[1:]
    assert hand.give_up_waiting() == [theirs[0]._replace(token=2)]
    assert (hand.waiting, hand.busy) == (0, 2)


def test_endpoints_of_which_nothing_is_held_are_forgotten_and_busy_ones_are_not() -> None:
    hand = ClaimBuffer()
    hand.take([*claims(1), a_claim()])
    hand.deal()
    hand.finished(ENDPOINT, 1, NOW)
    hand.forget_idle(NOW + 200 * MILLISECOND)
    assert ENDPOINT not in hand._holdings
    assert len(hand._holdings) == 1


moves = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.integers(1, 5)),
        st.tuples(st.just("places"), st.integers(0, 5)),
        st.tuples(st.just("deal"), st.just(0)),
        st.tuples(st.just("finish"), st.integers(1, 5)),
        st.tuples(st.just("put down"), st.just(1)),
        st.tuples(st.just("give up"), st.just(0)),
        st.tuples(st.just("forget"), st.just(0)),
    ),
    max_size=60,
)


@given(moves)
def test_no_place_leaks_and_no_claim_is_lost_whatever_is_done(plan: list[tuple[str, int]]) -> None:
    hand = ClaimBuffer()
    waiting = busy = 0
    for step, (move, count) in enumerate(plan):
        now = NOW + step * 30 * MILLISECOND
        if move == "take":
            hand.take(claims(count))
            waiting += count
        elif move == "places":
            hand[ENDPOINT].places = hand.busy_of(ENDPOINT) + count
        elif move == "deal":
            dealt = len(hand.deal())
            waiting, busy = waiting - dealt, busy + dealt
        elif move == "finish" and busy >= count:
            hand.finished(ENDPOINT, count, now)
            busy -= count
        elif move == "put down" and busy:
            hand.put_down(ENDPOINT)
            busy -= 1
        elif move == "give up":
            assert len(hand.give_up_waiting()) == waiting
            waiting = 0
        elif move == "forget":
            hand.forget_idle(now)
        assert (hand.busy, hand.busy_of(ENDPOINT), hand.waiting) == (busy, busy, waiting)
