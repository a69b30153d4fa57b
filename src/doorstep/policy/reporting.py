"""What a report shows: the figures of minutes or hours on a regular axis of time, and what follows from them.

Figures are kept only for those minutes in which something happened. An axis has a place for each, so that whoever
draws it need not know that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

from msgspec.structs import astuple

from doorstep.clock import Instant
from doorstep.model.rollup import HOUR, MINUTE, Figures, Point, Span, figures_of
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


def on_axis(axis: Axis, points: Iterable[Point]) -> list[Figures]:
    """One for each step, empty where nothing happened."""
    steps = [_NOTHING] * axis.steps
    for point in points:
        steps[(point.at - axis.since) // axis.step] = point.figures
    return steps


def column(steps: Sequence[Figures], name: str) -> list[int]:
    """One figure, step by step."""
    return [getattr(figures, name) for figures in steps]


def levels(level: int, changes: Sequence[int]) -> list[int]:
    """What the level was at the end of each step, if `level` is what it is now.

    Never below zero, which it would be for a moment where something happened between the two questions.
    """
    later = accumulate(reversed(changes[1:]), initial=0)
    return [max(0, level - change) for change in later][::-1]


def share(part: int, whole: int) -> float | None:
    """From 0 to 1; None of nothing."""
    return part / whole if whole else None


def success_rate(figures: Figures) -> float | None:
    """How many of the deliveries that came to their end did so well."""
    return share(figures.succeeded, figures.succeeded + figures.dead)


def failed_rate(figures: Figures) -> float | None:
    """How many of the events that came to their end failed."""
    return share(figures.failed, figures.delivered + figures.failed)


def time_to_delivery(figures: Figures, rank: float) -> float | None:
    """In seconds; see policy/quantile.py for how exact."""
    return quantile(rank, figures.ttd)


def times_to_delivery(steps: Sequence[Figures], ranks: Sequence[float]) -> list[tuple[float | None, ...]]:
    """The same for several ranks, step by step: one list for each rank."""
    nothing = (None,) * len(ranks)
    found = [quantiles(ranks, step.ttd) if step.succeeded else nothing for step in steps]
    return list(zip(*found, strict=True))


def added_up(points: Sequence[Point]) -> Figures:
    """The sums of them all; figure by figure, because that is six times quicker than point by point."""
    return (
        figures_of(map(sum, zip(*(astuple(point.figures) for point in points), strict=True))) if points else Figures()
    )
