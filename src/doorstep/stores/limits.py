"""Limits that are the same in every store: page sizes, counts, bytes and rates."""

from __future__ import annotations

from collections.abc import Iterable

from doorstep.clock import SECOND, Instant

EXAMINED_MAX = 2_000
"""Index entries that a page is looked for in; when it has seen so many, it is given as it is, perhaps empty."""
COUNT_MAX = 10_000
"""Index entries that a count looks at; beyond, it is only a floor."""
WAITING_EXAMINED_MAX = 500
"""Waiting deliveries of an endpoint, those that are due first, among which the oldest is looked for. For 50 endpoints
with so many each, all of them for later, that takes 24 ms on SQLite, which is what their health may cost."""
GROUPS_COUNTED_MAX = 30_000
"""Index entries that the counts of all groups of a page look at together."""
DEATHS_COUNTED_MAX = 60_000
"""Index entries that are looked at to tell in which hours letters died, of all causes and hours together. One that has
more than its part of them is said to have just that many: a crowded hour is seen as such, whatever its number."""
GROUP_DEPTH = 1_000
"""Letters of a cause that are looked at for one of the wanted event type."""
GROUPS_TYPED_MAX = 6_000
"""Letters that are looked at so for all groups of a page together: each means to look at its event too, several times."""
INBOX_BYTES_MAX = 8 * 2**20
"""The payloads of one page of the inbox: it ends with the one that uses this up (stores/limits.py)."""
OUTBOX_BYTES_MAX = 8 * 2**20
"""The payloads that are read from the outbox at once, likewise."""


def fitting(sizes: Iterable[int], bytes_max: int | None) -> int:
    """How many of these may be taken, in their order: the last is the one that uses up `bytes_max`.

    So a payload longer than that is taken too, by itself, and nothing is ever too long to be delivered.
    """
    count = total = 0
    for size in sizes:
        if bytes_max is not None and total >= bytes_max:
            break
        count, total = count + 1, total + size
    return count


def admit(rate_per_second: float, next_at: Instant, now: Instant, wanted: int) -> tuple[int, Instant]:
    """How many of `wanted` claims the rate lets through at `now`, and the instant to remember for the next time."""
    interval = max(1, round(SECOND / rate_per_second))
    burst = max(1, int(rate_per_second / 10))
    start = max(next_at, now)
    room = (now + burst * interval - start) // interval
    admitted = max(0, min(wanted, room))
    return admitted, start + admitted * interval if admitted else next_at
