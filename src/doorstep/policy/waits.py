"""Why a delivery waited: the time between its attempts, split into periods, each with one reason. This module does no
I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from doorstep.clock import SECOND, Instant, moment, seconds
from doorstep.model.action import AuditEntry
from doorstep.model.delivery import DEAD_STATES, Delivery, DeliveryState, HistoryEntry
from doorstep.model.endpoint import CircuitChange, CircuitState, Endpoint, EndpointState
from doorstep.model.event import owed_since

PLANNED, HELD, QUEUED = "planned", "held", "queued"
_SOON: Instant = SECOND
"""A worker normally claims a due delivery within this time. The timeline does not explain a shorter wait."""
_HOLDS = {"endpoint.pause": "paused", "endpoint.disable": "disabled"}
_FREES = frozenset({"endpoint.resume", "endpoint.delete"})
_HELD = "Held: "
_EARLIER = "for an earlier event with the same ordering key"


class Wait(NamedTuple):
    begin: Instant
    end: Instant
    kind: str
    """`planned`: the delivery is not due yet; `held`: it is due, but something blocks it; `queued`: it is due, and
    nothing is known to block it."""
    why: str

    @property
    def sentence(self) -> str:
        """The reason on its own: `The endpoint was paused (maintenance).`"""
        reason = self.why.removeprefix(_HELD)
        return f"{reason[:1].upper()}{reason[1:]}."


class Life(NamedTuple):
    """The facts that explain the waits of a delivery."""

    delivery: Delivery
    endpoint: Endpoint
    deliver_at: Instant | None
    ordering_key: str | None
    history: Sequence[HistoryEntry]
    retries_at: Mapping[int, Instant]
    """The time for which the next retry was planned after each attempt, by the number of the attempt."""
    revive_after_seconds: float
    circuit_changes: Sequence[CircuitChange] = ()
    endpoint_actions: Sequence[AuditEntry] = ()
    """The actions on the endpoint, in any order."""


def waits_of(life: Life, now: Instant) -> list[Wait]:
    """Every period in which the delivery was pending, in order. The last period may end in the future."""
    holds = [
        *_circuit_holds(life.circuit_changes, now),
        *_endpoint_holds(life.endpoint, life.endpoint_actions, now),
        *_ordering_holds(life, now),
    ]
    return [wait for line, end in _pending(life, now) for wait in _explained(life, line, end, holds)]


def _pending(life: Life, now: Instant) -> Iterator[tuple[HistoryEntry, Instant]]:
    """The transitions to pending, each with the end of the wait that it started."""
    for line, after in pairwise(life.history):
        if line.new_state is DeliveryState.PENDING:
            yield line, after.at
    if life.history and life.history[-1].new_state is DeliveryState.PENDING:
        yield life.history[-1], max(now, life.delivery.due_at or now)


def _explained(life: Life, line: HistoryEntry, end: Instant, holds: Sequence[Wait]) -> Iterator[Wait]:
    planned = _due(life, line)
    due = min(end, max(line.at, planned))
    if due > line.at:
        yield Wait(line.at, due, PLANNED, _plan(line, planned))
    if end - due > _SOON:
        yield from _overdue(due, end, holds, _turn(life, line))


def _due(life: Life, line: HistoryEntry) -> Instant:
    """When the attempt that follows this transition was due."""
    known = life.delivery.due_at if line is life.history[-1] else None
    if line.old_state is None:  # `known` is later if another delivery blocked this one, earlier if this one was forced
        owed = owed_since(line.at, life.deliver_at)
        return owed if known is None else min(owed, known)
    if known is not None:
        return known
    if line.old_state in DEAD_STATES:
        return line.at + seconds(life.revive_after_seconds)
    return life.retries_at.get(line.attempt, line.at)


def _plan(line: HistoryEntry, due: Instant) -> str:
    if line.old_state is None:
        return f"Scheduled by the sender for {moment(due)} UTC"
    if line.old_state in DEAD_STATES:
        return "Retried by an operator; due a few seconds later"
    return f"Waits for its retry at {moment(due)} UTC"


def _turn(life: Life, line: HistoryEntry) -> Wait:
    """The wait of a due delivery that nothing is known to block. The store does not record which limit delayed the
    delivery, so the text names every limit that may have delayed it."""
    known = ["Due, not claimed by a worker yet"]
    if life.ordering_key is not None and line.old_state is None:
        known.append("earlier events with the same ordering key go first")
    limits = []
    if life.endpoint.rate_per_second is not None:
        limits.append(f"{life.endpoint.rate_per_second:g} per second")
    if life.endpoint.concurrency_max is not None:
        limits.append(f"{life.endpoint.concurrency_max} at the same time")
    if limits:
        known.append(f"the endpoint is limited to {' and '.join(limits)}")
    return Wait(0, 0, QUEUED, "; ".join(known))


def _overdue(begin: Instant, end: Instant, holds: Sequence[Wait], otherwise: Wait) -> Iterator[Wait]:
    """The waits from the due time to the attempt: the known holds, with `otherwise` in the gaps between them."""
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
    return Wait(opened.at, end, HELD, f"{_HELD}the endpoint's circuit was open ({opened.reason})")


def _endpoint_holds(endpoint: Endpoint, actions: Iterable[AuditEntry], now: Instant) -> Iterator[Wait]:
    """The periods in which the endpoint was paused or disabled. The current one is read from the endpoint itself, the
    earlier ones from its audit entries."""
    begun: AuditEntry | None = None
    for line in sorted(actions, key=lambda line: line.at):
        if line.action in _HOLDS:
            begun = begun or line
        elif line.action in _FREES and begun is not None:
            yield Wait(begun.at, line.at, HELD, _stopped(_HOLDS[begun.action], begun.reason))
            begun = None
    if endpoint.state in (EndpointState.PAUSED, EndpointState.DISABLED):
        yield Wait(endpoint.state_since, now, HELD, _stopped(endpoint.state, endpoint.state_reason))


def _stopped(state: str, reason: str) -> str:
    return f"{_HELD}the endpoint was {state}" + (f" ({reason})" if reason else "")


def _ordering_holds(life: Life, now: Instant) -> Iterator[Wait]:
    """The period in which an earlier delivery of the same ordering group blocked this delivery. The period is known
    only until this delivery is first claimed. A blocked delivery has no due time until the earlier delivery ends; the
    time of that end then becomes its due time."""
    if life.ordering_key is None or len(life.history) != 1:
        return
    owed, delivery = owed_since(life.history[0].at, life.deliver_at), life.delivery
    if delivery.blocked:
        yield Wait(owed, now, HELD, f"Waits {_EARLIER}")
    elif delivery.due_at is not None and delivery.due_at > owed:
        yield Wait(owed, delivery.due_at, HELD, f"Waited {_EARLIER}")
