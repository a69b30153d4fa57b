"""The list of endpoints with their health: all endpoints, those with problems, or those with a backlog."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.responses import Response

from doorstep.console.fields import one_of
from doorstep.console.formatting import plural, share
from doorstep.console.request import PageRequest, Pages
from doorstep.errors import InvalidInput
from doorstep.model.endpoint import CircuitState, Endpoint, EndpointState
from doorstep.model.listing import Page
from doorstep.model.rollup import Figures
from doorstep.operations.reader import Place, page_of_sorted
from doorstep.operations.stats import SORTED_MAX, Health, Order
from doorstep.policy.reports import WINDOWS, response_time, success_rate, time_to_delivery

PAGES = Pages("/endpoints")
_LIMIT = 50
_LOOKED_AT_MAX = 500
"""The maximum number of endpoints examined for one page of a filtered list. When this limit is reached, the page may be
short even though more matches follow."""
_HOURS = 24


class Row(NamedTuple):
    """One endpoint in the list."""

    health: Health
    trend: list[Figures]
    """The endpoint's figures for each hour, such as the number of attempts."""
    trouble: Trouble

    @property
    def host(self) -> str:
        return host_of(self.health.endpoint)

    @property
    def is_losing(self) -> bool:
        return is_losing(self.health.recent)

    @property
    def response_seconds(self) -> float | None:
        return response_time(self.health.recent, 0.95)

    @property
    def delivery_seconds(self) -> float | None:
        return time_to_delivery(self.health.recent, 0.95)

    @property
    def attempts(self) -> list[int]:
        return [hour.attempts for hour in self.trend]

    @property
    def failed(self) -> list[int]:
        """The number of failed attempts in each hour, retried or not."""
        return [hour.retried + hour.died for hour in self.trend]


COLUMNS = {
    "name": "Endpoint",
    "success_rate": "Success",
    "response_time": "Response p95",
    "time_to_delivery": "Delivery p95",
    "attempts": "Attempts",
    "queue_depth": "Waiting",
    "dead_letters": "Dead letters",
}
"""The columns by which the list can be sorted."""


@PAGES.get()
async def show(request: PageRequest) -> Response:
    order = _order(request)
    page, complete = await _found(request, order)
    return request.page(
        "endpoints.html",
        rows=await _rows(request, page.items),
        next=page.next,
        complete=complete or (order is None and page.next is not None),
        order=order,
        columns=COLUMNS,
        sorted_max=SORTED_MAX,
        states=list(EndpointState)[:3],
    )


def _order(request: PageRequest) -> Order | None:
    by = request.query.text("sort")
    order = request.query.text("order") or ("asc" if by == "name" else "desc")
    descending = one_of("order", order, {"asc": False, "desc": True})
    return None if by is None else Order(one_of("sort", by, {name: name for name in COLUMNS}), descending)


async def _rows(request: PageRequest, endpoints: Sequence[Endpoint]) -> list[Row]:
    reporter, ids = request.components.reporter, [one.endpoint_id for one in endpoints]
    healths = await reporter.health_of(request.org_id, LATELY, endpoints)
    trends = await reporter.trends(request.org_id, ids, _HOURS)
    return [Row(one, trends[key], trouble_of(one)) for one, key in zip(healths, ids)]


async def _found(request: PageRequest, order: Order | None) -> tuple[Page[Endpoint], bool]:
    """A page of the matching endpoints, and whether all candidates were examined."""
    with_backlog, complete = request.query.flag("waiting"), True
    placed: list[tuple[Place, Endpoint]]
    if request.query.flag("trouble"):
        healths, complete = await unhealthy(request)
        placed = [(by_trouble(one), one.endpoint) for one in healths if one.now.now_open or not with_backlog]
    elif with_backlog:
        placed = [(one.place, one.endpoint) for one in await request.reader.waiting(request.org_id)]
    elif order is not None:
        chosen, complete = await request.components.reporter.sortable(request.org_id, _matcher(request))
        placed = [((), one) for one in chosen]
    else:
        return await _walked(request), True
    return await _page(request, placed, order), complete


async def _page(request: PageRequest, placed: Sequence[tuple[Place, Endpoint]], order: Order | None) -> Page[Endpoint]:
    """The page of matching endpoints that starts after the cursor. The list is sorted in memory."""
    matches, cursor = _matcher(request), request.query.text("cursor")
    matching = [one for one in placed if matches(one[1])]
    if order is None:
        keys = 1 if request.query.flag("trouble") else 2
        return page_of_sorted(matching, keys, cursor, _LIMIT)
    endpoints = [endpoint for _, endpoint in matching]
    return await request.components.reporter.sorted_page(request.org_id, LATELY, endpoints, order, cursor, _LIMIT)


