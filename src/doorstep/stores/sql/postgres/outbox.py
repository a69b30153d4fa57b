"""The outbox: what the forwarder does for every batch, and from where it looks while PostgreSQL cannot clean up behind it.

A forwarded row leaves a dead entry in the index. Usually the next look removes it. While some session keeps an old
snapshot open it cannot, and every look walks over all entries left since: 0.13 ms for a thousand (measured). Then, and
only then, looks begin where those of some seconds ago ended, with a full one now and again for what was committed late.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from doorstep.stores.sql.schema import POSTED

ANY = f"SELECT true FROM doorstep_outbox WHERE {POSTED} AND id > $1 ORDER BY id LIMIT 1"
CLEAR = "DELETE FROM doorstep_outbox WHERE uid = ANY ($1::uuid[])"

SLOW_SECONDS = 0.003
SLOW_LOOKS = 5
"""So many slow looks in a row are no accident of a busy machine: one takes 0.3 ms."""
FULL_PAUSE_SECONDS = 1.0
FULL_SHARE = 0.05
"""Full looks take at most this share of the time, however slow they get."""
SLACK_SECONDS = 10.0
"""A transaction that commits later than this after it sent waits for the next full look."""


class Floor:
    """The key below which nothing is expected. `elapsed` is a monotonic clock, for tests to replace."""

    def __init__(self, elapsed: Callable[[], float] = time.monotonic) -> None:
        self._elapsed = elapsed
        self._slow_looks = 0
        self._next_full = 0.0
        self._read: deque[tuple[float, int]] = deque()
        self._key = 0

    @property
    def needed(self) -> bool:
        return self._slow_looks >= SLOW_LOOKS

    def now(self) -> int:
        """Look for greater keys than this; 0 for a full look."""
        while self._read and self._read[0][0] <= self._elapsed() - SLACK_SECONDS:
            self._key = max(self._key, self._read.popleft()[1])
        return self._key if self.needed and self._elapsed() < self._next_full else 0

    def found_nothing(self, floor: int, seconds: float) -> None:
        """There is nothing above `floor`, and to find that took so long."""
        if floor == 0:
            self._slow_looks = self._slow_looks + 1 if seconds > SLOW_SECONDS else 0
            self._looked_at_all(seconds)

    def found(self, floor: int, last: int, seconds: float) -> None:
        """Rows above `floor` were read, up to the key `last`."""
        self._read.append((self._elapsed(), last))
        if floor == 0:
            self._looked_at_all(seconds)

    def _looked_at_all(self, seconds: float) -> None:
        self._next_full = self._elapsed() + max(FULL_PAUSE_SECONDS, seconds / FULL_SHARE)
