"""Keeping house: old dead letters are archived, old settled rows are removed."""

from __future__ import annotations

from itertools import islice

from doorstep.clock import Instant
from doorstep.model.delivery import DeliveryState
from doorstep.model.move import Moved
from doorstep.stores import notes
from doorstep.stores.memory.due_index import DueIndex
from doorstep.stores.memory.tables import DeliveryRow, Tables
from doorstep.stores.store import Cleaned


class HouseVerbs:
    """What the cleaner does, in small batches. "Before" an instant does not include it."""

    _tables: Tables

    async def archive(self, dead_before: Instant, now: Instant, limit: int) -> Moved:
        rows = self._before(self._tables.dead, dead_before, limit)
        archived = (self._tables.change(row, now, notes.ARCHIVED, state=DeliveryState.ARCHIVED) for row in rows)
        return Moved(tuple(move for moves in archived for move in moves))

    async def clean(self, settled_before: Instant, now: Instant, limit: int) -> Cleaned:
        rows = self._before(self._tables.removable, settled_before, limit)
        events_before = len(self._tables.events)
        for row in rows:
            self._tables.remove(row)
        self._remove_acknowledged(settled_before, limit)
        return Cleaned(
            deliveries=len(rows),
            attempts=sum(len(row.attempts) for row in rows),
            events=events_before - len(self._tables.events),
            idempotency_keys=self._remove_expired_keys(now, limit),
        )

    def _before(self, index: DueIndex, instant: Instant, limit: int) -> list[DeliveryRow]:
        return [self._tables.by_key[key] for key in islice(index.until(instant - 1), limit)]

    def _remove_acknowledged(self, settled_before: Instant, limit: int) -> None:
        acknowledged = self._tables.acknowledged
        old = sorted((at, event_id) for event_id, at in acknowledged.items() if at < settled_before)
        for _, event_id in old[:limit]:
            del acknowledged[event_id], self._tables.events[event_id]

    def _remove_expired_keys(self, now: Instant, limit: int) -> int:
        kept = self._tables.idempotency
        expired = list(islice((slot for slot, (expires_at, *_) in kept.items() if expires_at <= now), limit))
        for slot in expired:
            del kept[slot]
        return len(expired)
