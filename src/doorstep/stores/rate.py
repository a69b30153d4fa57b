"""An endpoint's rate limit, the same arithmetic in every store: GCRA, one instant of memory per endpoint.

The remembered instant is when the next claim would be on time. Claims may run ahead of it by a tenth of a
second's worth (at least one claim), so that a batch is not cut into single claims, and never by more.
"""

from __future__ import annotations

from doorstep.clock import SECOND, Instant


def admit(rate_per_second: float, next_at: Instant, now: Instant, wanted: int) -> tuple[int, Instant]:
    """How many of `wanted` claims the rate lets through at `now`, and the instant to remember for the next time."""
    interval = max(1, round(SECOND / rate_per_second))
    burst = max(1, int(rate_per_second / 10))
    start = max(next_at, now)
    room = (now + burst * interval - start) // interval
    admitted = max(0, min(wanted, room))
    return admitted, start + admitted * interval if admitted else next_at
