"""Why a delivery was not tried: its life between the attempts, cut into stretches that each have one reason. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from doorstep.clock import SECOND, Instant, seconds
from doorstep.console.formatting import moment
from doorstep.model.action import AuditEntry
from doorstep.model.circuit import CircuitChange, CircuitState
from doorstep.model.delivery import DEAD_STATES, Delivery, DeliveryState, HistoryLine
from doorstep.model.endpoint import Endpoint, EndpointState
from doorstep.model.event import owed_since

PLANNED, HELD, QUEUED = "planned", "held", "queued"
_SOON: Instant = SECOND
"""What is due is picked up within a second; a shorter wait needs no reason."""
_HOLDS = {"endpoint.pause": "paused", "endpoint.disable": "disabled"}
_FREES = frozenset({"endpoint.resume", "endpoint.delete"})
_EARLIER = "for an earlier event with the same ordering key"


class Wait(NamedTuple):
    begin: Instant
    end: Instant
    kind: str
    """planned: until its time; held: something kept it from being tried; queued: due, and nothing is known to hold it."""
    why: str


class Life(NamedTuple):
    """All that is known of a delivery's waiting."""

    delivery: Delivery
    endpoint: Endpoint
    deliver_at: Instant | None
    ordering_key: str | None
    history: Sequence[HistoryLine]
    retries_at: Mapping[int, Instant]
    """Of each attempt that was to be followed by a retry, when."""
    revive_after_seconds: float
    circuit_changes: Sequence[CircuitChange] = ()
    endpoint_acts: Sequence[AuditEntry] = ()
    """What was done to the endpoint, in any order."""


def waits_of(life: Life, now: Instant) -> list[Wait]:
    """Every stretch in which the delivery was pending, in order; the last one may reach into the future."""
    holds = [
        *_circuit_holds(life.circuit_changes, now),
        *_endpoint_holds(life.endpoint, life.endpoint_acts, now),
        *_line_holds(life, now),
    ]
    return [wait for line, end in _pending(life, now) for wait in _explained(life, line, end, holds)]


def _pending(life: Life, now: Instant) -> Iterator[tuple[HistoryLine, Instant]]:
    """The lines that made it wait, each with when that ended."""
    for line, after in pairwise(life.history):
        if line.new_state is DeliveryState.PENDING:
            yield line, after.at
    if life.history and life.history[-1].new_state is DeliveryState.PENDING:
        yield life.history[-1], max(now, life.delivery.due_at or now)


def _explained(life: Life, line: HistoryLine, end: Instant, holds: Sequence[Wait]) -> Iterator[Wait]:
    planned = _due(life, line)
    due = min(end, max(line.at, planned))
    if due > line.at:
        yield Wait(line.at, due, PLANNED, _plan(line, planned))
    if end - due > _SOON:
        yield from _overdue(due, end, holds, _turn(life, line))


def _due(life: Life, line: HistoryLine) -> Instant:
    """When the try was to be that this line made it wait for."""
    known = life.delivery.due_at if line is life.history[-1] else None
    if line.old_state is None:  # its due time is later where it stood behind another, and earlier where it was forced
        owed = owed_since(line.at, life.deliver_at)
        return owed if known is None else min(owed, known)
    if known is not None:
        return known
    if line.old_state in DEAD_STATES:
        return line.at + seconds(life.revive_after_seconds)
    return life.retries_at.get(line.attempt, line.at)


def _plan(line: HistoryLine, due: Instant) -> str:
    if line.old_state is None:
        return f"To be delivered at {moment(due)} UTC, as its sender asked"
    if line.old_state in DEAD_STATES:
        return "An operator retried it; it is due a few seconds later"
    return f"Waits for its retry at {moment(due)} UTC"


def _turn(life: Life, line: HistoryLine) -> Wait:
    """What is known where nothing is known to hold it: which of the limits made it wait, if one did, nobody wrote down."""
    known = ["Due, and not taken by a worker yet"]
    if life.ordering_key is not None and line.old_state is None:
        known.append("it goes after earlier events with the same ordering key")
    limits = []
    if life.endpoint.rate_per_second is not None:
        limits.append(f"{life.endpoint.rate_per_second:g} a second")
    if life.endpoint.concurrency_max is not None:
        limits.append(f"{life.endpoint.concurrency_max} at once")
    if limits:
        known.append(f"the endpoint takes at most {' and '.join(limits)}")
    return Wait(0, 0, QUEUED, "; ".join(known))


def _overdue(begin: Instant, end: Instant, holds: Sequence[Wait], otherwise: Wait) -> Iterator[Wait]:
    """From a due time to the try: what is known to have held it, and between that, its turn."""
    reached = begin
    for hold in sorted(holds):
        if hold.end <= reached or hold.begin >= end:
            continue
        if hold.begin > reached:
            yield otherwise._replace(begin=reached, end=hold.begin)
        yield hold._replace(begin=max(hold.begin, reached), end=min(hold.end, end))
        reached = min(hold.end, end)
    if reached < end:
        yield otherwise._replace(begin=reached, end=end)


def _circuit_holds(changes: Sequence[CircuitChange], now: Instant) -> Iterator[Wait]:
    opened: CircuitChange | None = None
    for change in changes:
        if change.new_state is not CircuitState.CLOSED:
            opened = opened or change
        elif opened is not None:
            yield _circuit_hold(opened, change.at)
            opened = None
    if opened is not None:
        yield _circuit_hold(opened, now)


def _circuit_hold(opened: CircuitChange, end: Instant) -> Wait:
    return Wait(opened.at, end, HELD, f"Held: the endpoint's circuit was open ({opened.reason})")


def _endpoint_holds(endpoint: Endpoint, acts: Iterable[AuditEntry], now: Instant) -> Iterator[Wait]:
    """When the endpoint was paused or disabled; the present one is known from the endpoint itself."""
    begun: AuditEntry | None = None
    for line in sorted(acts, key=lambda line: line.at):
        if line.action in _HOLDS:
            begun = begun or line
        elif line.action in _FREES and begun is not None:
            yield Wait(begun.at, line.at, HELD, _stopped(_HOLDS[begun.action], begun.reason))
            begun = None
    if endpoint.state in (EndpointState.PAUSED, EndpointState.DISABLED):
        yield Wait(endpoint.state_since, now, HELD, _stopped(endpoint.state, endpoint.state_reason))


def _stopped(state: str, reason: str) -> str:
    return f"Held: the endpoint was {state}" + (f" ({reason})" if reason else "")


def _line_holds(life: Life, now: Instant) -> Iterator[Wait]:
    """How long it stood behind another of its ordering key. Only of what was never taken is that known: while it stands
    there it has no due time, and then that of the other's end."""
    if life.ordering_key is None or len(life.history) != 1:
        return
    owed, delivery = owed_since(life.history[0].at, life.deliver_at), life.delivery
    if delivery.blocked:
        yield Wait(owed, now, HELD, f"Waits {_EARLIER}")
    elif delivery.due_at is not None and delivery.due_at > owed:
        yield Wait(owed, delivery.due_at, HELD, f"Waited {_EARLIER}")
