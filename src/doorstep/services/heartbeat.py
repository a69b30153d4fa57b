"""The Heartbeat: tells the register every few seconds that this process is there, and how busy it is.

A process that ends in order leaves the register. One that was killed stays in it, unheard of: that is how people see
that it is lost. Its deliveries do not wait for anybody to look: their leases end by themselves.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from msgspec.structs import replace

from doorstep import __version__
from doorstep.clock import SECOND, Clock, Instant
from doorstep.model.worker import BEAT_SECONDS, KEPT, WorkerEntry
from doorstep.operations.stats import Load
from doorstep.stores.protocol.tasks import Task
from doorstep.stores.protocol.workers import WorkerStore

_RECENTLY: Instant = 90 * SECOND
"""Most tasks are held for moments, the rarest once a minute: a worker that had one within this time is said to do it."""
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


class LeaseHolder(Protocol):
    """A service that holds a task now and then."""

    held_at: Instant
    """When it last held the task; 0 if never."""


class WorkerInfo:
    """This process's entry in the register; made when it begins to deliver, and brought up to date by each call."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        places: int,
        load: Callable[[], Load],
        handlers: Collection[str],
        holders: Sequence[tuple[Task, LeaseHolder]],
    ) -> None:
        self._clock = clock
        self._load = load
        self._handlers = handlers
        self._holders = holders
        now = clock.now()
        self._entry = WorkerEntry(
            name=name,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=__version__,
            started_at=now,
            seen_at=now,
            places=places,
        )

    def __call__(self) -> WorkerEntry:
        now = self._clock.now()
        return replace(
            self._entry,
            seen_at=now,
            places_in_use=self._load().places_in_use,
            handlers=tuple(sorted(self._handlers)),
            tasks=tuple(task for task, holder in self._holders if now - holder.held_at < _RECENTLY),
        )
