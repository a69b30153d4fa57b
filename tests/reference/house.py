"""Keeping house: old dead letters are archived, old settled rows are removed."""

from __future__ import annotations

from itertools import islice

from doorstep.clock import Instant
from doorstep.model.claim import Moved
from doorstep.model.delivery import DeliveryState
from doorstep.stores import notes
from doorstep.stores.store import Cleaned
from tests.reference.due_index import DueIndex
from tests.reference.operators import bury_all
from tests.reference.tables import BulkRow, DeliveryRow, Tables


class HouseVerbs:
    """What the cleaner does, in small batches. "Before" an instant does not include it."""

    _tables: Tables

    async def archive(self, dead_before: Instant, now: Instant, limit: int) -> Moved:
        rows = self._before(self._tables.dead, dead_before, limit)
        archived = (self._tables.change(row, now, notes.ARCHIVED, state=DeliveryState.ARCHIVED) for row in rows)
        return Moved(tuple(move for moves in archived for move in moves))

    async def expire(self, code: str, reason: str, since: Instant, now: Instant, limit: int) -> Moved:
        expired = [
            row
            for row in self._tables.events.values()
            if since < (row.event.expires_at or 0) <= now and row.states[DeliveryState.PENDING]
        ]
        expired.sort(key=lambda row: row.event.expires_at or 0)
        waiting = [
            one for row in expired[:limit] for one in row.deliveries if one.delivery.state is DeliveryState.PENDING
        ]
        return bury_all(self._tables, waiting, code, reason, now)

    async def clean(
        self,
        settled_before: Instant,
        now: Instant,
        limit: int,
        *,
        inbox_before: Instant = 0,
        audit_before: Instant = 0,
    ) -> Cleaned:
        rows = self._before(self._tables.removable, settled_before, limit)
        events_before = len(self._tables.events)
        for row in rows:
            self._tables.remove(row, now)
        self._remove_acknowledged(settled_before, now, limit)
        return Cleaned(
            deliveries=len(rows),
            attempts=sum(len(row.attempts) for row in rows),
            events=events_before - len(self._tables.events),
            idempotency_keys=self._remove_expired_keys(now, limit),
            inbox_events=self._remove_unacknowledged(inbox_before, now, limit),
            circuit_changes=self._remove_circuit_changes(settled_before, limit),
            audit_lines=self._remove_audit_lines(audit_before, limit),
            bulk_items=self._remove_bulk_items(settled_before, limit),
            bulks=self._remove_bulks(settled_before, limit),
        )

    def _before(self, index: DueIndex, instant: Instant, limit: int) -> list[DeliveryRow]:
        return [self._tables.by_key[key] for key in islice(index.until(instant - 1), limit)]

    def _remove_acknowledged(self, settled_before: Instant, now: Instant, limit: int) -> None:
        acknowledged = self._tables.acknowledged
        old = sorted((at, event_id) for event_id, at in acknowledged.items() if at < settled_before)
        for _, event_id in old[:limit]:
            del acknowledged[event_id]
            self._tables.remove_event(event_id, now)

    def _remove_expired_keys(self, now: Instant, limit: int) -> int:
        kept = self._tables.idempotency
        expired = list(islice((slot for slot, (expires_at, *_) in kept.items() if expires_at <= now), limit))
        for slot in expired:
            del kept[slot]
        return len(expired)

    def _remove_unacknowledged(self, accepted_before: Instant, now: Instant, limit: int) -> int:
        inbox = (row.event for row in self._tables.events.values() if not row.accepted_deliveries)
        waiting = (event for event in inbox if event.event_id not in self._tables.acknowledged)
        old = sorted((one for one in waiting if one.created_at < accepted_before), key=lambda one: one.created_at)
        for event in old[:limit]:
            self._tables.remove_event(event.event_id, now)
        return len(old[:limit])

    def _remove_circuit_changes(self, before: Instant, limit: int) -> int:
        """The newest of each endpoint stays: it says since when its circuit is as it is."""
        changes = self._tables.circuit_history
        older = ((endpoint, change) for endpoint in self._tables.endpoints for change in changes[endpoint][:-1])
        old = sorted((one for one in older if one[1].at < before), key=lambda one: one[1].at)
        for endpoint, change in old[:limit]:
            changes[endpoint].remove(change)
        return len(old[:limit])

    def _remove_bulk_items(self, before: Instant, limit: int) -> int:
        items = [(row, one) for row in self._ended_bulks(before, limit) for one in row.items]
        for row, delivery_id in items[:limit]:
            del row.items[delivery_id]
        return len(items[:limit])

    def _remove_bulks(self, before: Instant, limit: int) -> int:
        empty = [row for row in self._ended_bulks(before, limit) if not row.items]
        for row in empty:
            del self._tables.bulks[row.bulk.bulk_id]
        return len(empty)

    def _ended_bulks(self, before: Instant, limit: int) -> list[BulkRow]:
        ended = ((row.bulk.finished_at, row.key, row) for row in self._tables.bulks.values())
        old = sorted((at, key, row) for at, key, row in ended if at is not None and at < before)
        return sorted((row for _, _, row in old[:limit]), key=lambda row: row.key)

    def _remove_audit_lines(self, before: Instant, limit: int) -> int:
        old = sorted((line for line in self._tables.audit if line.at < before), key=lambda line: line.at)
        for line in old[:limit]:
            self._tables.audit.remove(line)
        return len(old[:limit])
