"""Statistics: figures over a time range, the health of each endpoint, and its service level compared with its target.

Everything comes from roll-ups (model/rollup.py), so the cost does not depend on the number of stored events. Slow
queries run concurrently, but only a few at a time, because each occupies a connection.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar
from uuid import UUID

import msgspec

from doorstep.clock import SECOND, Clock, Instant
from doorstep.coalesce import Shared
from doorstep.engine.directory import Directory
from doorstep.errors import StoreError
from doorstep.model.action import audit_entry
from doorstep.model.alert import OPERATIONS_ORG
from doorstep.model.endpoint import Circuit, CircuitState, Endpoint, Slo
from doorstep.model.listing import BusiestEndpoints, EndpointFilter, Page, UnhealthyEndpoints
from doorstep.model.org import Org
from doorstep.model.rollup import HOUR, MINUTE, RESPONSE, TREND, TTD, Figures, Span
from doorstep.operations.endpoint_rules import check_slo
from doorstep.operations.reader import Place, Reader, circuits_of, page_of_sorted
from doorstep.policy.reports import (
    BUDGET_FIGURES,
    BUDGET_WINDOW,
    BURN_FIGURES,
    BURN_WINDOWS,
    Axis,
    Columns,
    SloReport,
    Window,
    added_up,
    against,
    columns,
    on_axis,
    response_time,
    slo_of,
    success_rate,
    time_to_delivery,
)
from doorstep.stores.limits import KEY_MAX
from doorstep.stores.store import Put, Store
from doorstep.telemetry.metrics import EndpointFigures, Snapshot

HEALTH = ("succeeded", "retried", "died", "dead", *TTD, "ttd_ms", *RESPONSE, "response_us")
LEVELS = ("now_open", "now_dead")


class Report(NamedTuple):
    """The figures of a time range, for each step of the axis and in total."""

    axis: Axis
    steps: Columns
    sum: Figures
    """The sum over the whole range. For a level, this sum is its change over the range."""
    now: Figures
    """The figures since the beginning. The levels among them are therefore the current levels."""


class Health(NamedTuple):
    """The health of an endpoint."""

    endpoint: Endpoint
    recent: Figures
    """The figures over the requested range. Only the figures in HEALTH are read."""
    now: Figures
    """The current levels. Only the figures in LEVELS are read."""
    circuit: Circuit
    waiting_since: Instant | None
    """When the endpoint's oldest open delivery began to wait; see Store.waiting_since."""


SORTED_MAX = 200
"""The maximum number of endpoints that are sorted for one page. For 500 endpoints, reading the figures of a day took
36 ms of CPU, and those of a month more than the 50 ms that a page may take."""


class Sort(NamedTuple):
    """A column by which endpoints can be sorted."""

    value: Callable[[Figures], float | None]
    figures: tuple[str, ...]
    """The figures that determine the value; only these are read."""
    level: bool = False
    """Whether the value is the current level, not one over the time range."""


SORTS: dict[str, Sort] = {
    "success_rate": Sort(success_rate, ("succeeded", "dead")),
    "response_time": Sort(lambda figures: response_time(figures, 0.95), RESPONSE),
    "time_to_delivery": Sort(lambda figures: time_to_delivery(figures, 0.95), TTD),
    "attempts": Sort(lambda figures: figures.attempts, ("succeeded", "retried", "died")),
    "queue_depth": Sort(lambda figures: figures.now_open, ("now_open",), level=True),
    "dead_letters": Sort(lambda figures: figures.now_dead, ("now_dead",), level=True),
}


class Order(NamedTuple):
    """How a list of endpoints is sorted."""

    by: str
    """`name`, or one of SORTS."""
    descending: bool = True


class ServiceLevel(NamedTuple):
    """The service level of an endpoint, compared with its target."""

    endpoint: Endpoint
    report: SloReport
    waiting_since: Instant | None


class EndpointBacklog(NamedTuple):
    open: int
    """Deliveries that are waiting or in progress."""
    waiting_since: Instant | None


