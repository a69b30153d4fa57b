"""A clock that runs as every clock does, and leaps over hours and days when a test tells it to."""

from __future__ import annotations

from doorstep.clock import AnchoredClock, Instant, seconds


class LeapingClock(AnchoredClock):
    """Give the same one to all that share a store: it stands for the store's own time, and so follows nobody."""

    def __init__(self) -> None:
        super().__init__()
        self._leapt: Instant = 0

    def now(self) -> Instant:
        return super().now() + self._leapt

    def leap(self, span_seconds: float) -> None:
        self._leapt += seconds(span_seconds)

    def leap_to(self, instant: Instant) -> None:
        self._leapt += max(0, instant - self.now())

    def follow(self, store_now: Instant) -> Instant:
        return 0
