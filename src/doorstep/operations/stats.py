"""Beside the path: what happened over a range of time, how each endpoint fares, and how that compares to its target.

Everything comes from roll-ups (model/rollup.py): it costs the same whether a thousand events are stored or a million.
What takes long is asked for side by side, but not everything: each question has a connection of its own meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Mapping, Sequence
from typing import NamedTuple, TypeVar
from uuid import UUID

import msgspec

from doorstep.clock import SECOND, Clock, Instant
from doorstep.engine.coalesce import Shared
from doorstep.engine.directory import Directory
from doorstep.errors import StoreError
from doorstep.model.action import AuditEntry
from doorstep.model.alert import OPERATIONS_ORG
from doorstep.model.circuit import Circuit, CircuitState
from doorstep.model.endpoint import Endpoint, Slo
from doorstep.model.listing import Page
from doorstep.model.org import Org
from doorstep.model.rollup import HOUR, MINUTE, TTD, Figures, Span
from doorstep.operations.endpoint_rules import check_slo
from doorstep.operations.reader import Reader
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
    slo_of,
)
from doorstep.stores.store import Store

HEALTH = ("succeeded", "retried", "died", "dead", *TTD, "ttd_ms")
LEVELS = ("now_open", "now_dead")


class Report(NamedTuple):
    """A range of time, step by step."""

    axis: Axis
    steps: Columns
    sum: Figures
    """Of the whole range. The levels in it are by how much they changed."""
    now: Figures
    """Since ever, so that its levels are what there is now."""


class Health(NamedTuple):
    """How an endpoint fares."""

    endpoint: Endpoint
    recent: Figures
    """Over the range that was asked for; those of HEALTH alone."""
    now: Figures
    """Those of LEVELS alone."""
    circuit: Circuit
    waiting_since: Instant | None
    """Since when its oldest delivery waits; see Store.waiting_since."""


class Standing(NamedTuple):
    """An endpoint and its target."""

    endpoint: Endpoint
    report: SloReport
    waiting_since: Instant | None


class Reporter:
    def __init__(self, store: Store, directory: Directory, clock: Clock) -> None:
        self._store = store
        self._directory = directory
        self._clock = clock

    async def report(self, org_id: UUID, window: Window, endpoint_id: UUID | None = None) -> Report:
        """What happened in an organization, or to one of its endpoints; NotFound for one that it does not have."""
        axis = window.axis(self._clock.now())
        if endpoint_id is not None:
            await self._store.endpoint(org_id, endpoint_id)
        steps = columns(axis, await self._store.series(org_id, endpoint_id, window.span, axis.since, axis.until))
        return Report(axis, steps, added_up(steps), await self._now(org_id, endpoint_id))

    async def _now(self, org_id: UUID, endpoint_id: UUID | None) -> Figures:
        if endpoint_id is None:
            return await self._store.totals(org_id)
        return (await self._store.levels(org_id, [endpoint_id]))[endpoint_id]

    async def health(self, org_id: UUID, window: Window, cursor: str | None, limit: int) -> Page[Health]:
        """The endpoints in the order of their creation, each with how it fares."""
        page = await self._store.list_endpoints(org_id, None, cursor, limit)
        return Page(tuple(await self.health_of(org_id, window, page.items)), page.next)

    async def health_of(self, org_id: UUID, window: Window, endpoints: Sequence[Endpoint]) -> list[Health]:
        """How each of these fares."""
        ids = [one.endpoint_id for one in endpoints]
        recent, waiting = await asyncio.gather(
            self._over(org_id, ids, window.step * window.steps, HEALTH), self._waiting_since(org_id, ids)
        )
        levels = await self._store.levels(org_id, ids, LEVELS)
        circuits = await self._store.circuits(org_id, ids)
        return [
            Health(one, recent[key], levels[key], circuits.get(key) or Circuit(endpoint_id=key), waiting.get(key))
            for one, key in zip(endpoints, ids, strict=True)
        ]

    async def ailing(self, org_id: UUID, window: Window, limit: int) -> list[Health]:
        """The same of those that are cut off, or lost something over this range; if there are `limit`, there may be more."""
        span = window.step * window.steps
        until = self._end_of_this(HOUR)
        ids = await self._store.ailing(org_id, until - span, span // HOUR, limit)
        return await self.health_of(org_id, window, await self._store.these_endpoints(org_id, ids))

    async def trends(self, org_id: UUID, endpoint_ids: Sequence[UUID], hours: int) -> dict[UUID, list[Figures]]:
        """What happened to each of these endpoints hour by hour, the last of which is still going on."""
        axis = Window(Span.HOUR, HOUR, hours).axis(self._clock.now())
        found = await self._store.trends(org_id, endpoint_ids, Span.HOUR, axis.since, axis.until)
        return {key: on_axis(axis, points) for key, points in found.items()}

    async def slo(self, org_id: UUID, cursor: str | None, limit: int) -> Page[Standing]:
        """The endpoints in the order of their creation, each against its target."""
        page = await self._store.list_endpoints(org_id, None, cursor, limit)
        return Page(tuple(await self.standings(org_id, page.items)), page.next)

    async def standings(self, org_id: UUID, endpoints: Sequence[Endpoint]) -> list[Standing]:
        """Each of these against its target."""
        await self._directory.refresh()
        ids = [one.endpoint_id for one in endpoints]
        window, lately, waiting = await asyncio.gather(
            self._over(org_id, ids, BUDGET_WINDOW, BUDGET_FIGURES),
            self._lately(org_id, ids),
            self._waiting_since(org_id, ids),
        )
        org, now = self._directory.org(org_id), self._clock.now()
        ages = {key: (now - at) / SECOND for key, at in waiting.items()}
        return [
            Standing(one, _against(one, org, window, lately, ages), waiting.get(one.endpoint_id)) for one in endpoints
        ]

    async def _lately(self, org_id: UUID, endpoint_ids: Sequence[UUID]) -> dict[str, Mapping[UUID, Figures]]:
        """The sums of each burn window, by its name."""
        return {name: await self._over(org_id, endpoint_ids, span, BURN_FIGURES) for name, span in BURN_WINDOWS.items()}

    async def _waiting_since(self, org_id: UUID, endpoint_ids: Sequence[UUID]) -> Mapping[UUID, Instant]:
        """Without those whose every delivery is for later."""
        now, found = self._clock.now(), await self._store.waiting_since(org_id, endpoint_ids)
        return {key: at for key, at in found.items() if at <= now}

    async def _over(
        self, org_id: UUID, endpoint_ids: Sequence[UUID], span: Instant, names: tuple[str, ...]
    ) -> Mapping[UUID, Figures]:
        """The sums of the last so much, which ends with the hour that is going on (of an hour, with the minute): minutes
        at both ends of a longer range would be most of what is read, and hardly tell."""
        until = self._end_of_this(MINUTE if span <= HOUR else HOUR)
        return await self._store.figures(org_id, endpoint_ids, until - span, until, names)

    def _end_of_this(self, step: Instant) -> Instant:
        """When the minute or the hour that is going on will be over."""
        now = self._clock.now()
        return now - now % step + step

    # -- the organization's own target ---------------------------------------------------------------------

    async def default_slo(self, org_id: UUID) -> Slo:
        """What counts for endpoints that have no target of their own."""
        return (await self._org(org_id)).slo or Slo()

    async def set_default_slo(self, org_id: UUID, slo: Slo, actor: str) -> Slo:
        """From now on; audited."""
        check_slo(slo)
        org = await self._org(org_id)
        line = AuditEntry(
            at=self._clock.now(),
            org_id=org_id,
            actor=actor,
            action="slo.change",
            subjects=(str(org_id),),
            result=f"success {slo.success:g}, p95 {slo.p95_seconds:g} s, oldest {slo.oldest_seconds:g} s",
        )
        await self._store.put_org(msgspec.structs.replace(org, slo=slo), line)
        await self._directory.reload()
        return slo

    async def _org(self, org_id: UUID) -> Org:
        await self._directory.refresh()
        await self._directory.check_org(org_id)  # a new one changes no routing, so a refresh may not see it
        org = self._directory.org(org_id)
        assert org is not None, "it was just looked up"
        return org


def _against(
    endpoint: Endpoint,
    org: Org | None,
    window: Mapping[UUID, Figures],
    recent: Mapping[str, Mapping[UUID, Figures]],
    ages: Mapping[UUID, float],
) -> SloReport:
    key = endpoint.endpoint_id
    lately = {name: figures[key] for name, figures in recent.items()}
    return against(slo_of(endpoint, org), window[key], lately, ages.get(key))


class EndpointFigures(NamedTuple):
    """One endpoint."""

    endpoint: Endpoint
    figures: Figures
    circuit_open: bool


class Busiest:
    """Up to `most` endpoints: those with the most deliveries since ever, so that they hardly change."""

    def __init__(self, store: Store, directory: Directory, most: int) -> None:
        self._store = store
        self._directory = directory
        self._most = most
        self._chosen: Sequence[UUID] = ()
        self._chosen_at: Instant = 0

    async def figures(self, now: Instant) -> tuple[EndpointFigures, ...]:
        """The busiest first; nothing if none are wanted."""
        if not self._most:
            return ()
        if not self._chosen or not 0 <= now - self._chosen_at < MINUTE:  # the clock may be set back
            self._chosen, self._chosen_at = await self._store.busiest(self._most), now
        known = [endpoint for key in self._chosen if (endpoint := self._directory.endpoint(key))]
        return await self._of(known) if known else ()

    async def _of(self, endpoints: Sequence[Endpoint]) -> tuple[EndpointFigures, ...]:
        ids = [one.endpoint_id for one in endpoints]
        figures, circuits = await self._store.levels(None, ids), await self._store.circuits(None, ids)
        return tuple(
            EndpointFigures(one, figures[key], _is_open(circuits.get(key)))
            for one, key in zip(endpoints, ids, strict=True)
        )


def _is_open(circuit: Circuit | None) -> bool:
    return circuit is not None and circuit.state is not CircuitState.CLOSED


T = TypeVar("T")

_SAMPLED_EVERY: Instant = SECOND
_STORE_SECONDS_MAX = 2.0


class Load(NamedTuple):
    """What one process has in its hands."""

    accepts_waiting: int
    places_in_use: int


class Snapshot(NamedTuple):
    """How everything stood at one moment."""

    taken_at: Instant
    totals: Figures
    """Of all organizations; what channels are sent is apart, because it is in nobody's lists."""
    circuits: Mapping[CircuitState, int]
    waiting_endpoints: int
    oldest_due_seconds: float
    messages: Figures = Figures()
    """What channels are sent."""
    endpoints: tuple[EndpointFigures, ...] = ()


