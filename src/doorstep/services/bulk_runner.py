"""The BulkRunner: carries out bulk operations step by step. Any process can continue where another stopped."""

from __future__ import annotations

import asyncio
from uuid import UUID

from doorstep.clock import SECOND, Clock, Instant, seconds
from doorstep.errors import process_all
from doorstep.model.bulk import Bulk, BulkState, LiveBulks
from doorstep.operations.bulk_steps import BulkStepper
from doorstep.services.coordination import poll_seconds
from doorstep.stores.store import Store

_IDLE_SECONDS = 1.0
"""How often to look for operations that were created in another process."""

_Turn = tuple[Instant, BulkState]
"""The time of the next step, and the state that the operation had when this time was set. If the state has changed
since then, the next step is taken immediately."""


class BulkRunner:
    name = "bulk runner"

    def __init__(self, store: Store, stepper: BulkStepper, clock: Clock) -> None:
        self._store = store
        self._stepper = stepper
        self._clock = clock
        self._turns: dict[UUID, _Turn] = {}
        self._idle_seconds = poll_seconds(store, _IDLE_SECONDS)
        self.wake = asyncio.Event()

    async def run_once(self) -> float | None:
        """Take one step of each operation whose next step is due. A failed step is retried and does not hold up the
        others."""
        started_at = self._clock.now()
        bulks = await self._store.find(None, LiveBulks())
        self._turns = {bulk.bulk_id: self._turns[bulk.bulk_id] for bulk in bulks if bulk.bulk_id in self._turns}
        self._stepper.keep_only({bulk.bulk_id for bulk in bulks})
        await process_all(bulks, self._step)
        return self._delay(started_at)

    async def _step(self, bulk: Bulk) -> None:
        due_at, state = self._turns.get(bulk.bulk_id, (0, bulk.state))
        if due_at <= self._clock.now() or state is not bulk.state:
            delay = await self._stepper.advance(bulk)
            self._turns[bulk.bulk_id] = self._clock.now() + seconds(delay), bulk.state

    def _delay(self, started_at: Instant) -> float:
        """The delay until the next step is due. It is at least half as long as this round took, and at most a
        second."""
        now = self._clock.now()
        if not self._turns:
            return self._idle_seconds
        next_at = min(due_at for due_at, _ in self._turns.values())
        return min(max(next_at - now, (now - started_at) / 2) / SECOND, _IDLE_SECONDS)
