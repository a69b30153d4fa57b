"""Proof that the checker can fail: each rule gets evidence that violates it and evidence that does not."""

from __future__ import annotations

from collections.abc import Callable

from tests.faults.harness import checker
from tests.faults.harness.checker import RULES, Rule, check
from tests.faults.harness.evidence import (
    SET_BACK,
    Arrival,
    Evidence,
    Fault,
    FinalState,
    Ledger,
    Sent,
    StoredAttempt,
    StoredDelivery,
    StoredEvent,
    StoredMove,
)
from tests.support.matrix import each_case

_SECOND = 1_000_000


def innocent() -> Evidence:
    """One event that failed once and was delivered on the second attempt."""
    return Evidence(
        ledger=Ledger(sent={"d1": Sent("d1", "plain", "key")}, acknowledged={"d1": {"e1"}}),
        arrivals=[Arrival(1.0, "ok", "e1", "d1", 500, 1), Arrival(2.0, "ok", "e1", "d1", 200, 1)],
        state=FinalState(
            events=[StoredEvent("e1", "plain", "delivered", "d1")],
            deliveries=[StoredDelivery(7, "e1", "ok", "delivered", 2, 1, 3)],
            attempts=[
                StoredAttempt(7, 1, 0, "SERVICE_UNAVAILABLE", 0, 1_000, _SECOND),
                StoredAttempt(7, 2, 0, None, _SECOND, _SECOND + 1_000, None),
            ],
            moves=[
                StoredMove(7, 1, 0, "pending", "in_progress"),
                StoredMove(7, 2, 1_000, "in_progress", "pending"),
                StoredMove(7, 3, _SECOND, "pending", "in_progress"),
                StoredMove(7, 4, _SECOND, "in_progress", "delivered"),
            ],
        ),
        faults=[],
        lease_seconds=2.0,
        in_flight_max=10,
    )


def forget_the_event(evidence: Evidence) -> None:
    evidence.state.events.clear()
    evidence.state.deliveries.clear()


def store_other_bytes(evidence: Evidence) -> None:
    evidence.state.events[0] = evidence.state.events[0]._replace(digest="d2")


def receive_what_nobody_sent(evidence: Evidence) -> None:
    evidence.arrivals.append(Arrival(3.0, "ok", "e9", "d9", 200, 1))


def receive_under_another_id(evidence: Evidence) -> None:
    evidence.arrivals[1] = evidence.arrivals[1]._replace(event_id="e9")


def acknowledge_twice_under_one_key(evidence: Evidence) -> None:
    evidence.ledger.acknowledged["d1"].add("e2")


def store_twice(evidence: Evidence) -> None:
    evidence.state.events.append(StoredEvent("e2", "plain", "delivered", "d1"))


def deliver_to_two(evidence: Evidence) -> None:
    evidence.state.deliveries.append(StoredDelivery(8, "e1", "slow", "dead", 0, 0, 3))


def leave_one_waiting(evidence: Evidence) -> None:
    evidence.state.deliveries[0] = evidence.state.deliveries[0]._replace(state="in_progress")


def receive_nothing(evidence: Evidence) -> None:
    evidence.arrivals.clear()


def give_up_on_the_willing(evidence: Evidence) -> None:
    evidence.state.deliveries[0] = evidence.state.deliveries[0]._replace(state="dead")


def ask_unlogged(evidence: Evidence) -> None:
    evidence.arrivals.insert(0, Arrival(0.5, "ok", "e1", "d1", 500, 1))


def misstate_the_event(evidence: Evidence) -> None:
    evidence.state.events[0] = evidence.state.events[0]._replace(status="queued")


def try_too_often(evidence: Evidence) -> None:
    evidence.state.deliveries[0] = evidence.state.deliveries[0]._replace(attempt=5)


def settle_one_attempt_twice(evidence: Evidence) -> None:
    evidence.state.attempts.append(evidence.state.attempts[0])


def take_a_lease_early(evidence: Evidence) -> None:
    evidence.state.attempts[0] = evidence.state.attempts[0]._replace(code="WORKER_LOST", next_retry_at=1_000)


def retry_early(evidence: Evidence) -> None:
    evidence.state.attempts[0] = evidence.state.attempts[0]._replace(next_retry_at=2 * _SECOND)


