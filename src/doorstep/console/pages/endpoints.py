"""The endpoints: how each of them fares; all of them, or those in trouble, or those that something waits for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.responses import Response

from doorstep.console.endpoint_health import LATELY, Trouble, by_trouble, is_losing, trouble_of, troubled
from doorstep.console.page import Pages
from doorstep.console.request import PageRequest
from doorstep.errors import InvalidInput
from doorstep.model.endpoint import Endpoint, EndpointState
from doorstep.model.listing import Page
from doorstep.model.rollup import Figures
from doorstep.operations.stats import Health
from doorstep.policy.reports import time_to_delivery
from doorstep.stores import cursor as cursors

PAGES = Pages("/endpoints")
_LIMIT = 50
_LOOKED_AT_MAX = 500
"""Endpoints among which one page of a filter is looked for; those beyond are on the next page, which may be short."""
_HOURS = 24

Place = tuple[int, ...]
"""Where an endpoint stands in a list that is sorted here."""


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
    def is_losing(self) -> bool:
        return is_losing(self.health.recent)

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
async def show(visit: PageRequest) -> Response:
    page, complete = await _found(visit)
    rows = await _rows(visit, page.items)
    complete = complete or page.next is not None
    states = list(EndpointState)[:3]
    return visit.page("endpoints.html", rows=rows, next=page.next, complete=complete, states=states)


async def _rows(visit: PageRequest, endpoints: Sequence[Endpoint]) -> list[Row]:
    reporting, ids = visit.doorstep.components.reporter, [one.endpoint_id for one in endpoints]
    healths = await reporting.health_of(visit.org_id, LATELY, endpoints)
    trends = await reporting.trends(visit.org_id, ids, _HOURS)
    return [Row(one, trends[key], trouble_of(one)) for one, key in zip(healths, ids)]


async def _found(visit: PageRequest) -> tuple[Page[Endpoint], bool]:
    """A page of those that match, and whether the list has all of them."""
    in_trouble, waited_for = visit.query.flag("trouble"), visit.query.flag("waiting")
    if in_trouble:
        healths, complete = await troubled(visit)
        chosen = [one for one in healths if one.now.now_open or not waited_for]
        return _page(visit, [(by_trouble(one), one.endpoint) for one in chosen], 1), complete
    if waited_for:
        waiting = await visit.doorstep.components.reader.waiting(visit.org_id)
        return _page(visit, [(one.place, one.endpoint) for one in waiting], 2), True
    return await _walked(visit), True


def _page(visit: PageRequest, placed: Sequence[tuple[Place, Endpoint]], keys: int) -> Page[Endpoint]:
    """Of a list that was made at once, in the order of its places, which are so many numbers and an id: what matches and
    comes after the cursor."""
    wanted = _wanted(visit)
    after = cursors.read(visit.query.text("cursor"), *[cursors.KEY_MAX] * keys, cursors.ID_MAX)
    ahead = [one for one in placed if wanted(one[1]) and (after is None or one[0] > after)]
    more = cursors.write(*ahead[_LIMIT - 1][0]) if len(ahead) > _LIMIT else None
    return Page(tuple(endpoint for _, endpoint in ahead[:_LIMIT]), more)


async def _walked(visit: PageRequest) -> Page[Endpoint]:
    """The store knows of states only; for a name as many are looked at as can be."""
    wanted, cursor, found, looked_at = _wanted(visit), visit.query.text("cursor"), list[Endpoint](), 0
    while looked_at < _LOOKED_AT_MAX and len(found) < _LIMIT:
        page = await visit.doorstep.components.reader.endpoints(visit.org_id, _state(visit), cursor, _LIMIT)
        found += filter(wanted, page.items)
        looked_at += _LIMIT
        cursor = page.next
        if cursor is None:
            break
    return Page(tuple(found), cursor)


def _wanted(visit: PageRequest) -> Callable[[Endpoint], bool]:
    """What is asked for of an endpoint itself."""
    state, name = _state(visit), (visit.query.text("name") or "").casefold()
    return lambda one: (
        state in (None, one.state) and (name in one.name.casefold() or name in (one.url or "").casefold())
    )


def _state(visit: PageRequest) -> EndpointState | None:
    state = visit.query.choice("state", EndpointState)
    if state is EndpointState.DELETED:
        raise InvalidInput("state", "deleted endpoints are in no list")
    return state


def host_of(endpoint: Endpoint) -> str:
    """Where it is, in brief."""
    if endpoint.url is None:
        return f"handler {endpoint.handler}"
    try:
        return urlsplit(endpoint.url).netloc or endpoint.url
    except ValueError:
        return endpoint.url
