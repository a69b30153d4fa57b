"""Beside the path: the figures of the busiest endpoints, where metrics are to tell endpoints apart.

Who they are is asked once a minute (each time while there are none), so that a scrape looks at those few alone, however
many there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.circuit import Circuit, CircuitState
from doorstep.model.endpoint import Endpoint
from doorstep.model.rollup import MINUTE, Figures
from doorstep.path.directory import Directory
from doorstep.stores.store import Store


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
