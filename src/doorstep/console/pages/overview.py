"""The overview: how everything stands, what happened, and what needs somebody."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from starlette.responses import Response

from doorstep.clock import Instant
from doorstep.console.charts import RANGES, Charts
from doorstep.console.endpoint_health import LATELY, Trouble, Troubled, by_trouble, trouble_of, troubled
from doorstep.console.fields import one_of
from doorstep.console.page import Pages
from doorstep.console.request import PageRequest
from doorstep.model.alert import Alert, AlertFilter
from doorstep.model.bulk import Bulk
from doorstep.model.listing import Count, RetryQueueFilter
from doorstep.operations.stats import Health, Report
from doorstep.policy.alert_messages import title_of
from doorstep.policy.reports import WINDOWS, success_rate

PAGES = Pages()
_RATE_MINUTES = 5
"""What the present rate is the mean of; the minute that is going on is not among them."""
_SHOWN_MAX = 8
_ALERTS_MAX = 50
"""Open alerts that are looked through for those that nobody has acknowledged."""


class Strip(NamedTuple):
    """The strip of numbers."""

    per_minute: float
    success: float | None
    """Over the last hour."""
    open: int
    oldest_due_at: Instant | None
    retrying: Count
    dead: int
    failing: Count


class Needs(NamedTuple):
    """What needs somebody: the first of each kind, and how many there are besides."""

    endpoints: Sequence[tuple[Health, Trouble]]
    more_endpoints: Count
    alerts: Sequence[tuple[Alert, str]]
    more_alerts: Count
    acknowledged: bool
    """There are alerts that somebody sees to already; they are not among these."""
    bulks: Sequence[Bulk]
    more_bulks: Count
    people: Mapping[str, str]
    """Who began them, by name."""

    def __bool__(self) -> bool:
        known = self.endpoints or self.alerts or self.bulks
        return bool(known) or not (self.more_endpoints.exact and self.more_alerts.exact)


@PAGES.get()
async def show(visit: PageRequest) -> Response:
    chosen = visit.query.text("range") or RANGES[0]
    reporting, org_id = visit.doorstep.components.reporter, visit.org_id
    window = one_of("range", chosen, WINDOWS)
    hour, report, found = await asyncio.gather(
        reporting.report(org_id, WINDOWS["1h"]), reporting.report(org_id, window), troubled(visit)
    )
    health, more = await _worst_first(visit, found.healths)
    return visit.page(
        "overview.html",
        strip=await _strip(visit, hour, Count(len(found.healths), exact=found.complete)),
        needs=await _needs(visit, found),
        charts=_charts(report),
        health=health,
        more=more,
        range=chosen,
        ranges=RANGES,
    )


async def _strip(visit: PageRequest, hour: Report, failing: Count) -> Strip:
    reading, org_id = visit.doorstep.components.reader, visit.org_id
    lately = hour.steps["succeeded"][-1 - _RATE_MINUTES : -1]
    return Strip(
        per_minute=sum(lately) / _RATE_MINUTES,
        success=success_rate(hour.sum),
        open=hour.now.now_open,
        oldest_due_at=(await reading.backlog(org_id)).oldest_due_at,
        retrying=await visit.doorstep.components.store.count_retry_queue(org_id, RetryQueueFilter()),
        dead=hour.now.now_dead,
        failing=failing,
    )


async def _needs(visit: PageRequest, found: Troubled) -> Needs:
    opened = await visit.doorstep.components.alerts.alerts(visit.org_id, AlertFilter(is_open=True), None, _ALERTS_MAX)
    unseen = [one for one in opened.items if one.acknowledged_at is None]
    live = [one for one in await visit.doorstep.components.store.live_bulks() if one.org_id == visit.org_id]
    return Needs(
        endpoints=[(one, trouble_of(one)) for one in found.healths[:_SHOWN_MAX]],
        more_endpoints=_besides(found.healths, found.complete),
        alerts=[(one, title_of(one)) for one in unseen[:_SHOWN_MAX]],
        more_alerts=_besides(unseen, opened.next is None),
        acknowledged=len(unseen) < len(opened.items),
        bulks=live[:_SHOWN_MAX],
        more_bulks=_besides(live, True),
        people=await visit.doorstep.components.reader.key_names(visit.org_id, (one.actor for one in live[:_SHOWN_MAX])),
    )


def _besides(found: Sequence[object], complete: bool) -> Count:
    """How many there are besides those that are shown."""
    return Count(max(0, len(found) - _SHOWN_MAX), exact=complete)


async def _worst_first(visit: PageRequest, needy: Sequence[Health]) -> tuple[list[Health], bool]:
    """Those in trouble, then the oldest others as long as there is room; and whether there are more."""
    oldest = await visit.doorstep.components.reporter.health(visit.org_id, LATELY, None, _SHOWN_MAX)
    found = {one.endpoint.endpoint_id: one for one in (*oldest.items, *needy)}
    worst_first = sorted(found.values(), key=by_trouble)
    return worst_first[:_SHOWN_MAX], len(found) > _SHOWN_MAX or oldest.next is not None


def _charts(report: Report) -> list[object]:
    charts = Charts(report)
    return [
        charts.events(), charts.success(), charts.times(),
        charts.queue(), charts.failures(), charts.statuses(),
        charts.deliveries(), charts.attempts(), charts.retries(),
    ]  # fmt: skip
