"""The Roller: moves what was counted in minutes that have ended into roll-ups, and drops those kept long enough.

Nobody waits for it, because whoever reads adds both together. It only keeps the ticks few. Of several processes one
does it at a time, and none holds the right to it any longer than it has something to do.
"""

from __future__ import annotations

import asyncio

from doorstep.clock import DAY, SECOND, Clock, Instant
from doorstep.engine.directory import Tuning
from doorstep.model.rollup import MINUTE
from doorstep.stores.store import Store, Task

_AFTER_THE_TURN: Instant = SECOND
"""How long after the turn of a minute it looks: most of what belongs to that has been committed by then."""
_HOLD: Instant = 30 * SECOND


class RollupAggregator:
    name = "roller"

    def __init__(self, store: Store, clock: Clock, tuning: Tuning, holder: str) -> None:
        self._store = store
        self._clock = clock
        self._tuning = tuning
        self._holder = holder
        self.held_at: Instant = 0
        """When it last had the right to fold."""
        self.wake = asyncio.Event()

    async def run_once(self) -> float | None:
        """One batch; at once again if it was full, else after the next turn of a minute. What was left or came meanwhile
        is for then: where clocks differ, something of an ended minute comes all the time."""
        now = self._clock.now()
        if await self._store.hold(Task.ROLLER, self._holder, now, now + _HOLD):
            self.held_at = now
            if await self._fold(now) >= self._store.fold_max:
                return 0.0
            await self._store.leave(Task.ROLLER, self._holder)
        return _until_turn(now)

    async def _fold(self, now: Instant) -> int:
        return await self._store.fold(
            now,
            minutes_before=now - round(self._tuning.minutes_retention_days * DAY),
            hours_before=now - round(self._tuning.hours_retention_days * DAY),
        )


def _until_turn(now: Instant) -> float:
    return (MINUTE - (now - _AFTER_THE_TURN) % MINUTE) / SECOND
