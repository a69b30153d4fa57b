"""How much there is and what happened: `/v1/stats`, the health of endpoints, and their targets."""

from __future__ import annotations

import asyncio
from uuid import UUID

from doorstep.api.answers import all_of, position, time, time_or_none
from doorstep.api.endpoints import slo_shown, target_from
from doorstep.api.routing import Caller, Routes
from doorstep.app import Doorstep
from doorstep.clock import SECOND
from doorstep.model.rollup import TTD_SECONDS, Figures
from doorstep.operations import reader
from doorstep.operations import stats as reporting
from doorstep.policy.reports import (
    WINDOWS,
    Columns,
    failed_rate,
    failed_rates,
    levels,
    success_rate,
    success_rates,
    time_to_delivery,
    times_to_delivery,
)
from doorstep.schemas.endpoints import Slo, SloIn
from doorstep.schemas.shape import ListQuery
from doorstep.schemas.stats import (
    AttemptSeries,
    AttemptSum,
    Burn,
    DeliverySeries,
    DeliveryStats,
    DeliverySum,
    EndpointHealth,
    EndpointHealthPage,
    EndpointSlo,
    EndpointSloPage,
    EventSeries,
    EventStats,
    EventSum,
    HealthQuery,
    Range,
    Report,
    RetriesUsed,
    Series,
    Stats,
    StatsQuery,
    StatusSeries,
    Summary,
    TimeBucket,
    TimeSeries,
    TimeSum,
)

_RANGE_OF_ENDPOINT: Range = "24h"
"""Whoever names an endpoint wants to know how it did, also without a range."""


def stats_routes(doorstep: Doorstep) -> Routes:
    routes = Routes("/v1", "stats")

    @routes.get("/stats")
    async def read_stats(asked: StatsQuery, caller: Caller) -> Stats:
        """How much waits for a retry or in the inbox, or lies dead; with `range`, or an endpoint (24h), what happened then."""
        report, stats = await asyncio.gather(
            reported(asked, caller.org_id), doorstep.components.reader.stats(caller.org_id)
        )
        return _stats_shown(stats, report)

    @routes.get("/stats/endpoints")
    async def list_health(asked: HealthQuery, caller: Caller) -> EndpointHealthPage:
        """How each endpoint fares: success rate, time to delivery, what waits, its circuit."""
        page = await doorstep.components.reporter.health(caller.org_id, WINDOWS[asked.range], asked.cursor, asked.limit)
        return EndpointHealthPage(all_of(health_shown, page.items), position(page, asked.limit))

    @routes.get("/slo")
    async def list_slo(asked: ListQuery, caller: Caller) -> EndpointSloPage:
        """Each endpoint against its target over 30 days, what is left of its error budget, and how quickly that burns."""
        page = await doorstep.components.reporter.slo(caller.org_id, asked.cursor, asked.limit)
        return EndpointSloPage(all_of(_standing_shown, page.items), position(page, asked.limit))

    @routes.get("/slo/default")
    async def read_default_slo(caller: Caller) -> Slo:
        """The target that counts for endpoints without one of their own."""
        return slo_shown(await doorstep.components.reporter.default_slo(caller.org_id))

    @routes.put("/slo/default")
    async def change_default_slo(body: SloIn, caller: Caller) -> Slo:
        """Set the target that counts for endpoints without one of their own."""
        return slo_shown(
            await doorstep.components.reporter.set_default_slo(caller.org_id, target_from(body), caller.prefix)
        )

    async def reported(asked: StatsQuery, org_id: UUID) -> Report | None:
        range = asked.range or (_RANGE_OF_ENDPOINT if asked.endpoint_id is not None else None)
        if range is None:
            return None
        report = await doorstep.components.reporter.report(org_id, WINDOWS[range], asked.endpoint_id)
        return _report_shown(range, report, whole_org=asked.endpoint_id is None)

    return routes


# -- shapes: now -------------------------------------------------------------------------------------------------


def _stats_shown(stats: reader.Stats, report: Report | None) -> Stats:
    counts = {name: getattr(stats, name) for name in ("retrying", "dead", "archived", "inbox", "failed")}
    return Stats(
        deliveries=DeliveryStats(*(counts[name].value for name in DeliveryStats.__struct_fields__)),
        events=EventStats(*(counts[name].value for name in EventStats.__struct_fields__)),
        floors=tuple(name for name, count in counts.items() if not count.exact),
        oldest_due_at=time_or_none(stats.oldest_due_at),
        report=report,
    )


