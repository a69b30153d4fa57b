"""The checker: a pure function from evidence to a verdict. Each rule is a promise, with a list of violations."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from doorstep.model.delivery import TRANSITIONS
from tests.faults.harness.evidence import (
    BROUGHT_FORWARD,
    ROUTES,
    SET_BACK,
    WILLING,
    Evidence,
    StoredAttempt,
    StoredDelivery,
    StoredMove,
)

ENDED = frozenset({"delivered", "dead", "resolved", "cancelled", "archived"})
_SECOND = 1_000_000
_CLOCK_SLACK = _SECOND // 20
"""Processes that share an embedded store read the machine's clock at different moments of their start."""
_REACHED_WITHIN = 3 * _SECOND
"""The longest time that a busy machine is expected to take between reading the clock and writing to the store."""


class Violation(NamedTuple):
    rule: str
    subject: str


@dataclass
class Verdict:
    acknowledged: int
    lost: int
    delivered: int
    dead: int
    arrivals: int
    duplicates: int
    late: int
    faults: int
    kills: int
    unknown: int
    violations: list[Violation]

    def __str__(self) -> str:
        counts = (
            f"acknowledged {self.acknowledged}, lost {self.lost}, duplicates {self.duplicates}, "
            f"late settles {self.late}, kills {self.kills} (deliveries: {self.delivered} delivered, {self.dead} dead; "
            f"requests received {self.arrivals}, answers unknown {self.unknown})"
        )
        return "\n".join([counts, *(f"  {rule}: {subject}" for rule, subject in self.violations[:20])])


def check(evidence: Evidence) -> Verdict:
    """Check the evidence against every promise."""
    violations = [Violation(_words(rule), subject) for rule in RULES for subject in rule(evidence)]
    states = Counter(delivery.state for delivery in evidence.state.deliveries)
    return Verdict(
        acknowledged=len(evidence.ledger.acknowledged),
        lost=len(lost(evidence)),
        delivered=states["delivered"],
        dead=states["dead"],
        arrivals=len(evidence.arrivals),
        duplicates=duplicates(evidence),
        late=sum(1 for attempt in evidence.state.attempts if attempt.late),
        faults=len(evidence.faults),
        kills=sum(1 for fault in evidence.faults if fault.name.startswith("kill")),
        unknown=evidence.ledger.unknown,
        violations=violations,
    )


# -- nothing is lost, nothing is invented --------------------------------------------------------------------------


def lost(evidence: Evidence) -> set[str]:
    """The digests of acknowledged events without an ended delivery (delivered or dead) for each receiver."""
    ended: dict[str, set[str]] = defaultdict(set)
    for delivery in evidence.state.deliveries:
        if delivery.state in ENDED:
            ended[delivery.event_id].add(delivery.receiver)
    return {
        digest
        for digest, event_ids in evidence.ledger.acknowledged.items()
        for event_id in event_ids
        if not ROUTES[evidence.ledger.sent[digest].event_type] <= ended[event_id]
    }


def no_acknowledged_event_is_lost(evidence: Evidence) -> Iterator[str]:
    yield from (f"event with digest {digest}" for digest in sorted(lost(evidence)))


def no_valid_event_is_refused(evidence: Evidence) -> Iterator[str]:
    """The ledger sends only valid events, so apart from success, it may only be asked to try again later."""
    if evidence.ledger.refused:
        yield f"{evidence.ledger.refused} requests were refused for good"


def stored_bytes_are_the_bytes_sent(evidence: Evidence) -> Iterator[str]:
    stored = {event.event_id: event for event in evidence.state.events}
    for digest, event_ids in evidence.ledger.acknowledged.items():
        for event_id in event_ids & stored.keys():
            if stored[event_id].digest != digest:
                yield f"event {event_id} was stored with other bytes than were acknowledged"
    for event in evidence.state.events:
        if event.digest not in evidence.ledger.sent:
            yield f"event {event.event_id} was never sent"


def nothing_is_received_that_was_not_sent(evidence: Evidence) -> Iterator[str]:
    for arrival in evidence.arrivals:
        sent = evidence.ledger.sent.get(arrival.digest)
        if sent is None:
            yield f"{arrival.receiver} received bytes that nobody sent, as {arrival.event_id}"
        elif arrival.receiver not in ROUTES[sent.event_type]:
            yield f"{arrival.receiver} received {arrival.event_id}, which is not addressed to it"


def one_identity_for_all_attempts(evidence: Evidence) -> Iterator[str]:
    stored = {event.event_id: event.digest for event in evidence.state.events}
    for arrival in evidence.arrivals:
        if stored.get(arrival.event_id) != arrival.digest:
            yield f"{arrival.receiver} received {arrival.event_id} with bytes that are not that event's"


