"""A clock that stands still until a test moves it."""

from __future__ import annotations

from doorstep.clock import SECOND, Instant, seconds

BEGINNING: Instant = 1_750_000_000 * SECOND
"""A Sunday in June 2025; any fixed instant would do."""


class FakeClock:
    """Hand it in wherever a Clock is asked for."""

    def __init__(self, now: Instant = BEGINNING) -> None:
        self._now = now

    def now(self) -> Instant:
        """The time that it was moved to."""
        return self._now

    def advance(self, span_seconds: float) -> Instant:
        """Let time pass; returns the new now. A negative span is a clock that was set back."""
        self._now += seconds(span_seconds)
        return self._now

    def leap_to(self, instant: Instant) -> Instant:
        """Let time pass until an instant; one that has passed already changes nothing."""
        self._now = max(self._now, instant)
        return self._now
