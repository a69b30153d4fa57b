"""The Reclaimer: picks up the work of lost workers when their leases end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

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
