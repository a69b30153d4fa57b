"""The Cleaner: removes what is past its retention, archives dead letters that nobody touched; in small batches."""

from __future__ import annotations

import asyncio

from doorstep.clock import DAY, Clock
from doorstep.path import facts
from doorstep.path.tuning import Tuning
from doorstep.stores.store import Cleaned, Store
from doorstep.telemetry import Notice, Telemetry

_EVERY_SECONDS = 60.0
_BATCH_MAX = 500
_BATCH_PAUSE_SECONDS = 0.05
"""Between batches, so that cleaning a backlog takes a small share of the store's time."""


class Cleaner:
    name = "cleaner"

    def __init__(self, store: Store, clock: Clock, tuning: Tuning, telemetry: Telemetry) -> None:
        self._store = store
        self._clock = clock
        self._tuning = tuning
        self._telemetry = telemetry
        self.wake = asyncio.Event()

    async def run_once(self) -> float | None:
        """One batch of each kind; soon again while there is more."""
        now = self._clock.now()
        archived = await self._store.archive(now - round(self._tuning.archive_after_days * DAY), now, _BATCH_MAX)
        self._telemetry.emit_all(facts.moved(archived, now))
        cleaned = await self._store.clean(now - round(self._tuning.retention_days * DAY), now, _BATCH_MAX)
        if archived.moves or cleaned.total:
            self._tell(len(archived.moves), cleaned)
            return _BATCH_PAUSE_SECONDS
        return _EVERY_SECONDS

    def _tell(self, archived: int, cleaned: Cleaned) -> None:
        counts: dict[str, object] = {
            "archived": archived,
            "deliveries": cleaned.deliveries,
            "attempts": cleaned.attempts,
            "events": cleaned.events,
            "idempotency_keys": cleaned.idempotency_keys,
        }
        self._telemetry.emit(Notice(at=self._clock.now(), level="info", message="cleaned", fields=counts))
