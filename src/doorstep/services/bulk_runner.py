"""The BulkRunner: carries out bulk operations, step by step; whichever process lives goes on where another stopped."""

from __future__ import annotations

import asyncio
from uuid import UUID

from doorstep.clock import SECOND, Clock, Instant, seconds
from doorstep.model.bulk import Bulk, BulkState
from doorstep.operations.bulk_steps import BulkStepper
from doorstep.stores.protocol.bulk import BulkStore

_IDLE_SECONDS = 1.0
"""How long an operation that another process was asked for may wait to be seen by this one."""

_Turn = tuple[Instant, BulkState]
"""When an operation is worth another step, and the state it was in when that was said: orders are followed at once."""


class BulkRunner:
    name = "bulk runner"

    def __init__(self, store: BulkStore, stepper: BulkStepper, clock: Clock) -> None:
        self._store = store
        self._stepper = stepper
        self._clock = clock
        self._turns: dict[UUID, _Turn] = {}
        self.wake = asyncio.Event()

    async def run_once(self) -> float | None:
        """One step of each operation whose turn it is. One that fails is tried again, and holds up no other."""
        began_at = self._clock.now()
        bulks = await self._store.live_bulks()
        self._turns = {bulk.bulk_id: self._turns[bulk.bulk_id] for bulk in bulks if bulk.bulk_id in self._turns}
        self._stepper.keep_only({bulk.bulk_id for bulk in bulks})
        troubles: list[Exception] = []
        for bulk in bulks:
            try:
                await self._step(bulk)
            except Exception as error:  # noqa: BLE001  raised below, when the others have had their turn
                troubles.append(error)
        if troubles:
            raise troubles[0]
        return self._pause(began_at)

    async def _step(self, bulk: Bulk) -> None:
        due_at, state = self._turns.get(bulk.bulk_id, (0, bulk.state))
        if due_at <= self._clock.now() or state is not bulk.state:
            delay = await self._stepper.advance(bulk)
            self._turns[bulk.bulk_id] = self._clock.now() + seconds(delay), bulk.state

    def _pause(self, began_at: Instant) -> float:
        """Until the next turn; with many operations at least half as long as their steps took together."""
        now = self._clock.now()
        next_at = min((due_at for due_at, _ in self._turns.values()), default=now + seconds(_IDLE_SECONDS))
        return min(max(next_at - now, (now - began_at) / 2) / SECOND, _IDLE_SECONDS)
