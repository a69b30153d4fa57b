"""The shapes of workers."""

from __future__ import annotations

from typing import Literal

from doorstep.api.schemas import CountedPagination, Shape, Timestamp
from doorstep.clock import Instant, to_iso
from doorstep.model.worker import WorkerEntry


class WorkerOut(Shape):
    """A process that delivers, as it last said of itself; it does so every 10 seconds."""

    name: str
    """As in the attempt log and in the logs; another one each time that a process starts."""
    state: Literal["alive", "lost"]
    """`lost`: not heard of for more than 35 seconds. What it held is due again when the leases end."""
    host: str
    pid: int
    version: str
    started_at: Timestamp
    seen_at: Timestamp
    places: int
    """How many attempts it runs at once, at most."""
    places_in_use: int
    handlers: list[str]
    """The Python handlers that it can run."""
    tasks: list[str]
    """Of what one process at a time does, what it did within the last minute and a half."""

    @classmethod
    def of(cls, worker: WorkerEntry, now: Instant) -> WorkerOut:
        return cls(
            name=worker.name,
            state="lost" if worker.is_lost(now) else "alive",
            host=worker.host,
            pid=worker.pid,
            version=worker.version,
            started_at=to_iso(worker.started_at),
            seen_at=to_iso(worker.seen_at),
            places=worker.places,
            places_in_use=worker.places_in_use,
            handlers=list(worker.handlers),
            tasks=list(worker.tasks),
        )


class WorkersOut(Shape):
    workers: list[WorkerOut]
    pagination: CountedPagination
