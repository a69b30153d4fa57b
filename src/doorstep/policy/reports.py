"""What a report shows: the figures of minutes or hours on a regular axis of time, and what follows from them.

Figures are kept only for those minutes in which something happened. An axis has a place for each, so that whoever
draws it need not know that.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import accumulate, pairwise
from typing import NamedTuple

from doorstep.clock import DAY, Instant
from doorstep.model.endpoint import Endpoint, Slo
from doorstep.model.org import Org
from doorstep.model.rollup import FIGURES, HOUR, MINUTE, TTD, TTD_SECONDS, Figures, Point, Span


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
    """In seconds; see policy/reports.py for how exact."""
    return quantile(rank, figures.ttd)


def times_to_delivery(steps: Columns, ranks: Sequence[float]) -> list[list[float | None]]:
    """The same for several ranks, step by step: one list for each rank."""
    return quantiles(ranks, [steps[name] for name in TTD])


Edges = tuple[float, float]
"""Between which the values of a bucket lie."""


def quantile(q: float, counts: Sequence[int], bounds: tuple[float, ...] = TTD_SECONDS) -> float | None:
    """The value below which a share `q` of what was counted lies; None where nothing was.

    `counts` has one more bucket than there are upper bounds, each counted for itself. Values are taken to lie evenly
    within their bucket, the first of which begins at 0. Of what lies in the last bucket only the bound below is known.
    """
    return _value(q, list(accumulate(counts)), _edges(bounds))


def quantiles(
    ranks: Sequence[float], buckets: Sequence[Sequence[int]], bounds: tuple[float, ...] = TTD_SECONDS
) -> list[list[float | None]]:
    """For each rank those of many histograms, whose counts are given bucket by bucket.

    What is empty in all of them is left out. That changes nothing, and most are: a day seldom has use for all of them.
    """
    edges = _edges(bounds)
    used = [place for place, counts in enumerate(buckets) if any(counts)] or [0]
    within = [edges[place] for place in used]
    added = [list(accumulate(counts)) for counts in zip(*(buckets[place] for place in used), strict=True)]
    return [[_value(q, upto, within) for upto in added] for q in ranks]


@cache
def _edges(bounds: tuple[float, ...]) -> list[Edges]:
    return list(pairwise((0.0, *bounds, bounds[-1])))


def _value(q: float, upto: Sequence[int], edges: Sequence[Edges]) -> float | None:
    """The lowest of all begins the first bucket that is not empty."""
    if not upto[-1]:
        return None
    rank = q * upto[-1]
    bucket = bisect_left(upto, rank or 1)
    lower, upper = edges[bucket]
    below = upto[bucket - 1] if bucket else 0
    return lower + (upper - lower) * (rank - below) / (upto[bucket] - below)


BUDGET_WINDOW: Instant = 30 * DAY
BURN_WINDOWS: dict[str, Instant] = {"1h": HOUR, "6h": 6 * HOUR, "3d": 3 * DAY}
"""Quick, slow and creeping: what is worth waking someone, what a look, and what a plan."""
BURN_FIGURES = ("succeeded", "dead")
BUDGET_FIGURES = (*BURN_FIGURES, *TTD)
"""What is looked at of each; the others need not be read."""
_BUILT_IN = Slo()


class SloReport(NamedTuple):
    """One endpoint against its target. None: nothing has come to its end in that time, so there is nothing to judge."""

    target: Slo
    success_rate: float | None
    p95_seconds: float | None
    slow: bool
    """More than 5 % of what arrived took longer than the target."""
    oldest_seconds: float | None
    """How long the oldest of what waits has done so."""
    budget_left: float | None
    """The share of the error budget that is left; below zero once more was lost than the target allows."""
    burn: dict[str, float | None]

    @property
    def met(self) -> bool:
        """All three targets are; with nothing to judge they are."""
        stuck = self.oldest_seconds is not None and self.oldest_seconds > self.target.oldest_seconds
        return not self.slow and not stuck and (self.success_rate is None or self.success_rate >= self.target.success)


def slo_of(endpoint: Endpoint, org: Org | None) -> Slo:
    """The most specific that was said."""
    return endpoint.slo or (org.slo if org is not None else None) or _BUILT_IN


def against(target: Slo, window: Figures, recent: dict[str, Figures], oldest_seconds: float | None = None) -> SloReport:
    """What the figures of the whole window and of each burn window come to, and what still waits."""
    used, p95 = burn(target, window), time_to_delivery(window, 0.95)
    return SloReport(
        target=target,
        success_rate=success_rate(window),
        p95_seconds=p95,
        slow=p95 is not None and (p95 > target.p95_seconds or _is_beyond_measure(window)),
        oldest_seconds=oldest_seconds,
        budget_left=None if used is None else 1.0 - used,
        burn={name: burn(target, figures) for name, figures in recent.items()},
    )


def _is_beyond_measure(figures: Figures) -> bool:
    """Of the times beyond the last bound only that is known, which a target may be just as well."""
    *measured, beyond = figures.ttd
    return beyond > 0.05 * (sum(measured) + beyond)


def burn(target: Slo, figures: Figures) -> float | None:
    """How many times quicker than allowed deliveries were lost."""
    lost = share(figures.dead, figures.succeeded + figures.dead)
    return None if lost is None else lost / (1.0 - target.success)
