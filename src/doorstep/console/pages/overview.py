"""The overview: current figures, items that need attention, and charts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from starlette.responses import Response

from doorstep.console.charts import RANGES, Chart, Charts
from doorstep.console.fields import one_of
from doorstep.console.pages.endpoints import LATELY, Unhealthy, by_trouble, trouble_of, unhealthy
from doorstep.console.request import PageRequest, Pages
from doorstep.model.alert import AlertFilter
from doorstep.model.listing import Count, RetryQueueFilter
from doorstep.operations.stats import Health, Report
from doorstep.policy.alert_messages import title_of
from doorstep.policy.reports import WINDOWS, success_rate

PAGES = Pages()
_RATE_MINUTES = 5
"""The number of complete minutes over which the current rate is averaged."""
_SHOWN_MAX = 8
_ALERTS_MAX = 50
"""The maximum number of open alerts that are read to find the unacknowledged ones."""


@PAGES.get()
async def show(request: PageRequest) -> Response:
    chosen = request.query.text("range") or RANGES[0]
    reporter, org_id = request.components.reporter, request.org_id
    window = one_of("range", chosen, WINDOWS)
    hour, report, found = await asyncio.gather(
        reporter.report(org_id, WINDOWS["1h"]), reporter.report(org_id, window), unhealthy(request)
    )
    health, more = await _worst_first(request, found.healths)
    return request.page(
        "overview.html",
        strip=await _strip(request, hour, Count(len(found.healths), exact=found.complete)),
        attention=await _attention(request, found),
        charts=_charts(report),
        more_charts=_more_charts(report) if request.query.text("charts") == "all" else [],
        health=health,
        more=more,
        range=chosen,
        ranges=RANGES,
    )


async def _strip(request: PageRequest, hour: Report, failing: Count) -> dict[str, object]:
    """The row of figures at the top of the page. The success rate covers the last hour."""
    reader, org_id = request.reader, request.org_id
    lately = hour.steps["succeeded"][-1 - _RATE_MINUTES : -1]
    return {
        "per_minute": sum(lately) / _RATE_MINUTES,
        "success": success_rate(hour.sum),
        "open": hour.now.now_open,
        "oldest_due_at": (await reader.backlog(org_id)).oldest_due_at,
        "retrying": await reader.count_retry_queue(org_id, RetryQueueFilter()),
        "dead": hour.now.now_dead,
        "failing": failing,
    }


async def _attention(request: PageRequest, found: Unhealthy) -> dict[str, object]:
    """The items that need attention: the first items of each kind, and how many more there are. `acknowledged` is true
    if there are also acknowledged alerts, which `alerts` does not include. `people` contains the names of the API keys
    that started the bulk operations."""
    open_alerts = await request.components.alerts.alerts(request.org_id, AlertFilter(is_open=True), None, _ALERTS_MAX)
    unacknowledged = [one for one in open_alerts.items if one.acknowledged_at is None]
    live = await request.components.bulk.live(request.org_id)
    return {
        "endpoints": [(one, trouble_of(one)) for one in found.healths[:_SHOWN_MAX]],
        "more_endpoints": _more(found.healths, found.complete),
        "alerts": [(one, title_of(one)) for one in unacknowledged[:_SHOWN_MAX]],
        "more_alerts": _more(unacknowledged, open_alerts.next is None),
        "acknowledged": len(unacknowledged) < len(open_alerts.items),
        "bulks": live[:_SHOWN_MAX],
        "more_bulks": _more(live, True),
        "people": await request.reader.key_names(request.org_id, (one.actor for one in live[:_SHOWN_MAX])),
    }


def _more(found: Sequence[object], complete: bool) -> Count:
    """How many items are not shown."""
    return Count(max(0, len(found) - _SHOWN_MAX), exact=complete)


async def _worst_first(request: PageRequest, unhealthy_ones: Sequence[Health]) -> tuple[list[Health], bool]:
    """At most _SHOWN_MAX endpoints, first the unhealthy ones and then the oldest of the others; and whether there are
    more."""
    oldest = await request.components.reporter.health(request.org_id, LATELY, None, _SHOWN_MAX)
    found = {one.endpoint.endpoint_id: one for one in (*oldest.items, *unhealthy_ones)}
    worst_first = sorted(found.values(), key=by_trouble)
    return worst_first[:_SHOWN_MAX], len(found) > _SHOWN_MAX or oldest.next is not None


def _charts(report: Report) -> list[Chart]:
    charts = Charts(report)
    return [charts.events(), charts.success(), charts.times(), charts.queue()]


def _more_charts(report: Report) -> list[Chart]:
    charts = Charts(report)
    return [charts.statuses(), charts.failures(), charts.deliveries(), charts.attempts(), charts.retries()]