def health_shown(health: reporting.Health) -> EndpointHealth:
    recent = health.recent
    return EndpointHealth(
        endpoint_id=health.endpoint.endpoint_id,
        name=health.endpoint.name,
        state=health.endpoint.state.value,
        circuit=health.circuit.state.value,
        delivered=recent.succeeded,
        dead=recent.dead,
        attempts=AttemptSum(recent.succeeded, recent.retried, recent.died),
        success_rate=success_rate(recent),
        time_to_delivery=_times_shown(recent),
        queue_depth=health.now.now_open,
        dead_letters=health.now.now_dead,
        waiting_since=time_or_none(health.waiting_since),
    )


def _standing_shown(standing: reporting.Standing) -> EndpointSlo:
    report = standing.report
    return EndpointSlo(
        endpoint_id=standing.endpoint.endpoint_id,
        name=standing.endpoint.name,
        target=slo_shown(report.target),
        met=report.met,
        success_rate=report.success_rate,
        p95_seconds=report.p95_seconds,
        oldest_seconds=report.oldest_seconds,
        budget_left=report.budget_left,
        burn=Burn(report.burn["1h"], report.burn["6h"], report.burn["3d"]),
        waiting_since=time_or_none(standing.waiting_since),
    )


# -- shapes: a range of time -------------------------------------------------------------------------------------


def _report_shown(name: Range, report: reporting.Report, whole_org: bool) -> Report:
    return Report(
        range=name,
        since=time(report.axis.since),
        until=time(report.axis.until),
        step_seconds=report.axis.step // SECOND,
        sum=_summary_shown(report.sum, whole_org),
        series=_series_shown(report, whole_org),
    )


def _summary_shown(figures: Figures, whole_org: bool) -> Summary:
    return Summary(
        events=EventSum(figures.created, figures.delivered, figures.failed) if whole_org else None,
        deliveries=DeliverySum(figures.deliveries, figures.succeeded, figures.dead),
        attempts=AttemptSum(figures.succeeded, figures.retried, figures.died),
        success_rate=success_rate(figures),
        failed_rate=failed_rate(figures) if whole_org else None,
        retry_attempts=tuple(RetriesUsed(used, n) for used, n in enumerate(figures.retries)),
        time_to_delivery=_times_shown(figures),
        time_to_delivery_buckets=tuple(
            TimeBucket(bound, n) for bound, n in zip((*map(float, TTD_SECONDS), None), figures.ttd, strict=True)
        ),
        blocked_addresses=figures.blocked,
        late_settles=figures.late,
    )


def _times_shown(figures: Figures) -> TimeSum:
    count = sum(figures.ttd)
    p50, p95, p99 = (time_to_delivery(figures, rank) for rank in (0.5, 0.95, 0.99))
    return TimeSum(p50, p95, p99, figures.ttd_ms / count / 1_000 if count else None)


def _series_shown(report: reporting.Report, whole_org: bool) -> Series:
    steps = report.steps
    return Series(
        events=EventSeries(*(tuple(steps[name]) for name in EventSeries.__struct_fields__)) if whole_org else None,
        statuses=StatusSeries(*(_level(report, f"now_{name}") for name in StatusSeries.__struct_fields__))
        if whole_org
        else None,
        deliveries=DeliverySeries(*(tuple(steps[name]) for name in ("deliveries", "succeeded", "dead"))),
        attempts=AttemptSeries(*(tuple(steps[name]) for name in ("succeeded", "retried", "died"))),
        success_rate=tuple(success_rates(steps)),
        failed_rate=tuple(failed_rates(steps)) if whole_org else None,
        time_to_delivery=_time_series(steps),
        queue_depth=_level(report, "now_open"),
        dead_letters=_level(report, "now_dead"),
    )


def _time_series(steps: Columns) -> TimeSeries:
    return TimeSeries(*map(tuple, times_to_delivery(steps, (0.5, 0.95, 0.99))))


def _level(report: reporting.Report, name: str) -> tuple[int, ...]:
    return tuple(levels(getattr(report.now, name), report.steps[name]))
