"""The Timekeeper: makes this process follow the time of a store that several machines share."""

from __future__ import annotations

import asyncio

from doorstep.clock import SECOND, AnchoredClock, to_iso
from doorstep.stores.store import Store
from doorstep.telemetry.facts import Notice, Telemetry

_EVERY_SECONDS = 30.0
_WORTH_TELLING = SECOND


class ClockSync:
    """Only for stores with a time of their own; on an embedded store the clock stays anchored where it started."""

    name = "timekeeper"

    def __init__(self, store: Store, clock: AnchoredClock, telemetry: Telemetry) -> None:
        self._store = store
        self._clock = clock
        self._telemetry = telemetry
        self.wake = asyncio.Event()

    async def run_once(self) -> float | None:
        if not self._store.capabilities.many_machines:
            return None
        asked_at = self._clock.now()
        store_now = await self._store.time()
        half_way = (self._clock.now() - asked_at) // 2
        if abs(store_now + half_way - self._clock.now()) <= half_way:
            return _EVERY_SECONDS  # within the error of a slow answer: to follow it would only add that error
        moved = self._clock.follow(store_now + half_way)
        if abs(moved) >= _WORTH_TELLING:
            self._telemetry.emit(
                Notice(
                    at=to_iso(self._clock.now()),
                    level="warning",
                    message="the clock was moved to follow the store's time",
                    fields={"moved_seconds": moved / SECOND},
                )
            )
        return _EVERY_SECONDS
