"""How many attempts this worker may run at the same time: all its slots, or fewer while the process lacks descriptors,
memory for sockets or local ports.

An attempt that such a shortage prevents counts for nothing: it uses up no retry, and the circuit does not hear of it.
Instead the worker claims nothing for a moment, and then as many attempts as were running when it fell short.
"""

from __future__ import annotations

from doorstep.clock import SECOND, Instant
from doorstep.telemetry.facts import Telemetry

_PAUSE_MIN: Instant = SECOND // 4
_PAUSE_MAX: Instant = 5 * SECOND
_GROWTH_EVERY: Instant = SECOND
_GROWTH_SHARE = 32
"""Each second without a shortage gives back this fraction of all slots, so that a worker whose limit is too low for its
slots does not run into it more than a few times a minute."""
_TOLD_EVERY: Instant = 60 * SECOND


class Capacity:
    def __init__(self, slots: int, telemetry: Telemetry) -> None:
        self._slots = self._limit = slots
        self._telemetry = telemetry
        self._pause = _PAUSE_MIN
        self._paused_at: Instant | None = None
        """When the worker last fell short; None if it has all its slots again."""
        self._grown_at: Instant = 0
        self._told_at: Instant | None = None
        self._untold = 0

    def slots(self, now: Instant) -> int:
        """The number of attempts that may run at `now`."""
        if self._paused_at is None:
            return self._slots
        steps = (now - self._grown_at) // _GROWTH_EVERY
        if steps:  # also if the clock was set back
            self._grown_at = now
            self._limit += max(0, steps) * max(1, self._slots // _GROWTH_SHARE)
            if self._limit >= self._slots:
                self._limit, self._pause, self._paused_at = self._slots, _PAUSE_MIN, None
        return self._limit

    def pause_left(self, now: Instant) -> Instant:
        """For how long the worker must not claim anything."""
        if self._paused_at is None or not self._paused_at <= now:
            return 0
        return max(0, self._paused_at + self._pause - now)

    def fall_short(self, shortage: str, prevented: int, running: int, now: Instant) -> None:
        """Claim less, because the shortage prevented this many attempts while others were running."""
        again = self._paused_at is not None and not running
        self._pause = min(2 * self._pause, _PAUSE_MAX) if again else _PAUSE_MIN
        self._limit = max(1, min(self._limit, running))
        self._paused_at = self._grown_at = now
        self._telemetry.timings.attempts_prevented += prevented
        self._untold += prevented
        if self._told_at is None or not 0 <= now - self._told_at < _TOLD_EVERY:
            message = f"attempts were postponed because {shortage}; raise the limit, or lower DOORSTEP_CONCURRENCY"
            self._telemetry.note(now, "error", message, attempts=self._untold, running=running)
            self._told_at, self._untold = now, 0
