"""Where the parts of a delivery's life are drawn, to scale. Pure; places are in percent of the width."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from doorstep.clock import SECOND, Instant
from doorstep.console.formatting import exactly, lasting, plural
from doorstep.console.waits import HELD, PLANNED, QUEUED, Wait
from doorstep.model.attempt import Attempt

ACCEPTED = "accepted"
RUNNING, DELIVERED, FAILED, LATE = "running", "delivered", "failed", "late"
KEYS = {
    PLANNED: "waits for its time",
    HELD: "held",
    QUEUED: "due, not taken yet",
    RUNNING: "being tried",
    DELIVERED: "delivered",
    FAILED: "failed",
    LATE: "too late to count",
}
"""What each kind of bar means, in the order of a life."""
PHASE_KEYS = {
    "dns": "DNS",
    "connect": "connect",
    "tls": "TLS",
    "first-byte": "until the first byte",
    "rest": "until the end",
}
"""The same of the parts of an attempt."""


class Key(NamedTuple):
    kind: str
    label: str


class Edge(NamedTuple):
    """Where the picture begins."""

    at: Instant
    what: str = ACCEPTED

    @classmethod
    def of(cls, accepted_at: Instant, attempts: Sequence[Attempt], shown: Sequence[Attempt]) -> Edge:
        """The acceptance; or the first attempt that is shown, where older ones are not: a stretch of time with some of
        its tries left out would not be true."""
        left_out = len(attempts) > len(shown)
        return cls(shown[0].started_at, f"attempt {shown[0].number}") if left_out else cls(accepted_at)


class Timeline(NamedTuple):
    begins: str
    """What happened at its left edge."""
    waits: tuple[Bar, ...]
    tries: tuple[Bar, ...]
    marks: tuple[Mark, ...]
    now: float | None
    """Where the present is, if what is shown reaches beyond it."""
    label: str
    """All of it in a sentence, for those who do not see it."""

    @property
    def keys(self) -> list[Key]:
        return _occurring(KEYS, (*self.waits, *self.tries))


def timeline(
    edge: Edge, waits: Sequence[Wait], attempts: Sequence[Attempt], running_since: Instant | None, now: Instant
) -> Timeline:
    """From its edge to the last thing that is known, which may be a try in the future."""
    begin = edge.at
    waits = [one._replace(begin=max(begin, one.begin)) for one in waits if one.end > begin]
    ends = [wait.end for wait in waits] + [one.finished_at for one in attempts]
    end = max([begin + 1_000, *ends, *([now] if running_since is not None else [])])
    scale = Scale(begin, end)
    tries = [_try(scale, one) for one in attempts]
    if running_since is not None:
        title = f"Being tried since {exactly(running_since)}"
        tries.append(wide(scale.bar(running_since, now, RUNNING, title)))
    return Timeline(
        begins=edge.what,
        waits=tuple(scale.bar(one.begin, one.end, one.kind, _waited(one)) for one in waits),
        tries=tuple(tries),
        marks=scale.marks(),
        now=scale.x(now) if begin < now < end else None,
        label=_in_words(edge, attempts, waits, end - begin),
    )


def phase_keys(bars: Iterable[Bar]) -> list[Key]:
    """Of the parts that these attempts had."""
    return _occurring(PHASE_KEYS, bars)


def _occurring(keys: Mapping[str, str], bars: Iterable[Bar]) -> list[Key]:
    kinds = {bar.kind for bar in bars}
    return [Key(kind, label) for kind, label in keys.items() if kind in kinds]


def _try(scale: Scale, one: Attempt) -> Bar:
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
    """What one attempt spent its time on, on a scale that ends at `longest`."""
    scale = Scale(0, max(1, longest))
    bars, reached = [], 0
    for kind, name, until in _phases(attempt):
        if until > reached:
            bars.append(scale.bar(reached, until, kind, f"{name}: {lasting(until - reached)}"))
            reached = until
    return tuple(bars)


def _phases(attempt: Attempt) -> Iterator[tuple[str, str, Instant]]:
    """The parts in their order, each with when it ended; 0 for one that there was none of. Where no answer came, what
    curl takes for a first byte was none."""
    timings, whole = attempt.timings, attempt.finished_at - attempt.started_at
    answered = attempt.response_code is not None
    yield "dns", "DNS", min(timings.dns, whole)
    yield "connect", "Connect", min(timings.connect, whole)
    yield "tls", "TLS", min(timings.tls, whole)
    yield "first-byte", "Until the first byte", min(timings.first_byte, whole) if answered else 0
    yield "rest", "Rest of the answer" if answered else "Until it ended", whole


_MINUTE, _HOUR, _DAY = 60 * SECOND, 3_600 * SECOND, 86_400 * SECOND
_STEPS: tuple[Instant, ...] = (
    *(n * unit for unit in (1_000, 10_000, 100_000, SECOND) for n in (1, 2, 5)),
    *(n * SECOND for n in (10, 15, 30)),
    *(n * _MINUTE for n in (1, 2, 5, 10, 15, 30)),
    *(n * _HOUR for n in (1, 2, 3, 6, 12)),
    *(n * _DAY for n in (1, 2, 5, 10, 30, 90)),
)
"""Distances between marks that people can count with."""
_MARKS_MAX = 6
_SEEN_MIN = 0.4
"""What is short is shown at least this wide, in percent: milliseconds among hours would not be seen."""


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
        """The time since the beginning, at a few round numbers."""
        return tuple(Mark(self.x(self.begin + span), f"+{lasting(span)}") for span in _marks(self.end - self.begin))


def wide(bar: Bar) -> Bar:
    """At least as wide as can be seen, and never beyond the edge."""
    width = max(bar.width, _SEEN_MIN)
    return bar._replace(x=min(bar.x, 100 - width), width=width)


def _marks(span: Instant) -> Iterator[Instant]:
    step = next((step for step in _STEPS if span / step <= _MARKS_MAX), span)
    return (n * step for n in range(1, int(span / step) + 1) if n * step < 0.97 * span)
