"""Floors: the index positions at which reads start as long as PostgreSQL cannot remove dead index entries.

A claimed delivery leaves a dead entry in the index of pending deliveries, and a forwarded message leaves one in the
index of the outbox. Usually the next read removes this entry. While another session keeps an old snapshot open, the
entry cannot be removed, and every read scans all entries that have died since that snapshot was taken. That takes 0.13
ms per thousand entries (measured).

Only in that case do reads start at a floor, below which no rows are expected. An occasional full read finds rows that
were committed late.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from doorstep.clock import MILLISECOND, Instant

SLOW_READS = 5
"""The number of slow full reads in a row after which floors are used. Fewer slow reads may just mean that the machine
is busy."""
FULL_PAUSE_SECONDS = 1.0
FULL_SHARE = 0.05
"""Full reads take at most this share of the time, however slow they are."""


class Floor:
    """Decides whether a floor is needed and when the next full read is due. Tests can replace the clock `elapsed`."""

    def __init__(self, elapsed: Callable[[], float] = time.monotonic) -> None:
        self._elapsed = elapsed
        self._slow_reads = 0
        self._next_full = 0.0

    @property
    def needed(self) -> bool:
        return self._slow_reads >= SLOW_READS

    @property
    def full_read_due(self) -> bool:
        return not self.needed or self._elapsed() >= self._next_full

    def _count(self, *, slow: bool) -> None:
        self._slow_reads = self._slow_reads + 1 if slow else 0

    def _pause(self, seconds: float) -> None:
        """Schedule the next full read, given how long the last one took."""
        self._next_full = self._elapsed() + max(FULL_PAUSE_SECONDS, seconds / FULL_SHARE)


class DueFloors(Floor):
    """A floor for each endpoint: the due time of its last claimed delivery. A full read is a sweep of all lanes."""

    SLOW_SECONDS = 0.008
    SLOW_SECONDS_PER_LANE = 50e-6
    """A sweep counts as slow if it takes longer than SLOW_SECONDS plus this time per lane. It normally takes about 1 ms
    plus 3 µs per lane; 60,000 dead entries add 9 ms."""
    SLACK: Instant = 250 * MILLISECOND
    """Floors stay at least this far in the past, because a delivery may be committed after its due time."""

    def __init__(self, elapsed: Callable[[], float] = time.monotonic) -> None:
        super().__init__(elapsed)
        self._floors: dict[int, Instant] = {}

    @property
    def floors(self) -> Mapping[int, Instant]:
        """The due time from which to search each known lane, by the key of the lane's endpoint."""
        return self._floors

    def of(self, endpoint_key: int) -> Instant:
        return self._floors.get(endpoint_key, 0)

    def swept(self, lanes: Sequence[tuple[int, Instant]], walked: int, seconds: float) -> None:
        """Record a sweep: the lanes that it returned, each with its first due time, how many it walked through, and how
        long it took."""
        self._count(slow=seconds > self.SLOW_SECONDS + walked * self.SLOW_SECONDS_PER_LANE)
        self._pause(seconds)
        self._floors = (self._floors | dict(lanes)) if self.needed else {}

    def claimed(self, taken: Sequence[tuple[int, Instant | None]], now: Instant) -> None:
        """Record claims. Each lane is claimed oldest first, so no older delivery is pending there, unless it was
        committed late."""
        limit = now - self.SLACK
        for endpoint_key, due_at in taken:
            if due_at is not None:
                self._floors[endpoint_key] = min(due_at, limit)


class OutboxFloor(Floor):
    """A floor for the outbox: the key up to which the outbox had been read `SLACK_SECONDS` ago."""

    SLOW_SECONDS = 0.003
    """A full read that finds nothing counts as slow if it takes longer than this. It normally takes 0.3 ms."""
    SLACK_SECONDS = 10.0
    """If a transaction commits more than this many seconds after it inserted a message, only the next full read finds
    the message."""

    def __init__(self, elapsed: Callable[[], float] = time.monotonic) -> None:
        super().__init__(elapsed)
        self._read: deque[tuple[float, int]] = deque()
        self._key = 0

    def now(self) -> int:
        """The key above which to read; 0 for a full read."""
        while self._read and self._read[0][0] <= self._elapsed() - self.SLACK_SECONDS:
            self._key = max(self._key, self._read.popleft()[1])
        return 0 if self.full_read_due else self._key

    def found_nothing(self, floor: int, seconds: float) -> None:
        """Record a read that found nothing above `floor`, and how long it took."""
        if floor == 0:
            self._count(slow=seconds > self.SLOW_SECONDS)
            self._pause(seconds)

    def found(self, floor: int, last: int, seconds: float) -> None:
        """Record a read of rows above `floor`, up to the key `last`."""
        self._read.append((self._elapsed(), last))
        if floor == 0:
            self._pause(seconds)