def skip_a_line_of_history(evidence: Evidence) -> None:
    del evidence.state.moves[1]


def leave_a_final_state(evidence: Evidence) -> None:
    evidence.state.moves += [
        StoredMove(7, 5, 2 * _SECOND, "delivered", "pending"),
        StoredMove(7, 6, 2 * _SECOND, "pending", "delivered"),
    ]


def overtake(evidence: Evidence) -> None:
    """Add a later event with the same ordering key that was attempted after the first failure of the earlier one."""
    evidence.state.deliveries[0] = evidence.state.deliveries[0]._replace(ordering_key="a")
    evidence.state.deliveries.append(StoredDelivery(8, "e2", "ok", "delivered", 1, 0, 3, "a"))
    evidence.state.moves.append(StoredMove(8, 1, 2_000, "pending", "in_progress"))


def deliver_twice_without_a_fault(evidence: Evidence) -> None:
    evidence.arrivals.append(Arrival(3.0, "ok", "e1", "d1", 200, 1))


def refuse_a_valid_event(evidence: Evidence) -> None:
    evidence.ledger.refused = 1


CRIMES: list[tuple[Rule, Callable[[Evidence], None]]] = [
    (checker.no_acknowledged_event_is_lost, forget_the_event),
    (checker.no_valid_event_is_refused, refuse_a_valid_event),
    (checker.stored_bytes_are_the_bytes_sent, store_other_bytes),
    (checker.nothing_is_received_that_was_not_sent, receive_what_nobody_sent),
    (checker.one_identity_for_all_attempts, receive_under_another_id),
    (checker.one_event_for_one_send, acknowledge_twice_under_one_key),
    (checker.one_event_for_one_send, store_twice),
    (checker.one_delivery_for_each_receiver, deliver_to_two),
    (checker.every_delivery_ends, leave_one_waiting),
    (checker.delivered_means_that_the_receiver_said_so, receive_nothing),
    (checker.what_a_receiver_would_take_does_not_die, give_up_on_the_willing),
    (checker.every_request_has_an_attempt_row, ask_unlogged),
    (checker.event_status_follows_its_deliveries, misstate_the_event),
    (checker.attempts_never_exceed_the_policy, try_too_often),
    (checker.each_attempt_counts_once, settle_one_attempt_twice),
    (checker.no_lease_is_taken_before_it_ends, take_a_lease_early),
    (checker.no_retry_is_early, retry_early),
    (checker.history_is_a_chain_of_allowed_moves, skip_a_line_of_history),
    (checker.each_is_tried_after_those_before_it_have_ended, overtake),
    (checker.final_states_change_only_by_an_operator, leave_a_final_state),
    (checker.duplicates_are_bounded_by_the_faults, deliver_twice_without_a_fault),
]


def test_innocent_evidence_breaks_no_rule() -> None:
    assert check(innocent()).violations == []


@each_case(("rule", "crime"), CRIMES, ids=[crime.__name__ for _, crime in CRIMES])
def test_each_rule_is_broken_by_the_crime_it_is_about(rule: Rule, crime: Callable[[Evidence], None]) -> None:
    evidence = innocent()
    crime(evidence)
    assert list(rule(evidence))


def test_every_rule_has_a_crime_that_breaks_it() -> None:
    assert {rule for rule, _ in CRIMES} == set(RULES)


def test_a_duplicate_is_allowed_when_a_fault_explains_it() -> None:
    evidence = innocent()
    deliver_twice_without_a_fault(evidence)
    evidence.faults.append(Fault(2.5, "kill serve"))
    assert not list(checker.duplicates_are_bounded_by_the_faults(evidence))
    assert check(evidence).duplicates == 1


def test_a_retry_may_start_before_its_time_only_if_the_clock_was_set_back_during_its_wait() -> None:
    evidence = innocent()
    evidence.state.attempts[0] = evidence.state.attempts[0]._replace(next_retry_at=60 * _SECOND)
    evidence.faults.append(Fault(0.5, SET_BACK))
    assert list(checker.no_retry_is_early(evidence)), "the clock went on between the two attempts"
    evidence.state.attempts[1] = evidence.state.attempts[1]._replace(started_at=-3_600 * _SECOND)
    assert not list(checker.no_retry_is_early(evidence))
    evidence.faults.clear()
    assert list(checker.no_retry_is_early(evidence))
