"""The timeline of a delivery: its attempts, and why it waited between them. This module does no I/O.

The time between attempts is split into periods, each with one reason for the wait. Positions in the drawing are in
percent of the width.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from doorstep.clock import DAY, SECOND, Instant, seconds
from doorstep.console.formatting import exactly, lasting, moment, plural
from doorstep.model.action import AuditEntry
from doorstep.model.attempt import Attempt
from doorstep.model.delivery import DEAD_STATES, Delivery, DeliveryState, HistoryEntry
from doorstep.model.endpoint import CircuitChange, CircuitState, Endpoint, EndpointState
from doorstep.model.event import owed_since

PLANNED, HELD, QUEUED = "planned", "held", "queued"
ACCEPTED = "accepted"
RUNNING, DELIVERED, FAILED, LATE = "running", "delivered", "failed", "late"
KEYS = {
    PLANNED: "scheduled",
    HELD: "held",
    QUEUED: "due, not claimed yet",
    RUNNING: "in progress",
    DELIVERED: "delivered",
    FAILED: "failed",
    LATE: "too late to count",
    "dns": "DNS",
    "connect": "connect",
    "tls": "TLS",
    "first-byte": "until the first byte",
    "rest": "until the end",
}
"""A label for each kind of bar: first the waits and attempts in a delivery's timeline, then the phases of an
attempt."""


class Key(NamedTuple):
    kind: str
    label: str


class Edge(NamedTuple):
    """The left edge of the timeline."""

    at: Instant
    what: str = ACCEPTED

    @classmethod
    def of(cls, accepted_at: Instant, attempts: Sequence[Attempt], shown: Sequence[Attempt]) -> Edge:
        """The time of acceptance. If older attempts are hidden, the timeline starts at the first shown attempt instead,
        because a timeline with gaps would mislead."""
        left_out = len(attempts) > len(shown)
        return cls(shown[0].started_at, f"attempt {shown[0].number}") if left_out else cls(accepted_at)


class Timeline(NamedTuple):
    begins: str
    """The label of the timeline's left edge."""
    waits: tuple[Bar, ...]
    attempts: tuple[Bar, ...]
    marks: tuple[Mark, ...]
    now: float | None
    """The position of the current time, if it is inside the timeline."""
    label: str
    """A summary for screen readers."""

    @property
    def keys(self) -> list[Key]:
        return keys_of((*self.waits, *self.attempts))


def timeline(
    edge: Edge, waits: Sequence[Wait], attempts: Sequence[Attempt], running_since: Instant | None, now: Instant
) -> Timeline:
    """The timeline from its left edge to the last known time, which may be that of a future retry."""
    begin = edge.at
    waits = [one._replace(begin=max(begin, one.begin)) for one in waits if one.end > begin]
    ends = [wait.end for wait in waits] + [one.finished_at for one in attempts]
    end = max([begin + 1_000, *ends, *([now] if running_since is not None else [])])
    scale = Scale(begin, end)
    bars = [_attempt(scale, one) for one in attempts]
    if running_since is not None:
        title = f"In progress since {exactly(running_since)}"
        bars.append(wide(scale.bar(running_since, now, RUNNING, title)))
    return Timeline(
        begins=edge.what,
        waits=tuple(scale.bar(one.begin, one.end, one.kind, _waited(one)) for one in waits),
        attempts=tuple(bars),
        marks=scale.marks(),
        now=scale.x(now) if begin < now < end else None,
        label=_in_words(edge, attempts, waits, end - begin),
    )


def keys_of(bars: Iterable[Bar]) -> list[Key]:
    """The labels for the kinds of bars that occur."""
    kinds = {bar.kind for bar in bars}
    return [Key(kind, label) for kind, label in KEYS.items() if kind in kinds]


def _attempt(scale: Scale, one: Attempt) -> Bar:
    title = f"Attempt {one.number}: {outcome_of(one)}, {lasting(one.finished_at - one.started_at)}"
    return wide(scale.bar(one.started_at, one.finished_at, tone_of(one), f"{title}\n{exactly(one.started_at)}"))


def _waited(wait: Wait) -> str:
    return f"{wait.why}: {lasting(wait.end - wait.begin)}\nfrom {exactly(wait.begin)}\nuntil {exactly(wait.end)}"


def _in_words(edge: Edge, attempts: Sequence[Attempt], waits: Sequence[Wait], span: Instant) -> str:
    held = sum(wait.end - wait.begin for wait in waits if wait.kind == HELD)
    tried = f"{plural(len(attempts), 'attempt')} in {lasting(span)}"
    tried += "" if edge.what == ACCEPTED else f" since {edge.what}"
    return f"{tried}, held for {lasting(held)}" if held else tried