def one_event_for_one_send(evidence: Evidence) -> Iterator[str]:
    """Only events with an idempotency key are sent again, so every digest belongs to at most one event."""
    for digest, event_ids in evidence.ledger.acknowledged.items():
        if len(event_ids) > 1:
            yield f"digest {digest} was acknowledged as {sorted(event_ids)}"
    for digest, count in Counter(event.digest for event in evidence.state.events).items():
        if count > 1:
            yield f"digest {digest} is stored {count} times"


def one_delivery_for_each_receiver(evidence: Evidence) -> Iterator[str]:
    found: dict[str, list[str]] = defaultdict(list)
    for delivery in evidence.state.deliveries:
        found[delivery.event_id].append(delivery.receiver)
    for event in evidence.state.events:
        if sorted(found[event.event_id]) != sorted(ROUTES.get(event.event_type, ())):
            yield f"event {event.event_id} ({event.event_type}) has deliveries for {sorted(found[event.event_id])}"


# -- states are true -----------------------------------------------------------------------------------------------


def every_delivery_ends(evidence: Evidence) -> Iterator[str]:
    for delivery in evidence.state.deliveries:
        if delivery.state not in ENDED:
            yield f"delivery {delivery.row} is still {delivery.state}"


def delivered_means_that_the_receiver_said_so(evidence: Evidence) -> Iterator[str]:
    thanked = {(a.event_id, a.receiver) for a in evidence.arrivals if a.answer is not None and 200 <= a.answer < 300}
    for delivery in evidence.state.deliveries:
        if delivery.state == "delivered" and (delivery.event_id, delivery.receiver) not in thanked:
            yield f"delivery {delivery.row} to {delivery.receiver} is delivered, but was never received"


def what_a_receiver_would_take_does_not_die(evidence: Evidence) -> Iterator[str]:
    """The policies of willing receivers have spare retries, so faults alone must not use them all up."""
    for delivery in evidence.state.deliveries:
        if delivery.receiver in WILLING and delivery.state == "dead":
            yield f"delivery {delivery.row} to {delivery.receiver} died after {delivery.attempt} attempts"


def every_request_has_an_attempt_row(evidence: Evidence) -> Iterator[str]:
    received = Counter((arrival.event_id, arrival.receiver) for arrival in evidence.arrivals)
    rows = Counter(attempt.row for attempt in evidence.state.attempts)
    for delivery in evidence.state.deliveries:
        seen = received[delivery.event_id, delivery.receiver]
        if seen > rows[delivery.row]:
            yield f"delivery {delivery.row} to {delivery.receiver}: {seen} requests, {rows[delivery.row]} attempt rows"


def event_status_follows_its_deliveries(evidence: Evidence) -> Iterator[str]:
    states: dict[str, set[str]] = defaultdict(set)
    for delivery in evidence.state.deliveries:
        states[delivery.event_id].add(delivery.state)
    for event in evidence.state.events:
        expected = "failed" if "dead" in states[event.event_id] else "delivered"
        if states[event.event_id] <= {"delivered", "dead"} and event.status != expected:
            yield f"event {event.event_id} is {event.status}, its deliveries are {sorted(states[event.event_id])}"


# -- attempts, leases, history -------------------------------------------------------------------------------------


def attempts_never_exceed_the_policy(evidence: Evidence) -> Iterator[str]:
    for delivery in evidence.state.deliveries:
        if delivery.attempt > delivery.retries_max + 1 or delivery.retry_attempts > delivery.retries_max:
            yield f"delivery {delivery.row}: {delivery.attempt} attempts, policy allows {delivery.retries_max + 1}"


def each_attempt_counts_once(evidence: Evidence) -> Iterator[str]:
    """Only the newest claim settles, so the attempts that count are numbered 1, 2, 3 … without gaps or repetitions."""
    counted: dict[int, list[int]] = defaultdict(list)
    for attempt in evidence.state.attempts:
        if not attempt.late:
            counted[attempt.row].append(attempt.number)
    for delivery in evidence.state.deliveries:
        numbers = sorted(counted[delivery.row])
        if delivery.state in ENDED and numbers != list(range(1, delivery.attempt + 1)):
            yield f"delivery {delivery.row} after {delivery.attempt} attempts has counted rows {numbers}"


def no_lease_is_taken_before_it_ends(evidence: Evidence) -> Iterator[str]:
    shortest = round(evidence.lease_seconds * _SECOND) - _CLOCK_SLACK
    for attempt in evidence.state.attempts:
        if attempt.code == "WORKER_LOST" and not attempt.late and attempt.finished_at - attempt.started_at < shortest:
            yield f"attempt {attempt.number} of delivery {attempt.row} lost its lease after {_lasted(attempt):.2f} s"


