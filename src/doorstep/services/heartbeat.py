"""The Heartbeat: tells the register every few seconds that this process is there, and how busy it is.

A process that ends in order leaves the register. One that was killed stays in it, unheard of: that is how people see
that it is lost. Its deliveries do not wait for anybody to look: their leases end by themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from doorstep.clock import DAY, SECOND, Clock, Instant
from doorstep.model.worker import BEAT_SECONDS, WorkerEntry
from doorstep.stores.protocol.workers import WorkerStore

KEPT: Instant = DAY
"""For so long a lost worker is remembered."""
_FORGET_EVERY: Instant = 600 * SECOND
_FORGET_BATCH = 500


class Heartbeat:
    name = "heartbeat"

    def __init__(self, store: WorkerStore, clock: Clock, present: Callable[[], WorkerEntry]) -> None:
        self._store = store
        self._clock = clock
        self._present = present
        self._forget_at: Instant = 0
        self.wake = asyncio.Event()

    async def run_once(self) -> float | None:
        """One beat; now and then those are forgotten who were lost long ago."""
        await self._store.beat(self._present())
        now = self._clock.now()
        if now >= self._forget_at:
            forgotten = await self._store.forget_workers(now - KEPT, _FORGET_BATCH)
            self._forget_at = now + (0 if forgotten == _FORGET_BATCH else _FORGET_EVERY)
        return BEAT_SECONDS

    async def leave(self) -> None:
        """It ends in order: nobody is to look for it."""
        await self._store.forget_worker(self._present().name)