# -- why a delivery waited ----------------------------------------------------------------------------------

_SOON: Instant = SECOND
"""A worker normally claims a due delivery within this time. The timeline does not explain a shorter wait."""
_HOLDS = {"endpoint.pause": "paused", "endpoint.disable": "disabled"}
_FREES = frozenset({"endpoint.resume", "endpoint.delete"})
_EARLIER = "for an earlier event with the same ordering key"


class Wait(NamedTuple):
    begin: Instant
    end: Instant
    kind: str
    """`planned`: the delivery is not due yet; `held`: it is due, but something blocks it; `queued`: it is due, and
    nothing is known to block it."""
    why: str


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
    return Wait(opened.at, end, HELD, f"Held: the endpoint's circuit was open ({opened.reason})")


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
    return f"Held: the endpoint was {state}" + (f" ({reason})" if reason else "")


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


# -- one attempt -------------------------------------------------------------------------------------------


def outcome_of(attempt: Attempt) -> str:
    if attempt.late:
        return "too late to count"
    return "delivered" if attempt.category is None else attempt.code or "failed"


def tone_of(attempt: Attempt) -> str:
    if attempt.late:
        return LATE
    return DELIVERED if attempt.category is None else FAILED


def parts(attempt: Attempt, longest: Instant) -> tuple[Bar, ...]:
    """The phases of one attempt, on a scale that ends at `longest`."""
    scale = Scale(0, max(1, longest))
    bars, reached = [], 0
    for kind, until in _phases(attempt):
        if until > reached:
            is_rest = kind == "rest" and attempt.response_code is not None
            name = "Rest of the response" if is_rest else KEYS[kind][0].upper() + KEYS[kind][1:]
            bars.append(scale.bar(reached, until, kind, f"{name}: {lasting(until - reached)}"))
            reached = until
    return tuple(bars)


def _phases(attempt: Attempt) -> Iterator[tuple[str, Instant]]:
    """The phases in order, each with the time at which it ended, or 0 if the phase did not happen. If there was no
    response, curl's figure for the time to the first byte is ignored."""
    timings, whole = attempt.timings, attempt.finished_at - attempt.started_at
    yield "dns", min(timings.dns, whole)
    yield "connect", min(timings.connect, whole)
    yield "tls", min(timings.tls, whole)
    yield "first-byte", 0 if attempt.response_code is None else min(timings.first_byte, whole)
    yield "rest", whole


_MINUTE, _HOUR = 60 * SECOND, 3_600 * SECOND
_STEPS: tuple[Instant, ...] = (
    *(n * unit for unit in (1_000, 10_000, 100_000, SECOND) for n in (1, 2, 5)),
    *(n * SECOND for n in (10, 15, 30)),
    *(n * _MINUTE for n in (1, 2, 5, 10, 15, 30)),
    *(n * _HOUR for n in (1, 2, 3, 6, 12)),
    *(n * DAY for n in (1, 2, 5, 10, 30, 90)),
)
"""The intervals that may separate two marks, all of them round numbers."""
_MARKS_MAX = 6
_SEEN_MIN = 0.4
"""The minimum width of a bar, in percent. Without it, an attempt that took milliseconds would be invisible in a
timeline of hours."""


class Bar(NamedTuple):
    x: float
    width: float
    kind: str
    title: str


class Mark(NamedTuple):
    x: float
    label: str


class Scale(NamedTuple):
    begin: Instant
    end: Instant

    def x(self, at: Instant) -> float:
        within = min(max(at, self.begin), self.end)
        return round(100 * (within - self.begin) / (self.end - self.begin), 3)

    def bar(self, begin: Instant, end: Instant, kind: str, title: str) -> Bar:
        x = self.x(begin)
        return Bar(x, round(self.x(end) - x, 3), kind, title)

    def marks(self) -> tuple[Mark, ...]:
        """Marks that label the elapsed time at a few round numbers."""
        return tuple(Mark(self.x(self.begin + span), f"+{lasting(span)}") for span in _marks(self.end - self.begin))


def wide(bar: Bar) -> Bar:
    """The bar, made wide enough to see and kept within the right edge."""
    width = max(bar.width, _SEEN_MIN)
    return bar._replace(x=min(bar.x, 100 - width), width=width)


def _marks(span: Instant) -> Iterator[Instant]:
    step = next((step for step in _STEPS if span / step <= _MARKS_MAX), span)
    return (n * step for n in range(1, int(span / step) + 1) if n * step < 0.97 * span)
