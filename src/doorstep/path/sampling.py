"""Beside the path: how everything stands, read off the store at most once a second, for whoever measures.

What is sampled is the store's own account of itself (model/rollup.py), so that each process tells the same, however many
there are and whatever became of those before them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Mapping
from typing import NamedTuple, TypeVar

from doorstep.clock import SECOND, Clock, Instant
from doorstep.errors import StoreError
from doorstep.model.channel import OPERATIONS_ORG
from doorstep.model.circuit import CircuitState
from doorstep.model.rollup import Figures
from doorstep.path.busiest import Busiest, EndpointFigures
from doorstep.path.reading import Reader
from doorstep.path.shared import Shared
from doorstep.stores.store import Store

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
