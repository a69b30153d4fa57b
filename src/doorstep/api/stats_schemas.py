"""The shapes of what happened over a range of time, and of how endpoints fare."""

from __future__ import annotations

from uuid import UUID

from pydantic import BaseModel

from doorstep.api.circuit_schemas import CircuitStateName
from doorstep.api.endpoint_schemas import StateName
from doorstep.api.schemas import Asked, Pagination, Shape, Timestamp, iso
from doorstep.clock import SECOND, to_iso
from doorstep.model.rollup import TTD_SECONDS, Figures, RangeName
from doorstep.path.reading import Stats
from doorstep.path.reporting import Health, Report
from doorstep.policy.reporting import (
    Columns,
    failed_rate,
    failed_rates,
    levels,
    success_rate,
    success_rates,
    time_to_delivery,
    times_to_delivery,
)

Share = float
"""From 0 to 1."""


class DeliveryStats(Shape):
    retrying: int
    """Those that failed and will be tried again, or are being tried."""
    dead: int
    archived: int


class EventStats(Shape):
    inbox: int
    """Those that wait to be acknowledged."""
    failed: int


class EventSeries(Shape):
    """Events by what became of them in each step."""

    created: list[int]
    delivered: list[int]
    failed: list[int]


class StatusSeries(Shape):
    """How many stored events had each status at the end of each step."""

    received: list[int]
    queued: list[int]
    delivered: list[int]
    failed: list[int]


class DeliverySeries(Shape):
    created: list[int]
    delivered: list[int]
    dead: list[int]
    """Those that became dead letters, in any way."""


class AttemptSeries(Shape):
    """Attempts by what they came to."""

    succeeded: list[int]
    retry: list[int]
    dead: list[int]


class TimeSeries(Shape):
    """In seconds; null where nothing was delivered."""

    p50: list[float | None]
    p95: list[float | None]
    p99: list[float | None]

    @classmethod
    def of(cls, steps: Columns) -> TimeSeries:
        p50, p95, p99 = times_to_delivery(steps, (0.5, 0.95, 0.99))
        return cls(p50=p50, p95=p95, p99=p99)


class SeriesOut(Shape):
    """One number for each step, the oldest first. With `endpoint_id`, `events` and `statuses` are null: an event may be
    for several endpoints."""

    events: EventSeries | None
    statuses: StatusSeries | None
    deliveries: DeliverySeries
    attempts: AttemptSeries
    success_rate: list[Share | None]
    """Of the deliveries that came to their end, those that were delivered; null where none did."""
    failed_rate: list[Share | None] | None
    """Of the events that came to their end, those that failed."""
    time_to_delivery: TimeSeries
    queue_depth: list[int]
    """Deliveries that were waiting or in progress at the end of each step."""
    dead_letters: list[int]

    @classmethod
    def of(cls, report: Report, whole_org: bool) -> SeriesOut:
        steps = report.steps
        return cls(
            events=EventSeries(**{name: steps[name] for name in EventSeries.model_fields}) if whole_org else None,
            statuses=StatusSeries(**{name: _level(report, f"now_{name}") for name in StatusSeries.model_fields})
            if whole_org
            else None,
            deliveries=DeliverySeries(created=steps["deliveries"], delivered=steps["succeeded"], dead=steps["dead"]),
            attempts=AttemptSeries(succeeded=steps["succeeded"], retry=steps["retried"], dead=steps["died"]),
            success_rate=success_rates(steps),
            failed_rate=failed_rates(steps) if whole_org else None,
            time_to_delivery=TimeSeries.of(steps),
            queue_depth=_level(report, "now_open"),
            dead_letters=_level(report, "now_dead"),
        )


def _level(report: Report, name: str) -> list[int]:
    return levels(getattr(report.now, name), report.steps[name])


class EventSum(Shape):
    created: int
    delivered: int
    failed: int


class DeliverySum(Shape):
    created: int
    delivered: int
    dead: int


class AttemptSum(Shape):
    succeeded: int
    retry: int
    dead: int


class TimeSum(Shape):
    """In seconds; null if nothing was delivered."""

    p50: float | None
    p95: float | None
    p99: float | None
    mean: float | None

    @classmethod
    def of(cls, figures: Figures) -> TimeSum:
        count = sum(figures.ttd)
        mean = figures.ttd_ms / count / 1_000 if count else None
        return cls(**{f"p{rank}": time_to_delivery(figures, rank / 100) for rank in (50, 95, 99)}, mean=mean)


class RetriesOut(Shape):
    """How many deliveries had used so many retries when a try ended them."""

    retries: int
    """The last of the list stands for so many and more."""
    deliveries: int


class BucketOut(Shape):
    """How many deliveries took at most so long, and longer than the bucket before allows."""

    seconds: float | None
    """Null is the last one, without a bound."""
    deliveries: int


