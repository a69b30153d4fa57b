"""The Heartbeat: records every few seconds that this process is alive and how busy it is.

A process that stops normally removes its entry. If it is killed, its entry stays, and the old time shows operators that
the worker is lost. Its deliveries do not depend on this: their leases expire by themselves.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Collection, Sequence

from msgspec.structs import replace

from doorstep import __version__
from doorstep.clock import SECOND, Clock, Instant
from doorstep.model.claim import HEARTBEAT_SECONDS, LOST_KEPT, WorkerEntry
from doorstep.services.task_lock import TaskLock
from doorstep.stores.store import Delete, Put, Retention, Store
from doorstep.telemetry.metrics import Load

_RECENTLY: Instant = 90 * SECOND
"""A task is shown with the worker that held its lock within this time. Most tasks take only moments, and the least
frequent one runs once a minute."""
_FORGET_EVERY: Instant = 600 * SECOND
_FORGET_BATCH = 500


class Heartbeat:
    name = "heartbeat"

    def __init__(self, store: Store, clock: Clock, current: Callable[[], WorkerEntry]) -> None:
        self._store = store
        self._clock = clock
        self._current = current
        self._forget_at: Instant = 0
        self.wake = asyncio.Event()

    async def run_once(self) -> float | None:
        """Write one heartbeat. Every ten minutes, also remove workers that were lost more than a day ago."""
        await self._store.write([Put(document=self._current())])
        now = self._clock.now()
        if now >= self._forget_at:
            cleaned = await self._store.clean(Retention(workers_before=now - LOST_KEPT), now, _FORGET_BATCH)
            self._forget_at = now + (0 if cleaned.workers == _FORGET_BATCH else _FORGET_EVERY)
        return HEARTBEAT_SECONDS

    async def remove(self) -> None:
        """Remove this process's entry, because it stops normally and is not lost."""
        await self._store.write([Delete(document=self._current())])


class WorkerInfo:
    """Creates this process's entry when it starts to deliver. Each call returns the entry with current values."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        slots: int,
        load: Callable[[], Load],
        handlers: Collection[str],
        locks: Sequence[TaskLock],
    ) -> None:
        self._clock = clock
        self._load = load
        self._handlers = handlers
        self._locks = locks
        now = clock.now()
        self._entry = WorkerEntry(
            name=name,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=__version__,
            started_at=now,
            seen_at=now,
            places=slots,
        )

    def __call__(self) -> WorkerEntry:
        now = self._clock.now()
        return replace(
            self._entry,
            seen_at=now,
            places_in_use=self._load().places_in_use,
            handlers=tuple(sorted(self._handlers)),
            tasks=tuple(lock.task for lock in self._locks if now - lock.held_at < _RECENTLY),
        )
