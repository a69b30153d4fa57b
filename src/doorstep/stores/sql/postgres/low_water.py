"""Low-water marks: from which due time on a lane has to be searched while PostgreSQL cannot clean up behind it.

A claimed delivery leaves a dead entry in the index of waiting ones. Usually the next scan removes it. While some
session keeps an old snapshot open it cannot, and every scan walks over all entries left since. Then, and only then,
each lane is searched from the last claimed due time on, with a full sweep now and again for what came in below.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from doorstep.clock import MILLISECOND, Instant

SLOW_SECONDS = 0.008
SLOW_SECONDS_PER_LANE = 50e-6
"""A sweep takes about 1 ms and 3 µs a lane, and 9 ms more after 60,000 dead entries."""
SLOW_SWEEPS = 5
"""So many slow sweeps in a row are no accident of a busy machine."""
SWEEP_PAUSE_SECONDS = 1.0
SWEEP_SHARE = 0.05
"""Sweeps take at most this share of the time, however slow they get."""
SLACK: Instant = 250 * MILLISECOND
"""Marks stay this far behind now: a commit may come later than the due time that it writes."""


class LowWater:
    """The marks of all lanes, by the key of the endpoint. `elapsed` is a monotonic clock, for tests to replace."""

    def __init__(self, elapsed: Callable[[], float] = time.monotonic) -> None:
        self._elapsed = elapsed
        self._slow_sweeps = 0
        self._next_sweep = 0.0
        self._marks: dict[int, Instant] = {}

    @property
    def needed(self) -> bool:
        return self._slow_sweeps >= SLOW_SWEEPS

    @property
    def sweep_due(self) -> bool:
        return not self.needed or self._elapsed() >= self._next_sweep

    @property
    def marks(self) -> Mapping[int, Instant]:
        """The lanes that are known, and from where to search them."""
        return self._marks

    def of(self, endpoint_key: int) -> Instant:
        return self._marks.get(endpoint_key, 0)

    def swept(self, lanes: Sequence[tuple[int, Instant]], seconds: float) -> None:
        """A sweep found these lanes with their first due times, and took this long."""
        slow = seconds > SLOW_SECONDS + len(lanes) * SLOW_SECONDS_PER_LANE
        self._slow_sweeps = self._slow_sweeps + 1 if slow else 0
        self._next_sweep = self._elapsed() + max(SWEEP_PAUSE_SECONDS, seconds / SWEEP_SHARE)
        self._marks = (self._marks | dict(lanes)) if self.needed else {}

    def claimed(self, taken: Sequence[tuple[int, Instant | None]], now: Instant) -> None:
        """These were claimed, oldest first within each lane: nothing older waits there, unless it came late."""
        limit = now - SLACK
        for endpoint_key, due_at in taken:
            if due_at is not None:
                self._marks[endpoint_key] = min(due_at, limit)
