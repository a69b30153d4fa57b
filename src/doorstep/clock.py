"""Instants and the clock that hands them out.

An instant is an integer: microseconds since the Unix epoch, UTC. Integers compare and add the same way
in Python, SQLite and PostgreSQL, and nothing has a time zone to get wrong. Text and datetimes exist only
at the edges (`to_iso`, `from_datetime`).
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import lru_cache
from typing import Protocol

Instant = int
SECOND: Instant = 1_000_000
MILLISECOND: Instant = 1_000
DAY: Instant = 86_400 * SECOND
LATEST: Instant = 253_402_300_800 * SECOND
"""The end of the year 9999: later instants cannot be written as dates."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    """Where the time comes from; tests hand in a fake one."""

    def now(self) -> Instant: ...


class AnchoredClock:
    """Wall time read once, then the monotonic clock: a jump of the wall clock moves nothing.

    `follow` re-anchors it to the time of a store, so that machines sharing a store share its time too. Set back by
    less than a second it stands still until the time has caught up, so that no history reads backwards; set back by
    more it steps, because to stand still for long would keep everything from becoming due.
    """

    def __init__(self) -> None:
        self._offset = time.time_ns() // 1_000 - self._monotonic()
        self._not_before: Instant = 0

    def now(self) -> Instant:
        return max(self._monotonic() + self._offset, self._not_before)

    def follow(self, store_now: Instant) -> Instant:
        """Adopt the store's time; returns by how much the clock moved."""
        handed_out = self.now()
        moved = store_now - handed_out
        self._offset = store_now - self._monotonic()
        self._not_before = handed_out if -SECOND < moved < 0 else 0
        return moved

    @staticmethod
    def _monotonic() -> Instant:
        return time.monotonic_ns() // 1_000


def seconds(value: float) -> Instant:
    """A span given in seconds, in microseconds."""
    return round(value * SECOND)


def to_datetime(instant: Instant) -> datetime:
    return datetime.fromtimestamp(instant // SECOND, UTC).replace(microsecond=instant % SECOND)


def from_datetime(value: datetime) -> Instant:
    """The instant of an aware datetime; a naive one is refused, because guessing its zone loses events."""
    if value.tzinfo is None:
        raise ValueError(f"a time needs a time zone, got {value.isoformat()}; add Z or an offset")
    delta = value - _EPOCH
    return (delta.days * 86_400 + delta.seconds) * SECOND + delta.microseconds


def to_iso(instant: Instant) -> str:
    """ISO 8601 in UTC with microseconds and a Z, as every API answer and log line has it."""
    whole, micros = divmod(instant, SECOND)
    return f"{_to_the_second(whole)}.{micros:06}Z"


def from_iso(text: str) -> Instant:
    """What `to_iso` put into words."""
    return from_datetime(datetime.fromisoformat(text))


@lru_cache(4_096)
def _to_the_second(whole: int) -> str:
    """Remembered, because a list has many times that lie close together: 0.4 µs instead of 2.2."""
    return datetime.fromtimestamp(whole, UTC).strftime("%Y-%m-%dT%H:%M:%S")
