"""The charts of a report: their values, names and colours. This module does no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypedDict

from doorstep.clock import SECOND
from doorstep.model.rollup import MINUTE
from doorstep.operations.stats import Report
from doorstep.policy.reports import (
    WINDOWS,
    coarser,
    failed_rates,
    levels,
    response_times,
    success_rates,
    times_to_delivery,
)

POINTS_MAX = 180
"""The maximum number of points per line. A chart that is half a screen wide cannot show more."""
RANGES = tuple(WINDOWS)
Values = Sequence[float | None]
_RANKS = (0.5, 0.95, 0.99)


class Line(TypedDict):
    name: str
    tone: str
    """A colour name from style.css: good, bad, waiting, busy, accent, other."""
    values: Values


class Chart(TypedDict):
    """A chart in the format that static/charts.js reads."""

    title: str
    kind: str
    unit: str
    at: Sequence[float]
    """The x values: seconds since the epoch, or numbers of retries in the chart "Retry attempts"."""
    series: list[Line]


class Charts:
    """The charts of one report, each built on demand."""

    def __init__(self, report: Report) -> None:
        together = -(-report.axis.steps // POINTS_MAX)
        self._steps = coarser(report.steps, together)
        self._report = report
        self._minutes = report.axis.step * together / MINUTE
        first, step = report.axis.since / SECOND, report.axis.step * together / SECOND
        self._at = [first + place * step for place in range(-(-report.axis.steps // together))]

    def statuses(self) -> Chart:
        tones = {"received": "other", "queued": "busy", "delivered": "good", "failed": "bad"}
        lines = [(name, tone, self._level(f"now_{name}")) for name, tone in tones.items()]
        return self._over_time("Events by status", "line", "", lines)

    def events(self) -> Chart:
        tones = {"created": "busy", "delivered": "good", "failed": "bad"}
        lines = [(name, tone, self._per_minute(name)) for name, tone in tones.items()]
        return self._over_time("Events per minute", "line", "/min", lines)

    def deliveries(self) -> Chart:
        lines = [("delivered", "good", self._per_minute("succeeded")), ("dead", "bad", self._per_minute("dead"))]
        return self._over_time("Deliveries per minute", "line", "/min", lines)

    def attempts(self) -> Chart:
        lines = [
            ("delivered", "good", self._per_minute("succeeded")),
            ("retried", "waiting", self._per_minute("retried")),
            ("failed permanently", "bad", self._per_minute("died")),
        ]
        return self._over_time("Attempts per minute", "line", "/min", lines)

    def success(self) -> Chart:
        lines = [("delivered", "good", _percent(success_rates(self._steps)))]
        return self._over_time("Delivery success rate", "line", "%", lines)

    def failures(self) -> Chart:
        lines = [("failed", "bad", _percent(failed_rates(self._steps)))]
        return self._over_time("Failed events rate", "area", "%", lines)

    def times(self) -> Chart:
        return self._quantiles("Time to delivery", times_to_delivery(self._steps, _RANKS))

    def responses(self) -> Chart:
        return self._quantiles("Response time", response_times(self._steps, _RANKS))

    def _quantiles(self, title: str, quantiles: Sequence[Values]) -> Chart:
        names = (("p50", "good"), ("p95", "waiting"), ("p99", "bad"))
        lines = [(name, tone, values) for (name, tone), values in zip(names, quantiles, strict=True)]
        return self._over_time(title, "line", "s", lines)

    def queue(self) -> Chart:
        lines = [("waiting or in progress", "busy", self._level("now_open")), ("dead", "bad", self._level("now_dead"))]
        return self._over_time("Queue depth", "area", "", lines)

    def retries(self) -> Chart:
        """How many deliveries ended after 0, 1, 2 … retries. The x-axis is not time."""
        counts = self._report.sum.retries
        line = Line(name="deliveries", tone="busy", values=counts)
        return Chart(title="Retry attempts", kind="bars", unit="retries", at=list(range(len(counts))), series=[line])

    def _over_time(self, title: str, kind: str, unit: str, lines: Iterable[tuple[str, str, Values]]) -> Chart:
        series = [Line(name=name, tone=tone, values=values) for name, tone, values in lines]
        return Chart(title=title, kind=kind, unit=unit, at=self._at, series=series)

    def _per_minute(self, name: str) -> Values:
        return [round(value / self._minutes, 3) for value in self._steps[name]]

    def _level(self, name: str) -> Values:
        return levels(getattr(self._report.now, name), self._steps[name])


def _percent(shares: Iterable[float | None]) -> Values:
    return [None if share is None else round(100 * share, 2) for share in shares]