async def _walked(request: PageRequest) -> Page[Endpoint]:
    """A page of endpoints from the store. The store can filter only by state, so this function does the filtering by
    name. It examines at most _LOOKED_AT_MAX endpoints."""
    matches, cursor, found, looked_at = _matcher(request), request.query.text("cursor"), list[Endpoint](), 0
    while looked_at < _LOOKED_AT_MAX and len(found) < _LIMIT:
        page = await request.reader.endpoints(request.org_id, _state(request), cursor, _LIMIT)
        found += filter(matches, page.items)
        looked_at += _LIMIT
        cursor = page.next
        if cursor is None:
            break
    return Page(tuple(found), cursor)


def _matcher(request: PageRequest) -> Callable[[Endpoint], bool]:
    """The filter by the endpoint's state, and by its name or target."""
    state, name = _state(request), (request.query.text("name") or "").casefold()
    return lambda one: (
        state in (None, one.state) and (name in one.name.casefold() or name in one.destination.target.casefold())
    )


def _state(request: PageRequest) -> EndpointState | None:
    state = request.query.choice("state", EndpointState)
    if state is EndpointState.DELETED:
        raise InvalidInput("state", "deleted endpoints are not listed")
    return state


def host_of(endpoint: Endpoint) -> str:
    """The endpoint's host, or a description of its destination if it has no URL."""
    if endpoint.url is None:
        return endpoint.destination.description
    try:
        return urlsplit(endpoint.url).netloc or endpoint.url
    except ValueError:
        return endpoint.url


# -- which endpoints need attention ------------------------------------------------------------------------

LATELY = WINDOWS["24h"]
"""The time range over which the health of endpoints is measured."""
JUDGED_MAX = 200
"""The maximum number of endpoints examined for problems. Endpoints that are disabled or have an open circuit are
examined first, then those with the latest dead letters."""
_FAILING_BELOW = 0.95
"""The success rate below which an endpoint counts as failing. The built-in alert rule `failure_rate` has the same
limit: more than 5 % of the deliveries failed permanently."""
_RANK = {"disabled": 0, "open": 1, "half_open": 2, "failing": 3, "": 4}


class Trouble(NamedTuple):
    """The worst problem of an endpoint; `kind` is empty if it needs no attention."""

    kind: str = ""
    text: str = ""


class Unhealthy(NamedTuple):
    """The endpoints that need attention, the worst first."""

    healths: list[Health]
    complete: bool
    """Whether all candidates were examined."""


async def unhealthy(request: PageRequest) -> Unhealthy:
    """Finds the endpoints that need attention. The store selects the candidates, so that this function need not read
    every endpoint."""
    judged = await request.components.reporter.unhealthy(request.org_id, LATELY, JUDGED_MAX)
    found = [one for one in judged if trouble_of(one).kind]
    return Unhealthy(sorted(found, key=by_trouble), complete=len(judged) < JUDGED_MAX)


def by_trouble(health: Health) -> tuple[int, int]:
    """A sort key: endpoints are sorted by the rank of their trouble, then by the time they were created."""
    return _RANK[trouble_of(health).kind], health.endpoint.endpoint_id.int


def is_losing(recent: Figures) -> bool:
    """Whether too many of the finished deliveries failed permanently."""
    return recent.dead > 0 and (success_rate(recent) or 0) < _FAILING_BELOW


def trouble_of(health: Health) -> Trouble:
    """The worst problem of an endpoint. An endpoint is in trouble if it is disabled, its circuit is not closed, or it
    is failing. A pause does not count, because it is deliberate. A few failures do not count either, because they are
    retried."""
    endpoint, circuit, recent = health.endpoint, health.circuit, health.recent
    in_a_row = f"{plural(circuit.failures, 'failure')} in a row"
    if endpoint.state is EndpointState.DISABLED:
        return Trouble("disabled", endpoint.state_reason or "disabled")
    if circuit.state is not CircuitState.CLOSED:
        return Trouble(circuit.state.value, in_a_row)
    if is_losing(recent):
        return Trouble("failing", f"{share(recent.dead, recent.succeeded + recent.dead)} failed permanently")
    return Trouble("", in_a_row if circuit.failures else "")
