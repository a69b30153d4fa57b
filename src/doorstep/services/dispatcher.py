"""The Dispatcher claims and starts due deliveries; the Reclaimer settles the attempts of lost workers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from doorstep.clock import MILLISECOND, SECOND, Clock, Instant, seconds
from doorstep.engine.deliver import Deliverer
from doorstep.engine.directory import Directory

POLL_SECONDS = 0.5
"""How often the store is polled when nothing is known to be due. Wake-ups are only hints and may be lost, unless the
store notices all writes."""
_REFRESH_EVERY: Instant = SECOND // 4
"""How often to check whether another process changed an endpoint."""
_ROUND_PAUSE: Instant = 2 * MILLISECOND
"""The minimum time between two rounds while attempts are running, so that a busy worker claims hundreds of deliveries
at a time."""
RECLAIM_SLACK_SECONDS = 0.8
"""How long after its end the search for expired leases finds a lease that was made since the last search. Doorstep
promises to retry the work of a lost worker within its lease plus one second."""
_LOOK_SECONDS = 1.0
"""How often to look at the clock, which reads nothing from the store."""


class Dispatcher:
    name = "dispatcher"

    def __init__(
        self, deliverer: Deliverer, directory: Directory, clock: Clock, idle_poll_seconds: float = POLL_SECONDS
    ) -> None:
        self._deliverer = deliverer
        self._idle_poll_seconds = idle_poll_seconds
        self._directory = directory
        self._clock = clock
        self._refreshed_at: Instant = 0
        self._claimed_at: Instant = 0
        self.wake = asyncio.Event()

    async def run_once(self) -> float | None:
        """Claim and start due deliveries; returns the delay until the next round."""
        await self._pause_while_busy()
        now = self._clock.now()
        refreshed = not 0 <= now - self._refreshed_at < _REFRESH_EVERY  # the clock may be set back
        if refreshed:
            await self._directory.refresh()
            self._refreshed_at = now
        next_at = await self._deliverer.round()
        self._claimed_at = self._clock.now()
        poll = self._idle_poll_seconds if refreshed and self._deliverer.idle else POLL_SECONDS
        if next_at is None:
            return poll
        return min(max(0.0, (next_at - self._clock.now()) / SECOND), poll)

    async def _pause_while_busy(self) -> None:
        """Wait if the last round was less than `_ROUND_PAUSE` ago and attempts are running. If it was longer ago, as is
        usual with slow receivers, claim immediately."""
        pause = self._claimed_at + _ROUND_PAUSE - self._clock.now()
        if self._deliverer.buffer.busy and 0 < pause <= _ROUND_PAUSE:
            await asyncio.sleep(pause / SECOND)


class Reclaimer:
    name = "reclaimer"

    def __init__(
        self,
        look: Callable[[Instant], Awaitable[float]],
        reclaim: Callable[[Instant], Awaitable[int]],
        next_expiry: Callable[[Instant, float], Awaitable[float]],
        clock: Clock,
        wake_dispatcher: Callable[[], None],
        seconds_max: float,
    ) -> None:
        """`look` adjusts leases to a clock that was set (clock_watch.py); it must look about once a second. `next_expiry`
        returns how many seconds are left until a lease may end, but at most the given number. `seconds_max` is the
        longest time between two searches. A lease that is made in between, and that nothing announces, must not end more
        than `RECLAIM_SLACK_SECONDS` before the next search."""
        self._look = look
        self._reclaim = reclaim
        self._next_expiry = next_expiry
        self._clock = clock
        self._wake_dispatcher = wake_dispatcher
        self._seconds_max = seconds_max
        self._search_at: Instant = 0
        self.wake = asyncio.Event()

    async def run_once(self) -> float | None:
        """Settle one batch of attempts whose leases have expired. Runs again immediately until no more are found. With
        nothing expired, this is one read.

        Each step uses the same reading of the clock: a later one might be from after a jump.
        """
        now = self._clock.now()
        if held := await self._look(now):
            return min(held, RECLAIM_SLACK_SECONDS)
        left = (self._search_at - now) / SECOND
        if not 0 < left <= self._seconds_max:  # the clock may be set back
            left = await self._search(now)
            self._search_at = now + seconds(left)
        return min(left, _LOOK_SECONDS)

    def search_soon(self) -> None:
        """Search in the next round, because another worker may have made claims."""
        self._search_at = 0
        self.wake.set()

    async def _search(self, now: Instant) -> float:
        """Search, and return the seconds until the next search."""
        left = await self._next_expiry(now, self._seconds_max)
        if left > 0:
            return left
        if not await self._reclaim(now):
            return RECLAIM_SLACK_SECONDS  # another worker was faster
        self._wake_dispatcher()
        return 0.0
