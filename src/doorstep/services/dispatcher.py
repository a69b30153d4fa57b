"""The Dispatcher claims and starts due deliveries; the Reclaimer settles the attempts of lost workers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from doorstep.clock import MILLISECOND, SECOND, Clock, Instant
from doorstep.engine.deliver import Deliverer
from doorstep.engine.directory import Directory

_POLL_SECONDS = 0.5
"""How often the store is polled when nothing is known to be due. Wake-ups are only hints and may be lost."""
_REFRESH_EVERY: Instant = SECOND // 4
"""How often to check whether another process changed an endpoint."""
_ROUND_PAUSE: Instant = 2 * MILLISECOND
"""The minimum time between two rounds while attempts are running, so that a busy worker claims hundreds of deliveries
at a time."""
_RECLAIM_SECONDS = 0.5
"""How often to look for expired leases. Doorstep promises to retry the work of a lost worker within its lease plus one
second."""


class Dispatcher:
    name = "dispatcher"

    def __init__(self, deliverer: Deliverer, directory: Directory, clock: Clock) -> None:
        self._deliverer = deliverer
        self._directory = directory
        self._clock = clock
        self._refreshed_at: Instant = 0
        self._claimed_at: Instant = 0
        self.wake = asyncio.Event()

    async def run_once(self) -> float | None:
        """Claim and start due deliveries; returns the delay until the next round."""
        await self._pause_while_busy()
        now = self._clock.now()
        if now - self._refreshed_at >= _REFRESH_EVERY:
            await self._directory.refresh()
            self._refreshed_at = now
        next_at = await self._deliverer.round()
        self._claimed_at = self._clock.now()
        if next_at is None:
            return _POLL_SECONDS
        return min(max(0.0, (next_at - self._clock.now()) / SECOND), _POLL_SECONDS)

    async def _pause_while_busy(self) -> None:
        """Wait if the last round was less than `_ROUND_PAUSE` ago and attempts are running. If it was longer ago, as is
        usual with slow receivers, claim immediately."""
        pause = self._claimed_at + _ROUND_PAUSE - self._clock.now()
        if self._deliverer.buffer.busy and pause > 0:
            await asyncio.sleep(pause / SECOND)


class Reclaimer:
    name = "reclaimer"

    def __init__(self, reclaim: Callable[[], Awaitable[int]], wake_dispatcher: Callable[[], None]) -> None:
        self._reclaim = reclaim
        self._wake_dispatcher = wake_dispatcher
        self.wake = asyncio.Event()

    async def run_once(self) -> float | None:
        """Settle one batch of attempts whose leases have expired. Runs again immediately until no more are found."""
        if not await self._reclaim():
            return _RECLAIM_SECONDS
        self._wake_dispatcher()
        return 0.0