def no_retry_is_early(evidence: Evidence) -> Iterator[str]:
    """A wait during which the clock was set back begins again, so its times cannot be compared. A wait that began at
    that moment may be taken for one of these, and then be shorter by the time that the store took to be reached."""
    set_back = any(fault.name == SET_BACK for fault in evidence.faults)
    slack = _REACHED_WITHIN if set_back else _CLOCK_SLACK
    may_be = {delivery.row for delivery in evidence.state.deliveries if delivery.receiver in BROUGHT_FORWARD}
    by_row: dict[int, dict[int, StoredAttempt]] = defaultdict(dict)
    for attempt in evidence.state.attempts:
        if not attempt.late and attempt.row not in may_be:
            by_row[attempt.row][attempt.number] = attempt
    for row, attempts in by_row.items():
        for number, attempt in attempts.items():
            before = attempts.get(number - 1)
            if before and set_back and attempt.started_at < before.finished_at:
                continue
            if before and before.next_retry_at and attempt.started_at < before.next_retry_at - slack:
                yield f"attempt {number} of delivery {row} started before its time"


def history_is_a_chain_of_allowed_moves(evidence: Evidence) -> Iterator[str]:
    for delivery, moves in _histories(evidence):
        state = "pending"
        for number, move in enumerate(moves, start=1):
            if move.move != number or move.old_state != state or (move.old_state, move.new_state) not in TRANSITIONS:
                yield f"delivery {delivery.row}: move {move.move} from {move.old_state} to {move.new_state} after {state}"
            state = move.new_state
        if state != delivery.state:
            yield f"delivery {delivery.row} is {delivery.state}, its history ends {state}"


def final_states_change_only_by_an_operator(evidence: Evidence) -> Iterator[str]:
    reopened = [delivery.row for delivery, moves in _histories(evidence) if any(m.old_state in ENDED for m in moves)]
    if len(reopened) > evidence.state.operator_acts:
        yield f"deliveries {reopened[:10]} left a final state; acts audited: {evidence.state.operator_acts}"


def each_is_tried_after_those_before_it_have_ended(evidence: Evidence) -> Iterator[str]:
    """Check the order of acceptance for each receiver and ordering key."""
    ended: dict[tuple[str, str], tuple[int, StoredDelivery]] = {}
    for delivery, moves in _histories(evidence):
        if delivery.ordering_key is None or not moves:
            continue
        line = (delivery.receiver, delivery.ordering_key)
        at, before = ended.get(line, (0, delivery))
        if moves[0].at < at - _CLOCK_SLACK:
            yield f"delivery {delivery.row} was tried {(at - moves[0].at) / _SECOND:.3f} s before {before.row} had ended"
        ended[line] = (moves[-1].at, delivery)


# -- duplicates ----------------------------------------------------------------------------------------------------


def duplicates(evidence: Evidence) -> int:
    """Count the requests that arrived after the receiver had already accepted the same delivery."""
    thanked: set[tuple[str, str]] = set()
    count = 0
    for arrival in evidence.arrivals:
        name = (arrival.event_id, arrival.receiver)
        count += name in thanked
        if arrival.answer is not None and 200 <= arrival.answer < 300:
            thanked.add(name)
    return count


def duplicates_are_bounded_by_the_faults(evidence: Evidence) -> Iterator[str]:
    """A receiver may have processed a request that timed out, so each timeout may also cost one duplicate."""
    timeouts = sum(1 for attempt in evidence.state.attempts if attempt.code == "TIMEOUT")
    bound = len(evidence.faults) * evidence.in_flight_max + timeouts
    if (count := duplicates(evidence)) > bound:
        explained = f"{len(evidence.faults)} faults of at most {evidence.in_flight_max} in flight, {timeouts} timeouts"
        yield f"{count} duplicates with {explained}"


Rule = Callable[[Evidence], Iterator[str]]

RULES: tuple[Rule, ...] = (
    no_acknowledged_event_is_lost,
    no_valid_event_is_refused,
    stored_bytes_are_the_bytes_sent,
    nothing_is_received_that_was_not_sent,
    one_identity_for_all_attempts,
    one_event_for_one_send,
    one_delivery_for_each_receiver,
    every_delivery_ends,
    delivered_means_that_the_receiver_said_so,
    what_a_receiver_would_take_does_not_die,
    every_request_has_an_attempt_row,
    event_status_follows_its_deliveries,
    attempts_never_exceed_the_policy,
    each_attempt_counts_once,
    no_lease_is_taken_before_it_ends,
    no_retry_is_early,
    history_is_a_chain_of_allowed_moves,
    each_is_tried_after_those_before_it_have_ended,
    final_states_change_only_by_an_operator,
    duplicates_are_bounded_by_the_faults,
)


def _histories(evidence: Evidence) -> Iterator[tuple[StoredDelivery, list[StoredMove]]]:
    moves: dict[int, list[StoredMove]] = defaultdict(list)
    for move in evidence.state.moves:
        moves[move.row].append(move)
    for delivery in evidence.state.deliveries:
        yield delivery, sorted(moves[delivery.row], key=lambda move: move.move)


def _lasted(attempt: StoredAttempt) -> float:
    return (attempt.finished_at - attempt.started_at) / _SECOND


def _words(rule: Rule) -> str:
    return rule.__name__.replace("_", " ")
