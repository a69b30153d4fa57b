"""Beside the path: how everything stands, read off the store at most once a second, for whoever measures.

What is sampled is the store's own account of itself (model/rollup.py), so that each process tells the same, however many
there are and whatever became of those before them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from doorstep.clock import SECOND, Clock, Instant
from doorstep.errors import StoreError
from doorstep.model.channel import OPERATIONS_ORG
from doorstep.model.circuit import Circuit, CircuitState
from doorstep.model.endpoint import Endpoint
from doorstep.model.rollup import Figures
from doorstep.path.directory import Directory
from doorstep.path.reading import Reader
from doorstep.path.shared import Shared
from doorstep.stores.store import Store

_SAMPLED_EVERY: Instant = SECOND
_STORE_SECONDS_MAX = 2.0


class Load(NamedTuple):
    """What one process has in its hands."""

    accepts_waiting: int
    places_in_use: int


class EndpointFigures(NamedTuple):
    """One endpoint, where metrics are to tell endpoints apart."""

    endpoint: Endpoint
    figures: Figures
    circuit_open: bool


class Snapshot(NamedTuple):
    """How everything stood at one moment."""

    taken_at: Instant
    totals: Figures
    circuits: Mapping[CircuitState, int]
    waiting_endpoints: int
    oldest_due_seconds: float
    endpoints: tuple[EndpointFigures, ...] = ()


class Sampler:
    """The latest snapshot. A store that does not answer leaves the one before, which then grows old."""

    def __init__(
        self, store: Store, directory: Directory, reading: Reader, clock: Clock, endpoints_max: int = 0
    ) -> None:
        """Endpoints are told apart up to `endpoints_max` of them: those with the most deliveries."""
        self._store = store
        self._directory = directory
        self._reading = reading
        self._clock = clock
        self._endpoints_max = endpoints_max
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
        with contextlib.suppress(StoreError, TimeoutError):
            self._latest = await asyncio.wait_for(self._take(now), _STORE_SECONDS_MAX)

    async def _take(self, now: Instant) -> Snapshot:
        backlog = await self._reading.backlog()
        due_at = backlog.oldest_due_at
        return Snapshot(
            taken_at=now,
            totals=await self._store.totals(),
            circuits=await self._store.circuit_counts(),
            waiting_endpoints=backlog.endpoints,
            oldest_due_seconds=0.0 if due_at is None else max(0, now - due_at) / SECOND,
            endpoints=await self._busiest() if self._endpoints_max else (),
        )

    async def _busiest(self) -> tuple[EndpointFigures, ...]:
        by_org: dict[UUID, list[Endpoint]] = {}
        for endpoint in self._directory.endpoints:
            if endpoint.org_id != OPERATIONS_ORG:  # channels have lists of their own
                by_org.setdefault(endpoint.org_id, []).append(endpoint)
        found: list[EndpointFigures] = []
        for org_id, endpoints in by_org.items():
            found += await self._figures_of(org_id, endpoints)
        found.sort(key=lambda one: (-one.figures.deliveries, one.endpoint.endpoint_id))
        return tuple(found[: self._endpoints_max])

    async def _figures_of(self, org_id: UUID, endpoints: list[Endpoint]) -> list[EndpointFigures]:
        ids = [one.endpoint_id for one in endpoints]
        figures, circuits = await self._store.levels(org_id, ids), await self._store.circuits(org_id, ids)
        return [
            EndpointFigures(one, figures[key], _is_open(circuits.get(key)))
            for one, key in zip(endpoints, ids, strict=True)
        ]


def _is_open(circuit: Circuit | None) -> bool:
    return circuit is not None and circuit.state is not CircuitState.CLOSED
