"""The Meter: sends the metrics to a collector now and then, from one process at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from doorstep.clock import Clock, Instant, seconds
from doorstep.operations.stats import Sampler, Snapshot
from doorstep.stores.protocol.tasks import Task, TaskStore


class Exporter(Protocol):
    interval_seconds: float

    def export(self, seen: Snapshot) -> bool:
        """Whether it was taken. Blocking."""

    def close(self) -> None: ...


class MetricsExporter:
    """All processes have the same figures; were each to send them, a collector that adds up would count them twice."""

    name = "meter"

    def __init__(
        self,
        store: TaskStore,
        sampler: Sampler,
        exporter: Exporter,
        clock: Clock,
        holder: str,
        warn: Callable[[str], object],
    ) -> None:
        self._store = store
        self._sampler = sampler
        self._exporter = exporter
        self._clock = clock
        self._holder = holder
        self._warn = warn
        self._taken = True
        self.held_at: Instant = 0
        """When it last had the right to send."""
        self.wake = asyncio.Event()

    async def run_once(self) -> float | None:
        """Send one snapshot, if nobody else does."""
        now = self._clock.now()
        pause = self._exporter.interval_seconds
        if await self._store.hold(Task.METER, self._holder, now, now + 2 * seconds(pause)):
            self.held_at = now
            seen = await self._sampler.snapshot()
            if seen is not None:
                self._tell(await asyncio.to_thread(self._exporter.export, seen))
        return pause

    async def leave(self) -> None:
        """Let another process go on with it at once."""
        await asyncio.to_thread(self._exporter.close)
        await self._store.leave(Task.METER, self._holder)

    def _tell(self, taken: bool) -> None:
        """Once, when it begins."""
        if self._taken and not taken:
            self._warn("the collector does not take metrics; they are sent again every interval")
        self._taken = taken
