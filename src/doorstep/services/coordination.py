"""How processes that share a store coordinate: heartbeats show that a process is alive, and locks ensure that only one
process at a time runs a task. Deliveries depend on neither, because each delivery has its own lease."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Collection, Sequence

from msgspec.structs import replace

from doorstep import __version__
from doorstep.clock import SECOND, Clock, Instant, seconds
from doorstep.model.claim import HEARTBEAT_SECONDS, LOST_KEPT, WorkerEntry
from doorstep.stores.store import Delete, Put, Retention, Store, Task
from doorstep.telemetry.metrics import Load

_RECENTLY: Instant = 90 * SECOND
"""How far back a worker's locks count: it is listed with the tasks whose locks it held during this time. Most tasks
take only moments, and the least frequent task runs once a minute."""
_FORGET_EVERY: Instant = 600 * SECOND
_FORGET_BATCH = 500


IDLE_POLL_SECONDS = 10.0
"""How often an idle service looks for work on a store that announces it (`Features.announces_work`)."""


def poll_seconds(store: Store, seconds: float) -> float:
    """How often an idle service polls; `seconds` on a store that does not announce work."""
    return IDLE_POLL_SECONDS if store.features.announces_work else seconds


class TaskLock:
    """A lock on a task that only one process at a time should run. Its lease lets another process take over if the
    holder is killed. The lock only avoids duplicate work: if two processes run the task at the same time, no harm is
    done."""

    def __init__(self, store: Store, task: Task, holder: str, clock: Clock, lease_seconds: float) -> None:
        self.task = task
        self._store = store
        self._holder = holder
        self._clock = clock
        self._lease: Instant = seconds(lease_seconds)
        self._held_until: Instant = 0
        self.held_at: Instant = 0
        """When this process last had the lock; 0 if never."""

    @property
    def is_held(self) -> bool:
        """Whether the last `acquire` succeeded and no `release` followed; the lease may have expired since."""
        return self._held_until > 0

    @property
    def has_expired(self) -> bool:
        """Whether another process may have had the lock since the last `acquire`."""
        return self._held_until <= self._clock.now()

    async def acquire(self) -> bool:
        """Take the lock, or renew its lease once half of the lease is over. Returns False while another process has the
        lock."""
        now = self._clock.now()
        if not self._lease // 2 < self._held_until - now <= self._lease:  # the clock may be set back
            until = now + self._lease
            self._held_until = until if await self._store.acquire_lock(self.task, self._holder, now, until) else 0
        if self.is_held:
            self.held_at = now
        return self.is_held

    async def release(self) -> None:
        """Let another process take the lock immediately. Does nothing if the lock is not held."""
        if self.is_held:
            self._held_until = 0
            await self._store.release_lock(self.task, self._holder)


class Heartbeat:
    """Records, every few seconds, that this process is alive and how busy it is.

    A process that stops normally removes its entry. If a process is killed, its entry stays, and the age of the last
    heartbeat shows operators that the worker is lost.
    """

    name = "heartbeat"

    def __init__(
        self,
        store: Store,
        clock: Clock,
        name: str,
        slots: int,
        load: Callable[[], Load],
        handlers: Collection[str],
        locks: Sequence[TaskLock],
    ) -> None:
        """Create the Heartbeat when the process starts to deliver, because the entry shows the creation time of the
        Heartbeat as the start of the process."""
        self._store = store
        self._clock = clock
        self._load = load
        self._handlers = handlers
        self._locks = locks
        self._forget_at: Instant = 0
        self.wake = asyncio.Event()
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

    async def run_once(self) -> float | None:
        """Write one heartbeat. Every ten minutes, also remove workers that were lost more than a day ago."""
        await self._store.write([Put(document=self.current())])
        now = self._clock.now()
        if not 0 < self._forget_at - now <= _FORGET_EVERY:  # the clock may be set back
            cleaned = await self._store.clean(Retention(workers_before=now - LOST_KEPT), now, _FORGET_BATCH)
            self._forget_at = now + (0 if cleaned.workers == _FORGET_BATCH else _FORGET_EVERY)
        return HEARTBEAT_SECONDS

    async def remove(self) -> None:
        """Remove this process's entry when the process stops normally, so that it does not appear as lost."""
        await self._store.write([Delete(document=self.current())])

    def current(self) -> WorkerEntry:
        """This process's entry with current values."""
        now = self._clock.now()
        return replace(
            self._entry,
            seen_at=now,
            places_in_use=self._load().places_in_use,
            handlers=tuple(sorted(self._handlers)),
            tasks=tuple(lock.task for lock in self._locks if now - lock.held_at < _RECENTLY),
        )
