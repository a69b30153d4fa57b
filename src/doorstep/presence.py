"""What a process that delivers says of itself in the register of workers."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from msgspec.structs import replace

from doorstep import __version__
from doorstep.clock import SECOND, Clock, Instant
from doorstep.model.worker import WorkerEntry
from doorstep.path.sampling import Load
from doorstep.stores.store import Task

_LATELY: Instant = 90 * SECOND
"""Most tasks are held for moments, the rarest once a minute: whoever had one within this time is said to do it."""


class Holder(Protocol):
    """Somebody who does a task now and then."""

    held_at: Instant
    """When it last had the right to; 0 if never."""


class Presence:
    """Made when the process begins to deliver; tells how it stands each time that it is asked."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        places: int,
        load: Callable[[], Load],
        handlers: Collection[str],
        holders: Sequence[tuple[Task, Holder]],
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
            tasks=tuple(task for task, holder in self._holders if now - holder.held_at < _LATELY),
        )
