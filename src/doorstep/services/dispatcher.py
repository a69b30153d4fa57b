"""The Dispatcher delivers what is due; the Reclaimer settles the attempts of lost workers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from doorstep.clock import MILLISECOND, SECOND, Clock, Instant
from doorstep.engine.deliver import Deliverer
from doorstep.engine.directory import Directory

_LOOK_AGAIN_SECONDS = 0.5
"""Wake-ups are hints and may be lost: with nothing known to be due, the store is asked this often."""
_REFRESH_EVERY: Instant = SECOND // 4
"""How soon this worker notices a change to an endpoint that another process made."""
_ROUND_PAUSE: Instant = 2 * MILLISECOND
"""At least between two rounds while tries are under way, so that a busy worker claims by the hundred."""


class Dispatcher:
    name = "dispatcher"

    def __init__(self, deliverer: Deliverer, directory: Directory, clock: Clock) -> None:
        self._deliverer = deliverer
        self._directory = directory
        self._clock = clock
        self._refreshed_at: Instant = 0
        self._looked_at: Instant = 0
        self.wake = asyncio.Event()

    async def run_once(self) -> float | None:
        await self._pause_while_busy()
        now = self._clock.now()
        if now - self._refreshed_at >= _REFRESH_EVERY:
            await self._directory.refresh()
            self._refreshed_at = now
        next_at = await self._deliverer.round()
        self._looked_at = self._clock.now()
        if next_at is None:
            return _LOOK_AGAIN_SECONDS
        return min(max(0.0, (next_at - self._clock.now()) / SECOND), _LOOK_AGAIN_SECONDS)

    async def _pause_while_busy(self) -> None:
        """Tries that merely hang are no reason to pause: what comes after a quiet moment is looked for at once."""
        pause = self._looked_at + _ROUND_PAUSE - self._clock.now()
        if self._deliverer.hand.busy and pause > 0:
            await asyncio.sleep(pause / SECOND)


_EVERY_SECONDS = 0.5
"""A dead worker's work is promised to be picked up within lease + 1 s."""


class Reclaimer:
    name = "reclaimer"

    def __init__(self, reclaim: Callable[[], Awaitable[int]], wake_dispatcher: Callable[[], None]) -> None:
        self._reclaim = reclaim
        self._wake_dispatcher = wake_dispatcher
        self.wake = asyncio.Event()

    async def run_once(self) -> float | None:
        if not await self._reclaim():
            return _EVERY_SECONDS
        self._wake_dispatcher()
        return 0.0
