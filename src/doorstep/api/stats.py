"""Statistics, health and targets of endpoints, workers, metrics, and the health of this process."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import structs
from starlette.responses import Response

from doorstep.api.codec import all_of, position, whole
from doorstep.api.routing import ApiRequest, Routes
from doorstep.app import Doorstep
from doorstep.clock import SECOND
from doorstep.model.endpoint import Slo as Target
from doorstep.model.org import Permission
from doorstep.model.rollup import TTD_SECONDS, Figures
from doorstep.operations import reader
from doorstep.operations import stats as reporting
from doorstep.operations.shapes import shape, time, time_or_none
from doorstep.policy.reports import (
    WINDOWS,
    failed_rate,
    failed_rates,
    levels,
    response_time,
    response_times,
    success_rate,
    success_rates,
    time_to_delivery,
    times_to_delivery,
)
from doorstep.schemas import stats as schemas
from doorstep.schemas.accounts import Health
from doorstep.schemas.endpoints import Slo, SloIn
from doorstep.schemas.shape import ListQuery
from doorstep.telemetry import prometheus

routes = Routes("/v1")


@routes.get("/stats", Permission.LOOK, not_found=True, tags=["stats"])
async def read_stats(query: schemas.StatsQuery, request: ApiRequest) -> schemas.Stats:
    """Current counts of retries, dead letters and inbox events. With `range` or `endpoint_id`, the response also
    contains a report on that time range or that endpoint. The default range for an endpoint is 24 hours."""
    report, stats = await asyncio.gather(_reported(query, request), request.reader.stats(request.org_id))
    return _stats_shown(stats, report)


@routes.get("/stats/endpoints", Permission.LOOK, tags=["stats"])
async def list_health(query: schemas.HealthQuery, request: ApiRequest) -> schemas.EndpointHealthPage:
    """The health of each endpoint: success rate, response time, time to delivery, backlog, circuit. With `sort`, the
    order is that of the moment: an endpoint whose figures change between two pages may be listed twice or not at
    all."""
    reporter, window = request.components.reporter, WINDOWS[query.range]
    if query.sort is None:
        page, complete = await request.reader.endpoints(request.org_id, None, query.cursor, query.limit), True
    else:
        order = reporting.Order(query.sort, descending=query.order == "desc")
        endpoints, complete = await reporter.sortable(request.org_id)
        page = await reporter.sorted_page(request.org_id, window, endpoints, order, query.cursor, query.limit)
    healths = all_of(health_shown, await reporter.health_of(request.org_id, window, page.items))
    at = schemas.SortedPagination(query.limit, page.next, page.next is not None, complete)
    return schemas.EndpointHealthPage(healths, pagination=at)


@routes.get("/slo", Permission.LOOK, tags=["stats"])
async def list_slo(query: ListQuery, request: ApiRequest) -> schemas.EndpointSloPage:
    """Each endpoint compared with its target over 30 days, with its remaining error budget and burn rate."""
    page = await request.components.reporter.slo(request.org_id, query.cursor, query.limit)
    return schemas.EndpointSloPage(all_of(_service_level_shown, page.items), pagination=position(page, query.limit))


@routes.get("/slo/default", Permission.LOOK, tags=["stats"])
async def read_default_slo(request: ApiRequest) -> Slo:
    """The default target. It applies to endpoints without a target of their own."""
    return shape(Slo, await request.components.reporter.default_slo(request.org_id))


@routes.put("/slo/default", Permission.ACT, tags=["stats"])
async def change_default_slo(body: SloIn, request: ApiRequest) -> Slo:
    """Set the default target. It applies to endpoints without a target of their own."""
    reporter = request.components.reporter
    return shape(Slo, await reporter.set_default_slo(request.org_id, Target(**structs.asdict(body)), request.actor))


@routes.get("/workers", Permission.LOOK, default_org=True, tags=["workers"])
async def list_workers(request: ApiRequest) -> schemas.WorkerPage:
    """The worker processes of the installation: live ones, and those lost within the last day."""
    now = request.doorstep.clock.now()
    workers = [(one, "lost" if one.is_lost(now) else "alive") for one in await request.reader.workers()]
    return whole(schemas.WorkerPage, tuple(shape(schemas.Worker, worker, state=state) for worker, state in workers))


async def _reported(query: schemas.StatsQuery, request: ApiRequest) -> schemas.Report | None:
    if query.range is None and query.endpoint_id is None:
        return None
    range: schemas.Range = query.range or "24h"
    report = await request.components.reporter.report(request.org_id, WINDOWS[range], query.endpoint_id)
    return _report_shown(range, report, whole_org=query.endpoint_id is None)


# -- shapes: now -------------------------------------------------------------------------------------------------


def _stats_shown(stats: reader.Stats, report: schemas.Report | None) -> schemas.Stats:
    counts = {name: getattr(stats, name) for name in ("retrying", "dead", "archived", "inbox", "failed")}
    return schemas.Stats(
        deliveries=schemas.DeliveryStats(*(counts[name].value for name in schemas.DeliveryStats.__struct_fields__)),
        events=schemas.EventStats(*(counts[name].value for name in schemas.EventStats.__struct_fields__)),
        floors=tuple(name for name, count in counts.items() if not count.exact),
        circuits_open=stats.circuits_open,
        oldest_due_at=time_or_none(stats.oldest_due_at),
        report=report,
    )


def health_shown(health: reporting.Health) -> schemas.EndpointHealth:
    recent = health.recent
    return schemas.EndpointHealth(
        endpoint_id=health.endpoint.endpoint_id,
        name=health.endpoint.name,
        state=health.endpoint.state.value,
        circuit=health.circuit.state.value,
        delivered=recent.succeeded,
        dead=recent.dead,
        attempts=schemas.AttemptSum(recent.succeeded, recent.retried, recent.died),
        success_rate=success_rate(recent),
        time_to_delivery=_times_shown(recent),
        response_time=_responses_shown(recent),
        queue_depth=health.now.now_open,
        dead_letters=health.now.now_dead,
        waiting_since=time_or_none(health.waiting_since),
    )


def _service_level_shown(level: reporting.ServiceLevel) -> schemas.EndpointSlo:
    report = level.report
    return shape(
        schemas.EndpointSlo,
        report,
        endpoint_id=level.endpoint.endpoint_id,
        name=level.endpoint.name,
        target=shape(Slo, report.target),
        burn=schemas.Burn(report.burn["1h"], report.burn["6h"], report.burn["3d"]),
        waiting_since=time_or_none(level.waiting_since),
    )


# -- shapes: a range of time -------------------------------------------------------------------------------------


def _report_shown(name: schemas.Range, report: reporting.Report, whole_org: bool) -> schemas.Report:
    return schemas.Report(
        range=name,
        since=time(report.axis.since),
        until=time(report.axis.until),
        step_seconds=report.axis.step // SECOND,
        sum=_summary_shown(report.sum, whole_org),
        series=_series_shown(report, whole_org),
    )


def _summary_shown(figures: Figures, whole_org: bool) -> schemas.Summary:
    return schemas.Summary(
        events=schemas.EventSum(figures.created, figures.delivered, figures.failed) if whole_org else None,
        deliveries=schemas.DeliverySum(figures.deliveries, figures.succeeded, figures.dead),
        attempts=schemas.AttemptSum(figures.succeeded, figures.retried, figures.died),
        success_rate=success_rate(figures),
        failed_rate=failed_rate(figures) if whole_org else None,
        retry_attempts=tuple(schemas.RetriesUsed(used, n) for used, n in enumerate(figures.retries)),
        time_to_delivery=_times_shown(figures),
        time_to_delivery_buckets=tuple(
            schemas.TimeBucket(bound, n) for bound, n in zip((*map(float, TTD_SECONDS), None), figures.ttd, strict=True)
        ),
        response_time=_responses_shown(figures),
        blocked_addresses=figures.blocked,
        late_settles=figures.late,
    )


def _times_shown(figures: Figures) -> schemas.TimeSum:
    count = sum(figures.ttd)
    p50, p95, p99 = (time_to_delivery(figures, rank) for rank in (0.5, 0.95, 0.99))
    return schemas.TimeSum(p50, p95, p99, figures.ttd_ms / count / 1_000 if count else None)


def _responses_shown(figures: Figures) -> schemas.TimeSum:
    count = sum(figures.response)
    p50, p95, p99 = (response_time(figures, rank) for rank in (0.5, 0.95, 0.99))
    return schemas.TimeSum(p50, p95, p99, figures.response_us / count / SECOND if count else None)


def _series_shown(report: reporting.Report, whole_org: bool) -> schemas.Series:
    steps = report.steps
    return schemas.Series(
        events=schemas.EventSeries(*(tuple(steps[name]) for name in schemas.EventSeries.__struct_fields__))
        if whole_org
        else None,
        statuses=schemas.StatusSeries(
            *(_level(report, f"now_{name}") for name in schemas.StatusSeries.__struct_fields__)
        )
        if whole_org
        else None,
        deliveries=schemas.DeliverySeries(*(tuple(steps[name]) for name in ("deliveries", "succeeded", "dead"))),
        attempts=schemas.AttemptSeries(*(tuple(steps[name]) for name in ("succeeded", "retried", "died"))),
        success_rate=tuple(success_rates(steps)),
        failed_rate=tuple(failed_rates(steps)) if whole_org else None,
        time_to_delivery=schemas.TimeSeries(*map(tuple, times_to_delivery(steps, (0.5, 0.95, 0.99)))),
        response_time=schemas.TimeSeries(*map(tuple, response_times(steps, (0.5, 0.95, 0.99)))),
        queue_depth=_level(report, "now_open"),
        dead_letters=_level(report, "now_dead"),
    )


def _level(report: reporting.Report, name: str) -> tuple[int, ...]:
    return tuple(levels(getattr(report.now, name), report.steps[name]))


# -- health and metrics ------------------------------------------------------------------------------------------

health_routes = Routes("", "health")
"""The public routes for monitoring. They reveal only the health and the metrics. Monitors also use HEAD."""
_TEXT: dict[str, Any] = {
    "description": "Metrics",
    "content": {
        "text/plain": {
            "schema": {"type": "string"},
            "example": "# TYPE doorstep_events_created_total counter\ndoorstep_events_created_total 42.0\n",
        }
    },
}


@health_routes.get("/healthz", None)
async def live() -> Health:
    """Liveness: the process responds. The store is not checked, because restarting this process would not repair the
    store."""
    return Health("ok")


@health_routes.get("/readyz", None)
async def ready(doorstep: Doorstep) -> Health:
    """Readiness: this process and its store respond, and its disk has room. Otherwise, the response is a 503."""
    await doorstep.components.check_ready()
    return Health("ok")


@health_routes.get("/metrics", None, more={200: _TEXT})
async def read_metrics(doorstep: Doorstep) -> Response:
    """Counters, gauges and histograms of the whole installation in the Prometheus text format. They are read from
    the store at most once per second. While the store does not respond, the last values are returned."""
    seen = await doorstep.components.sampler.snapshot()
    timings = doorstep.telemetry.timings
    text = prometheus.text(seen, doorstep.components.load(), doorstep.clock.now(), timings)
    return Response(text, media_type=prometheus.CONTENT_TYPE)
