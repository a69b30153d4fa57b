"""The MessageCleaner: removes messages of channels that died long ago.

Dead letters are kept until somebody sees to them. Those of the reserved organization are in nobody's list, so nobody
ever would.
"""

from __future__ import annotations

import asyncio

from doorstep.clock import DAY, Clock
from doorstep.model.act import ActKind
from doorstep.model.channel import OPERATIONS_ORG
from doorstep.model.listing import Letters
from doorstep.path.operate import DeliveryActions
from doorstep.path.tuning import Tuning
from doorstep.stores.protocol.lists import ListStore

_EVERY_SECONDS = 3_600.0
_BATCH_MAX = 500
_BATCH_PAUSE_SECONDS = 0.05


class MessageCleaner:
    name = "message cleaner"

    def __init__(self, store: ListStore, delivery_actions: DeliveryActions, clock: Clock, tuning: Tuning) -> None:
        self._store = store
        self._delivery_actions = delivery_actions
        self._clock = clock
        self._tuning = tuning
        self.wake = asyncio.Event()

    async def run_once(self) -> float | None:
        """Delete a batch of what would be archived; the Cleaner removes it once it is past its retention."""
        before = self._clock.now() - round(self._tuning.archive_after_days * DAY)
        letters = await self._store.dead_letters(
            OPERATIONS_ORG, Letters(archived=True, archived_before=before), limit=_BATCH_MAX
        )
        if not letters.items:
            return _EVERY_SECONDS
        ids = [letter.delivery_id for letter in letters.items]
        await self._delivery_actions.act(ActKind.DELETE, OPERATIONS_ORG, ids, self.name, "died long ago")
        return _BATCH_PAUSE_SECONDS
