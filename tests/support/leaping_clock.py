"""A clock that runs normally, and jumps forward by hours or days when a test asks for it."""

from __future__ import annotations

from doorstep.clock import AnchoredClock, Instant, seconds


class LeapingClock(AnchoredClock):
    """Give the same instance to everything that shares a store. It replaces the store's time and follows no clock."""

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
