"""The overview: how everything stands, what happened, and what needs somebody."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from starlette.responses import Response

from doorstep.clock import Instant
from doorstep.console.charting import RANGES, Charts
from doorstep.console.filters import one_of
from doorstep.console.page import Pages
from doorstep.console.trouble import JUDGED_MAX, LATELY, trouble_of
from doorstep.console.visit import Visit
from doorstep.model.alert import Alert, AlertFilter
from doorstep.model.bulk import Bulk
from doorstep.model.listing import Count, Queue
from doorstep.model.rollup import Figures
from doorstep.path.reporting import Health, Report
from doorstep.policy.alert_words import title_of
from doorstep.policy.reporting import WINDOWS, success_rate

PAGES = Pages()
_LATELY = 5
"""Minutes that the present rate is the mean of; the one that is going on is not among them."""
_SHOWN_MAX = 8


class Standing(NamedTuple):
    """The strip of numbers."""

    per_minute: float
    success: float | None
    """Over the last hour."""
    open: int
    oldest_due_at: Instant | None
    retrying: Count
    dead: int
    failing: Count
    """Of the endpoints that were looked at."""


class Trouble(NamedTuple):
    """What needs somebody."""

    endpoints: Sequence[Health]
    alerts: Sequence[tuple[Alert, str]]
    bulks: Sequence[Bulk]

    def __bool__(self) -> bool:
        return any(self)


@PAGES.get()
async def show(visit: Visit) -> Response:
    chosen = visit.query.text("range") or RANGES[0]
    reporting, org_id = visit.doorstep.reporting, visit.org_id
    window = one_of("range", chosen, WINDOWS)
    hour, report, trouble, health = await asyncio.gather(
        reporting.report(org_id, WINDOWS["1h"]),
        reporting.report(org_id, window),
        _trouble(visit),
        reporting.health(org_id, LATELY, None, JUDGED_MAX),
    )
    troubled = [one for one in health.items if trouble_of(one).kind]
    return visit.page(
        "overview.html",
        standing=await _standing(visit, hour, Count(len(troubled), exact=health.next is None)),
        trouble=trouble._replace(endpoints=troubled[:_SHOWN_MAX]),
        charts=_charts(report),
        health=health.items[:_SHOWN_MAX],
        more=len(health.items) > _SHOWN_MAX,
        range=chosen,
        ranges=RANGES,
    )


async def _standing(visit: Visit, hour: Report, failing: Count) -> Standing:
    reading, org_id = visit.doorstep.reading, visit.org_id
    lately: list[Figures] = hour.steps[-1 - _LATELY : -1]
    return Standing(
        per_minute=sum(step.succeeded for step in lately) / _LATELY,
        success=success_rate(hour.sum),
        open=hour.now.now_open,
        oldest_due_at=(await reading.backlog(org_id)).oldest_due_at,
        retrying=await visit.doorstep.store.count_retry_queue(org_id, Queue()),
        dead=hour.now.now_dead,
        failing=failing,
    )


async def _trouble(visit: Visit) -> Trouble:
    wanted = AlertFilter(is_open=True)
    alerts = await visit.doorstep.alerting.desk.alerts(visit.org_id, wanted, None, _SHOWN_MAX)
    live = [one for one in await visit.doorstep.store.live_bulks() if one.org_id == visit.org_id]
    return Trouble((), [(one, title_of(one)) for one in alerts.items], live[:_SHOWN_MAX])


def _charts(report: Report) -> list[object]:
    charts = Charts(report)
    return [
        charts.events(), charts.success(), charts.times(),
        charts.queue(), charts.failures(), charts.statuses(),
        charts.deliveries(), charts.attempts(), charts.retries(),
    ]  # fmt: skip
