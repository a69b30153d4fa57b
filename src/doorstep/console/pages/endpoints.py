"""The endpoints: how each of them fares, those in trouble first if that is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.responses import Response

from doorstep.console.page import Pages
from doorstep.console.trouble import JUDGED_MAX, LATELY, Trouble, trouble_of
from doorstep.console.visit import Visit
from doorstep.errors import InvalidInput
from doorstep.model.endpoint import Endpoint, EndpointState
from doorstep.model.listing import Page
from doorstep.model.rollup import Figures
from doorstep.path.reporting import Health
from doorstep.policy.reporting import success_rate, time_to_delivery

PAGES = Pages("/endpoints")
_LIMIT = 50
_LOOKED_AT_MAX = 500
"""Endpoints among which one page of a filter is looked for; those beyond are on the next page, which may be short."""
_HOURS = 24


class Row(NamedTuple):
    """One endpoint in the list."""

    health: Health
    trend: list[Figures]
    """Hour by hour."""
    trouble: Trouble

    @property
    def host(self) -> str:
        return host_of(self.health.endpoint)

    @property
    def success(self) -> float | None:
        return success_rate(self.health.recent)

    @property
    def p95_seconds(self) -> float | None:
        return time_to_delivery(self.health.recent, 0.95)

    @property
    def attempts(self) -> list[int]:
        return [hour.attempts for hour in self.trend]

    @property
    def failed(self) -> list[int]:
        """Attempts that failed, whether they are tried again or not."""
        return [hour.retried + hour.died for hour in self.trend]


@PAGES.get()
async def show(visit: Visit) -> Response:
    page = await _found(visit)
    rows = await _rows(visit, page.items)
    if visit.query.flag("trouble"):
        rows.sort(key=lambda row: row.trouble.rank)
    return visit.page("endpoints.html", rows=rows, next=page.next, states=list(EndpointState)[:3])


async def _rows(visit: Visit, endpoints: Sequence[Endpoint]) -> list[Row]:
    reporting, ids = visit.doorstep.reporting, [one.endpoint_id for one in endpoints]
    healths = await reporting.health_of(visit.org_id, LATELY, endpoints)
    trends = await reporting.trends(visit.org_id, ids, _HOURS)
    return [Row(one, trends[key], trouble_of(one)) for one, key in zip(healths, ids)]


async def _found(visit: Visit) -> Page[Endpoint]:
    """A page of those that match. The store knows of states only; for the rest as many are looked at as can be."""
    state, name = _state(visit), (visit.query.text("name") or "").casefold()
    cursor, found, looked_at = visit.query.text("cursor"), list[Endpoint](), 0
    troubled = visit.query.flag("trouble")
    while looked_at < (JUDGED_MAX if troubled else _LOOKED_AT_MAX) and len(found) < _LIMIT:
        page = await visit.doorstep.reading.endpoints(visit.org_id, state, cursor, _LIMIT)
        named = [one for one in page.items if name in one.name.casefold() or name in (one.url or "").casefold()]
        found += await _troubled(visit, named) if troubled else named
        looked_at += _LIMIT
        cursor = page.next
        if cursor is None:
            break
    return Page(tuple(found), cursor)


def _state(visit: Visit) -> EndpointState | None:
    state = visit.query.choice("state", EndpointState)
    if state is EndpointState.DELETED:
        raise InvalidInput("state", "deleted endpoints are in no list")
    return state


async def _troubled(visit: Visit, endpoints: Sequence[Endpoint]) -> list[Endpoint]:
    healths = await visit.doorstep.reporting.health_of(visit.org_id, LATELY, endpoints)
    return [one.endpoint for one in healths if trouble_of(one).kind]


def host_of(endpoint: Endpoint) -> str:
    """Where it is, in brief."""
    if endpoint.url is None:
        return f"handler {endpoint.handler}"
    try:
        return urlsplit(endpoint.url).netloc or endpoint.url
    except ValueError:
        return endpoint.url