class RangeSum(Shape):
    """The whole range."""

    events: EventSum | None
    deliveries: DeliverySum
    attempts: AttemptSum
    success_rate: Share | None
    failed_rate: Share | None
    retry_attempts: list[RetriesOut]
    time_to_delivery: TimeSum
    time_to_delivery_buckets: list[BucketOut]
    blocked_addresses: int
    late_settles: int

    @classmethod
    def of(cls, figures: Figures, whole_org: bool) -> RangeSum:
        events = EventSum(created=figures.created, delivered=figures.delivered, failed=figures.failed)
        return cls(
            events=events if whole_org else None,
            deliveries=DeliverySum(created=figures.deliveries, delivered=figures.succeeded, dead=figures.dead),
            attempts=AttemptSum(succeeded=figures.succeeded, retry=figures.retried, dead=figures.died),
            success_rate=success_rate(figures),
            failed_rate=failed_rate(figures) if whole_org else None,
            retry_attempts=[RetriesOut(retries=used, deliveries=n) for used, n in enumerate(figures.retries)],
            time_to_delivery=TimeSum.of(figures),
            time_to_delivery_buckets=[
                BucketOut(seconds=bound, deliveries=n)
                for bound, n in zip((*map(float, TTD_SECONDS), None), figures.ttd, strict=True)
            ],
            blocked_addresses=figures.blocked,
            late_settles=figures.late,
        )


class ReportOut(Shape):
    """A range of time, on a regular axis: the first step begins at `since`, the last one is still going on."""

    range: RangeName
    since: Timestamp
    until: Timestamp
    step_seconds: int
    sum: RangeSum
    series: SeriesOut

    @classmethod
    def of(cls, name: RangeName, report: Report, whole_org: bool) -> ReportOut:
        return cls(
            range=name,
            since=to_iso(report.axis.since),
            until=to_iso(report.axis.until),
            step_seconds=report.axis.step // SECOND,
            sum=RangeSum.of(report.sum, whole_org),
            series=SeriesOut.of(report, whole_org),
        )


class StatsAsked(BaseModel):
    model_config = Asked.model_config

    range: RangeName | None = None
    """With it, `report` tells what happened in that time."""
    endpoint_id: UUID | None = None
    """Only what concerns this endpoint, in `report`; of the last 24 hours, if there is no `range`."""


class StatsOut(Shape):
    """How much there is now. Counting stops at 10,000: what is named in `floors` is at least so much."""

    deliveries: DeliveryStats
    events: EventStats
    floors: list[str]
    oldest_due_at: Timestamp | None
    """Since when the first of the due deliveries has been due, but for those that are held."""
    report: ReportOut | None = None
    """What happened in the range that was asked for; exact, however much is stored."""

    @classmethod
    def of(cls, stats: Stats, report: ReportOut | None = None) -> StatsOut:
        counts = {name: getattr(stats, name) for name in ("retrying", "dead", "archived", "inbox", "failed")}
        return cls(
            deliveries=DeliveryStats(**{name: counts[name].value for name in DeliveryStats.model_fields}),
            events=EventStats(**{name: counts[name].value for name in EventStats.model_fields}),
            floors=[name for name, count in counts.items() if not count.exact],
            oldest_due_at=iso(stats.oldest_due_at),
            report=report,
        )


# -- the health of endpoints -------------------------------------------------------------------------------


class HealthAsked(Asked):
    range: RangeName = "24h"


class HealthOut(Shape):
    """How an endpoint fared in the range that was asked for, and how it stands now."""

    endpoint_id: UUID
    name: str
    state: StateName
    circuit: CircuitStateName
    delivered: int
    dead: int
    attempts: AttemptSum
    success_rate: Share | None
    time_to_delivery: TimeSum
    queue_depth: int
    dead_letters: int
    waiting_since: Timestamp | None
    """Since when the oldest of what waits has done so: since its acceptance, or its `deliver_at`. Exact where no more than
    500 wait."""

    @classmethod
    def of(cls, health: Health) -> HealthOut:
        recent = health.recent
        return cls(
            endpoint_id=health.endpoint.endpoint_id,
            name=health.endpoint.name,
            state=health.endpoint.state.value,
            circuit=health.circuit.state.value,
            delivered=recent.succeeded,
            dead=recent.dead,
            attempts=AttemptSum(succeeded=recent.succeeded, retry=recent.retried, dead=recent.died),
            success_rate=success_rate(recent),
            time_to_delivery=TimeSum.of(recent),
            queue_depth=health.now.now_open,
            dead_letters=health.now.now_dead,
            waiting_since=iso(health.waiting_since),
        )


class HealthsOut(Shape):
    endpoints: list[HealthOut]
    pagination: Pagination
