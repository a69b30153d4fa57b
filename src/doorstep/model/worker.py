"""A worker as the register knows it: one process that delivers, and what it last said of itself."""

from __future__ import annotations

from doorstep.clock import DAY, SECOND, Instant
from doorstep.model.record import Record

BEAT_SECONDS = 10.0
"""How often a worker says that it is there."""
LOST_AFTER: Instant = 35 * SECOND
"""A worker that was not heard of for so long missed three beats: it was killed, or cannot reach the store."""
KEPT: Instant = DAY
"""How long a lost worker stays in the register."""


class WorkerEntry(Record, frozen=True, kw_only=True):
    """Kept until the worker leaves in order; one that is lost, for a day."""

    name: str
    """As in leases, attempts and logs; another one each time that a process starts."""
    host: str
    pid: int
    version: str
    started_at: Instant
    seen_at: Instant
    places: int
    """How many attempts it runs at once, at most."""
    places_in_use: int = 0
    handlers: tuple[str, ...] = ()
    """The Python handlers that it can run; any worker reaches every URL."""
    tasks: tuple[str, ...] = ()
    """Of what one process at a time does (stores/protocol/tasks.py): what it did lately."""

    def is_lost(self, now: Instant) -> bool:
        return now - self.seen_at > LOST_AFTER
