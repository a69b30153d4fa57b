"""Time as a width: where something is drawn, and the marks below. Pure; places are in percent of the width."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from doorstep.clock import SECOND, Instant
from doorstep.console.words import lasting

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