class Sampler:
    """The latest snapshot. A store that does not answer leaves the one before, which then grows old."""

    def __init__(self, store: Store, reading: Reader, clock: Clock, busiest: Busiest) -> None:
        self._store = store
        self._reading = reading
        self._clock = clock
        self._busiest = busiest
        self._shared = Shared()
        self._asked_at: Instant = -_SAMPLED_EVERY
        self._latest: Snapshot | None = None

    async def snapshot(self) -> Snapshot | None:
        """None if the store has never answered yet."""
        await self._shared.ask("snapshot", self._refresh)
        return self._latest

    async def _refresh(self) -> None:
        now = self._clock.now()
        if 0 <= now - self._asked_at < _SAMPLED_EVERY:  # the clock follows the store's, which may be set back
            return
        self._asked_at = now
        if (seen := await _soon(self._take(now))) is None:
            return
        # By itself: endpoints must not cost what is told of the whole. Those that cannot be read are left out, because
        # figures of before would be told as if they were of now.
        self._latest = seen._replace(endpoints=await _soon(self._busiest.figures(now)) or ())

    async def _take(self, now: Instant) -> Snapshot:
        backlog = await self._reading.backlog()
        due_at = backlog.oldest_due_at
        return Snapshot(
            taken_at=now,
            totals=await self._store.totals(),
            circuits=await self._store.circuit_counts(),
            waiting_endpoints=backlog.endpoints,
            oldest_due_seconds=0.0 if due_at is None else max(0, now - due_at) / SECOND,
            messages=await self._store.totals(OPERATIONS_ORG),
        )


async def _soon(asked: Awaitable[T]) -> T | None:
    """What the store answers, unless that takes it too long."""
    with contextlib.suppress(StoreError, TimeoutError):
        return await asyncio.wait_for(asked, _STORE_SECONDS_MAX)
    return None
