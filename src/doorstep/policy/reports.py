"""Reports: figures per minute or hour, in equal steps of time, and the rates and quantiles computed from them.

Figures are stored only for minutes in which something happened. An axis has an entry for every step, so that charts
need not handle gaps.
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
from doorstep.model.rollup import (
    FIGURES,
    HOUR,
    MINUTE,
    RESPONSE,
    RESPONSE_SECONDS,
    TTD,
    TTD_SECONDS,
    Figures,
    Point,
    Span,
)


class Window(NamedTuple):
    """A range that can be requested: a number of equal steps, the last of which has not ended yet."""

    span: Span
    step: Instant
    steps: int

    def axis(self, now: Instant) -> Axis:
        """The axis that ends with the step that contains `now`."""
        return Axis(now - now % self.step - (self.steps - 1) * self.step, self.step, self.steps)


class Axis(NamedTuple):
    """Equal steps of time."""

    since: Instant
    step: Instant
    steps: int

    @property
    def until(self) -> Instant:
        """The end of the last step, which is in the future."""
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
"""For each figure, by its name, a list with one value per step. For a day, creating these lists takes half as long as
creating a Figures object for each minute."""


def on_axis(axis: Axis, points: Iterable[Point]) -> list[Figures]:
    """The figures of each step. They are all 0 for steps in which nothing happened."""
    steps = [_NOTHING] * axis.steps
    for point in points:
        steps[(point.at - axis.since) // axis.step] = point.figures
    return steps


def columns(axis: Axis, points: Iterable[Point]) -> Columns:
    """The figures of all steps as columns, one for each figure."""
    steps = [(0,) * len(FIGURES)] * axis.steps
    for point in points:
        steps[(point.at - axis.since) // axis.step] = point.values
    return dict(zip(FIGURES, map(list, zip(*steps, strict=True)), strict=True))


def coarser(steps: Columns, together: int) -> Columns:
    """Combine each group of `together` consecutive steps into one step by adding up their figures."""
    if together == 1:
        return steps
    starts = range(0, len(next(iter(steps.values()))), together)
    return {name: [sum(values[start : start + together]) for start in starts] for name, values in steps.items()}


def added_up(steps: Columns) -> Figures:
    """The total of each figure over all steps."""
    return Figures(*map(sum, steps.values()))


def levels(level: int, changes: Sequence[int]) -> list[int]:
    """The level at the end of each step, given the current `level`.

    A level is never below zero. A negative difference counts as zero; it can occur if something happens between the
    query for the level and the query for the changes.
    """
    later = accumulate(reversed(changes[1:]), initial=0)
    return [level - change if level > change else 0 for change in later][::-1]


def share(part: int, whole: int) -> float | None:
    """The ratio of `part` to `whole`, from 0 to 1; None if `whole` is 0."""
    return part / whole if whole else None


def success_rate(figures: Figures) -> float | None:
    """The share of deliveries that succeeded, out of those that succeeded or became dead letters."""
    return share(figures.succeeded, figures.succeeded + figures.dead)


def failed_rate(figures: Figures) -> float | None:
    """The share of events that failed, out of those that were delivered or failed."""
    return share(figures.failed, figures.delivered + figures.failed)


def success_rates(steps: Columns) -> list[float | None]:
    """The success rate of each step."""
    return [share(good, good + lost) for good, lost in zip(steps["succeeded"], steps["dead"], strict=True)]


def failed_rates(steps: Columns) -> list[float | None]:
    """The share of failed events in each step."""
    return [share(lost, good + lost) for good, lost in zip(steps["delivered"], steps["failed"], strict=True)]


def time_to_delivery(figures: Figures, rank: float) -> float | None:
    """A quantile of the time to delivery, in seconds; see `quantile` for the precision."""
    return quantile(rank, figures.ttd)


def response_time(figures: Figures, rank: float) -> float | None:
    """A quantile of the response time, in seconds; see `quantile` for the precision."""
    return quantile(rank, figures.response, RESPONSE_SECONDS)


Edges = tuple[float, float]
"""The lower and upper bound of a bucket."""


def quantile(q: float, counts: Sequence[int], bounds: tuple[float, ...] = TTD_SECONDS) -> float | None:
    """The value below which a share `q` of the counted values lies; None if there are no values.

    `counts` has one bucket for each upper bound and one for larger values. The counts are not cumulative. Values are
    assumed to be evenly distributed within their bucket; the first bucket starts at 0. The last bucket has no upper
    bound, so if the quantile lies in it, its lower bound is returned.
    """
    return _value(q, list(accumulate(counts)), _edges(bounds))


def times_to_delivery(steps: Columns, ranks: Sequence[float]) -> list[list[float | None]]:
    """Several quantiles of the time to delivery. For each rank there is a list with one value per step."""
    return _quantiles([steps[name] for name in TTD], TTD_SECONDS, ranks)


def response_times(steps: Columns, ranks: Sequence[float]) -> list[list[float | None]]:
    """The same quantiles of the response time."""
    return _quantiles([steps[name] for name in RESPONSE], RESPONSE_SECONDS, ranks)


def _quantiles(
    buckets: Sequence[list[int]], bounds: tuple[float, ...], ranks: Sequence[float]
) -> list[list[float | None]]:
    """Buckets that are empty in all steps are skipped. This does not change the result but saves time, because most
    buckets are empty."""
    edges = _edges(bounds)
    used = [place for place, counts in enumerate(buckets) if any(counts)] or [0]
    within = [edges[place] for place in used]
    added = [list(accumulate(counts)) for counts in zip(*(buckets[place] for place in used), strict=True)]
    return [[_value(rank, upto, within) for upto in added] for rank in ranks]


@cache
def _edges(bounds: tuple[float, ...]) -> list[Edges]:
    return list(pairwise((0.0, *bounds, bounds[-1])))


def _value(q: float, upto: Sequence[int], edges: Sequence[Edges]) -> float | None:
    """The quantile `q` from cumulative counts. For `q` = 0, this is the lower bound of the first non-empty bucket."""
    if not upto[-1]:
        return None
    rank = q * upto[-1]
    bucket = bisect_left(upto, rank or 1)
    lower, upper = edges[bucket]
    below = upto[bucket - 1] if bucket else 0
    return lower + (upper - lower) * (rank - below) / (upto[bucket] - below)


BUDGET_WINDOW: Instant = 30 * DAY
BURN_WINDOWS: dict[str, Instant] = {"1h": HOUR, "6h": 6 * HOUR, "3d": 3 * DAY}
"""The windows for burn rates. A high rate over one hour calls for immediate action, over six hours for a closer look,
and over three days for planned work."""
BURN_FIGURES = ("succeeded", "dead")
BUDGET_FIGURES = (*BURN_FIGURES, *TTD)
"""The figures that are read to compare endpoints with their targets."""
_BUILT_IN = Slo()


class SloReport(NamedTuple):
    """One endpoint compared with its target. A rate or time is None if there are no deliveries to compute it from."""

    target: Slo
    success_rate: float | None
    p95_seconds: float | None
    slow: bool
    """Whether more than 5 % of the successful deliveries took longer than the target."""
    oldest_seconds: float | None
    """How long the oldest waiting delivery has been waiting."""
    budget_left: float | None
    """The remaining share of the error budget; negative if more deliveries failed than the target allows."""
    burn: dict[str, float | None]

    @property
    def met(self) -> bool:
        """Whether all three targets are met. A target without data counts as met."""
        stuck = self.oldest_seconds is not None and self.oldest_seconds > self.target.oldest_seconds
        return not self.slow and not stuck and (self.success_rate is None or self.success_rate >= self.target.success)


def slo_of(endpoint: Endpoint, org: Org | None) -> Slo:
    """The target that applies: that of the endpoint, otherwise that of the organization, otherwise the built-in one."""
    return endpoint.slo or (org.slo if org is not None else None) or _BUILT_IN


def against(target: Slo, window: Figures, recent: dict[str, Figures], oldest_seconds: float | None = None) -> SloReport:
    """Compare the target with the figures of the window and of each burn window, and with the age of the oldest waiting
    delivery."""
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
    """Whether more than 5 % of the times exceed the last bound. The exact values above this bound are unknown, so the
    95th percentile is then reported as the bound itself. Because the target may be equal to the bound, comparing the
    two is not enough."""
    *measured, beyond = figures.ttd
    return beyond > 0.05 * (sum(measured) + beyond)


def burn(target: Slo, figures: Figures) -> float | None:
    """The burn rate: how many times faster the error budget is used up than the target allows. None without data."""
    lost = share(figures.dead, figures.succeeded + figures.dead)
    return None if lost is None else lost / (1.0 - target.success)
