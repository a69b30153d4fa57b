"""The timeline of a delivery: its attempts, and its waits between them. This module does no I/O.

Positions in the drawing are in percent of the width.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from doorstep.clock import DAY, SECOND, Instant
from doorstep.console.formatting import exactly, lasting, plural
from doorstep.model.attempt import Attempt
from doorstep.policy.waits import HELD, PLANNED, QUEUED, Wait

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
