"""What a report shows: the figures of minutes or hours on a regular axis of time, and what follows from them.

Figures are kept only for those minutes in which something happened. An axis has a place for each, so that whoever
draws it need not know that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from doorstep.clock import Instant
from doorstep.model.rollup import FIGURES, HOUR, MINUTE, TTD, Figures, Point, Span
from doorstep.policy.quantile import quantile, quantiles


class Window(NamedTuple):
    """A range that can be asked for: so many steps of a kind, the last of which is still going on."""

    span: Span
    step: Instant
    steps: int

    def axis(self, now: Instant) -> Axis:
        """The one that ends with the step in which `now` is."""
        return Axis(now - now % self.step - (self.steps - 1) * self.step, self.step, self.steps)


class Axis(NamedTuple):
    """Regular steps of time."""

    since: Instant
    step: Instant
    steps: int

    @property
    def until(self) -> Instant:
        """The end of the last step; it lies ahead."""
        return self.since + self.step * self.steps


WINDOWS: dict[str, Window] = {
    "1h": Window(Span.MINUTE, MINUTE, 60),
    "6h": Window(Span.MINUTE, MINUTE, 360),
    "24h": Window(Span.MINUTE, MINUTE, 1_440),
    "7d": Window(Span.HOUR, HOUR, 168),
    "30d": Window(Span.HOUR, HOUR, 720),
}
_NOTHING = Figures()
Columns = Mapping[str, list[int]]
"""Figures by name, each step by step: for a day that is half the work of a Figures for each minute."""


def on_axis(axis: Axis, points: Iterable[Point]) -> list[Figures]:
    """One for each step, empty where nothing happened."""
    steps = [_NOTHING] * axis.steps
    for point in points:
        steps[(point.at - axis.since) // axis.step] = point.figures
    return steps


def columns(axis: Axis, points: Iterable[Point]) -> Columns:
    """The same, figure by figure."""
    steps = [(0,) * len(FIGURES)] * axis.steps
    for point in points:
        steps[(point.at - axis.since) // axis.step] = point.values
    return dict(zip(FIGURES, map(list, zip(*steps, strict=True)), strict=True))


def coarser(steps: Columns, together: int) -> Columns:
    """So many steps added up to one."""
    if together == 1:
        return steps
    starts = range(0, len(next(iter(steps.values()))), together)
    return {name: [sum(values[start : start + together]) for start in starts] for name, values in steps.items()}


def added_up(steps: Columns) -> Figures:
    """The sums of them all."""
    return Figures(*map(sum, steps.values()))


def levels(level: int, changes: Sequence[int]) -> list[int]:
    """What the level was at the end of each step, if `level` is what it is now.

    Never below zero, which it would be for a moment where something happened between the two questions.
    """
    later = accumulate(reversed(changes[1:]), initial=0)
    return [level - change if level > change else 0 for change in later][::-1]


def share(part: int, whole: int) -> float | None:
    """From 0 to 1; None of nothing."""
    return part / whole if whole else None


def success_rate(figures: Figures) -> float | None:
    """How many of the deliveries that came to their end did so well."""
    return share(figures.succeeded, figures.succeeded + figures.dead)


def failed_rate(figures: Figures) -> float | None:
    """How many of the events that came to their end failed."""
    return share(figures.failed, figures.delivered + figures.failed)


def success_rates(steps: Columns) -> list[float | None]:
    """The success rate, step by step."""
    return [share(good, good + lost) for good, lost in zip(steps["succeeded"], steps["dead"], strict=True)]


def failed_rates(steps: Columns) -> list[float | None]:
    """The rate of failed events, step by step."""
    return [share(lost, good + lost) for good, lost in zip(steps["delivered"], steps["failed"], strict=True)]


def time_to_delivery(figures: Figures, rank: float) -> float | None:
    """In seconds; see policy/quantile.py for how exact."""
    return quantile(rank, figures.ttd)


def times_to_delivery(steps: Columns, ranks: Sequence[float]) -> list[list[float | None]]:
    """The same for several ranks, step by step: one list for each rank."""
    return quantiles(ranks, [steps[name] for name in TTD])