class Reporter:
    def __init__(self, store: Store, directory: Directory, clock: Clock) -> None:
        self._store = store
        self._directory = directory
        self._clock = clock

    async def report(self, org_id: UUID, window: Window, endpoint_id: UUID | None = None) -> Report:
        """The figures of an organization or of one of its endpoints. Raises NotFound for an unknown endpoint."""
        axis = window.axis(self._clock.now())
        if endpoint_id is not None:
            await self._store.get(Endpoint, org_id, endpoint_id)
        series = await self._store.series(org_id, [endpoint_id], window.span, axis.since, axis.until)
        steps = columns(axis, series[endpoint_id])
        now = await self._store.figures(org_id, [endpoint_id])
        return Report(axis, steps, added_up(steps), now[endpoint_id])

    async def health(self, org_id: UUID, window: Window, cursor: str | None, limit: int) -> Page[Health]:
        """The health of the endpoints, in the order of creation."""
        page = await self._store.page(org_id, EndpointFilter(), cursor, limit)
        return Page(tuple(await self.health_of(org_id, window, page.items)), page.next)

    async def sortable(
        self, org_id: UUID, matches: Callable[[Endpoint], bool] = lambda _: True
    ) -> tuple[list[Endpoint], bool]:
        """The matching endpoints that can be sorted: at most SORTED_MAX, the oldest first; and whether these are all."""
        own = [one for one in await self._directory.endpoints_of(org_id) if matches(one)]
        own.sort(key=lambda one: one.endpoint_id)
        return own[:SORTED_MAX], len(own) <= SORTED_MAX

    async def sorted_page(
        self,
        org_id: UUID,
        window: Window,
        endpoints: Sequence[Endpoint],
        order: Order,
        cursor: str | None,
        limit: int,
    ) -> Page[Endpoint]:
        """One page of these endpoints, sorted. Endpoints without a value come last."""
        values: dict[UUID, float | None] = {}
        if order.by == "name":
            by_name = sorted(endpoints, key=lambda one: one.name.casefold())
            values.update((one.endpoint_id, number) for number, one in enumerate(by_name))
        else:
            sort, ids = SORTS[order.by], [one.endpoint_id for one in endpoints]
            figures = (
                await self._store.figures(org_id, ids, names=sort.figures)
                if sort.level
                else await self._over(org_id, ids, window.step * window.steps, sort.figures)
            )
            values.update((key, sort.value(figures[key])) for key in ids)
        placed: list[tuple[Place, Endpoint]] = [
            ((_rank(values[one.endpoint_id], order), one.endpoint_id.int), one) for one in endpoints
        ]
        return page_of_sorted(sorted(placed, key=lambda one: one[0]), 1, cursor, limit)

    async def health_of(self, org_id: UUID, window: Window, endpoints: Sequence[Endpoint]) -> list[Health]:
        """The health of these endpoints."""
        ids = [one.endpoint_id for one in endpoints]
        recent, waiting = await asyncio.gather(
            self._over(org_id, ids, window.step * window.steps, HEALTH), self._waiting_since(org_id, ids)
        )
        levels = await self._store.figures(org_id, ids, names=LEVELS)
        circuits = await circuits_of(self._store, org_id, ids)
        return [
            Health(one, recent[key], levels[key], circuits[key], waiting.get(key))
            for one, key in zip(endpoints, ids, strict=True)
        ]

    async def backlog_of(self, org_id: UUID, endpoint_id: UUID) -> EndpointBacklog:
        """How many deliveries of an endpoint are not finished, and when the oldest of them began to wait."""
        waiting = await self._store.waiting_since(org_id, [endpoint_id])
        levels = await self._store.figures(org_id, [endpoint_id], names=LEVELS)
        return EndpointBacklog(levels[endpoint_id].now_open, waiting.get(endpoint_id))

    async def unhealthy(self, org_id: UUID, window: Window, limit: int) -> list[Health]:
        """The health of endpoints with an open circuit or with dead letters in this range. If `limit` endpoints are
        returned, there may be more."""
        span = window.step * window.steps
        until = self._end_of_current(HOUR)
        query = UnhealthyEndpoints(since=until - span, hours=span // HOUR, limit=limit)
        ids = await self._store.find(org_id, query)
        return await self.health_of(org_id, window, await self._store.get_many(Endpoint, org_id, ids))

    async def trends(self, org_id: UUID, endpoint_ids: Sequence[UUID], hours: int) -> dict[UUID, list[Figures]]:
        """The figures of these endpoints hour by hour; the last hour is the current one."""
        axis = Window(Span.HOUR, HOUR, hours).axis(self._clock.now())
        found = await self._store.series(org_id, endpoint_ids, Span.HOUR, axis.since, axis.until, TREND)
        return {key: on_axis(axis, points) for key, points in found.items()}

    async def slo(self, org_id: UUID, cursor: str | None, limit: int) -> Page[ServiceLevel]:
        """The service levels of the endpoints, in the order of creation."""
        page = await self._store.page(org_id, EndpointFilter(), cursor, limit)
        return Page(tuple(await self.service_levels(org_id, page.items)), page.next)

    async def service_levels(self, org_id: UUID, endpoints: Sequence[Endpoint]) -> list[ServiceLevel]:
        """The service levels of these endpoints."""
        await self._directory.refresh()
        await self._directory.load((org_id,))
        ids = [one.endpoint_id for one in endpoints]
        window, lately, waiting = await asyncio.gather(
            self._over(org_id, ids, BUDGET_WINDOW, BUDGET_FIGURES),
            self._lately(org_id, ids),
            self._waiting_since(org_id, ids),
        )
        org, now = self._directory.org(org_id), self._clock.now()
        service_levels = []
        for endpoint, key in zip(endpoints, ids, strict=True):
            since = waiting.get(key)
            age_seconds = None if since is None else (now - since) / SECOND
            burn = {name: figures[key] for name, figures in lately.items()}
            report = against(slo_of(endpoint, org), window[key], burn, age_seconds)
            service_levels.append(ServiceLevel(endpoint, report, since))
        return service_levels

    async def _lately(self, org_id: UUID, endpoint_ids: Sequence[UUID]) -> dict[str, Mapping[UUID, Figures]]:
        """The sums of each burn window, by name."""
        return {name: await self._over(org_id, endpoint_ids, span, BURN_FIGURES) for name, span in BURN_WINDOWS.items()}

    async def _waiting_since(self, org_id: UUID, endpoint_ids: Sequence[UUID]) -> Mapping[UUID, Instant]:
        """When the oldest open delivery of each endpoint began to wait. Endpoints whose deliveries are all due later
        are left out."""
        now, found = self._clock.now(), await self._store.waiting_since(org_id, endpoint_ids)
        return {key: at for key, at in found.items() if at <= now}

    async def _over(
        self, org_id: UUID, endpoint_ids: Sequence[UUID], span: Instant, names: tuple[str, ...]
    ) -> Mapping[UUID, Figures]:
        """The sums over the last `span`. A span of at most an hour ends with the current minute; a longer one ends with
        the current hour. If it ended with the current minute too, the single minutes at both ends would be most of the
        rows to read, but would hardly change the sums."""
        until = self._end_of_current(MINUTE if span <= HOUR else HOUR)
        return await self._store.figures(org_id, endpoint_ids, until - span, until, names)

    def _end_of_current(self, step: Instant) -> Instant:
        """The end of the current minute or hour."""
        now = self._clock.now()
        return now - now % step + step

    # -- the default target of the organization ------------------------------------------------------------

    async def default_slo(self, org_id: UUID) -> Slo:
        """The target of endpoints that have no target of their own."""
        return (await self._org(org_id)).slo or Slo()

    async def set_default_slo(self, org_id: UUID, slo: Slo, actor: str) -> Slo:
        """Change the default target; audited."""
        check_slo(slo)
        org = await self._org(org_id)
        result = f"success {slo.success:g}, p95 {slo.p95_seconds:g} s, oldest {slo.oldest_seconds:g} s"
        entry = audit_entry(self._clock.now(), org_id, actor, "slo.change", org_id, result=result)
        await self._store.write([Put(document=msgspec.structs.replace(org, slo=slo))], entry)
        await self._directory.reload((org_id,))
        return slo

    async def _org(self, org_id: UUID) -> Org:
        await self._directory.refresh()
        await self._directory.check_org(org_id)
        org = self._directory.org(org_id)
        assert org is not None, "check_org has just found it"
        return org


def _rank(value: float | None, order: Order) -> int:
    """A value as a sort key that fits into a cursor: a whole number, precise to a millionth."""
    if value is None:
        return KEY_MAX
    scaled = min(round(value * SECOND), KEY_MAX - 1)
    return KEY_MAX - 1 - scaled if order.descending else scaled


class Busiest:
    """The figures of up to `most` endpoints. The endpoints with the most deliveries since the beginning are selected,
    so that the selection rarely changes."""

    def __init__(self, store: Store, directory: Directory, most: int) -> None:
        self._store = store
        self._directory = directory
        self._most = most
        self._selected: Sequence[UUID] = ()
        self._orgs: set[UUID] = set()
        self._selected_at: Instant = 0

    async def figures(self, now: Instant) -> tuple[EndpointFigures, ...]:
        """The figures of the selected endpoints, busiest first; empty if `most` is 0."""
        if not self._most:
            return ()
        if not self._selected or not 0 <= now - self._selected_at < MINUTE:  # the clock may be set back
            self._selected = await self._store.find(None, BusiestEndpoints(limit=self._most))
            self._orgs = {one.org_id for one in await self._store.get_many(Endpoint, None, self._selected)}
            self._selected_at = now
        await self._directory.load(self._orgs)
        endpoints = [endpoint for key in self._selected if (endpoint := self._directory.endpoint(key))]
        if not endpoints:
            return ()
        ids = [one.endpoint_id for one in endpoints]
        figures = await self._store.figures(None, ids)
        circuits = await circuits_of(self._store, None, ids)
        return tuple(
            EndpointFigures(one, figures[key], circuits[key].state is not CircuitState.CLOSED)
            for one, key in zip(endpoints, ids, strict=True)
        )


T = TypeVar("T")

_SAMPLED_EVERY: Instant = SECOND
_STORE_SECONDS_MAX = 2.0


class Sampler:
    """Takes snapshots of the metrics. While the store does not answer, the previous snapshot is kept, however old it
    is."""

    def __init__(self, store: Store, reader: Reader, clock: Clock, busiest: Busiest) -> None:
        self._store = store
        self._reader = reader
        self._clock = clock
        self._busiest = busiest
        self._shared = Shared()
        self._sampled_at: Instant = -_SAMPLED_EVERY
        self._latest: Snapshot | None = None

    async def snapshot(self) -> Snapshot | None:
        """The latest snapshot; None until the store has answered for the first time."""
        await self._shared.ask("snapshot", self._refresh)
        return self._latest

    async def _refresh(self) -> None:
        now = self._clock.now()
        if 0 <= now - self._sampled_at < _SAMPLED_EVERY:  # the clock follows the store's, which may be set back
            return
        self._sampled_at = now
        if (snapshot := await _in_time(self._take(now))) is None:
            return
        # The endpoints are read separately, so that an error here does not lose the totals. If they cannot be read,
        # they are left out, because old figures would look current.
        self._latest = snapshot._replace(endpoints=await _in_time(self._busiest.figures(now)) or ())

    async def _take(self, now: Instant) -> Snapshot:
        backlog = await self._reader.backlog()
        due_at = backlog.oldest_due_at
        return Snapshot(
            taken_at=now,
            totals=(await self._store.figures(None, [None]))[None],
            circuits=await self._store.circuit_counts(),
            waiting_endpoints=backlog.endpoints,
            oldest_due_seconds=0.0 if due_at is None else max(0, now - due_at) / SECOND,
            messages=(await self._store.figures(OPERATIONS_ORG, [None]))[None],
        )


async def _in_time(query: Awaitable[T]) -> T | None:
    """The answer of the store, or None if it fails or takes too long."""
    with contextlib.suppress(StoreError, TimeoutError):
        return await asyncio.wait_for(query, _STORE_SECONDS_MAX)
    return None
