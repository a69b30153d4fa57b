"""How much of something anybody may do a second: a bucket of tokens for each, in this process only."""

from __future__ import annotations

import math
from collections.abc import Hashable

from doorstep.clock import SECOND, Clock, Instant
from doorstep.errors import Overloaded

_BURST_SECONDS = 2.0
"""Who was quiet may catch up on this much at once."""
_BUCKETS_MAX = 10_000


class Throttle:
    """Several processes each count for themselves, so that together they let through as many times more."""

    def __init__(self, per_second: float, clock: Clock, refusal: str) -> None:
        """`refusal` is the sentence for who is over the rate, which is written in the place of its {}."""
        self._per_second = per_second
        self._full = max(1.0, per_second * _BURST_SECONDS)
        self._clock = clock
        self._refusal = refusal.format(f"{per_second:g}")
        self._buckets: dict[Hashable, tuple[float, Instant]] = {}

    def check(self, who: Hashable) -> None:
        """Take one token; Overloaded, with the time until there is one, where the bucket is empty."""
        if not self._per_second:
            return
        now = self._clock.now()
        tokens, at = self._buckets.get(who) or self._new_bucket(now)
        tokens = min(self._full, tokens + max(0, now - at) / SECOND * self._per_second)
        if tokens < 1:
            wait = math.ceil((1 - tokens) / self._per_second)
            raise Overloaded(self._refusal, max(1, wait))
        self._buckets[who] = (tokens - 1, now)

    def _new_bucket(self, now: Instant) -> tuple[float, Instant]:
        if len(self._buckets) >= _BUCKETS_MAX:
            self._buckets.clear()
        return self._full, now
