"""The BulkRunner: carries out bulk operations, step by step; whichever process lives goes on where another stopped."""

from __future__ import annotations

import asyncio

from doorstep.path.bulk_steps import BulkStepper
from doorstep.stores.store import Store

_IDLE_SECONDS = 1.0
"""How long an operation that another process was asked for may wait to be seen by this one."""


class BulkRunner:
    name = "bulk runner"

    def __init__(self, store: Store, stepper: BulkStepper) -> None:
        self._store = store
        self._stepper = stepper
        self.wake = asyncio.Event()

    async def run_once(self) -> float | None:
        """One step of each operation that is under way. One that fails is tried again, and holds up no other."""
        delays: list[float] = []
        troubles: list[Exception] = []
        for bulk in await self._store.live_bulks():
            try:
                delays.append(await self._stepper.advance(bulk))
            except Exception as error:  # noqa: BLE001  raised below, when the others have had their turn
                troubles.append(error)
        if troubles:
            raise troubles[0]
        return min(delays, default=_IDLE_SECONDS)
