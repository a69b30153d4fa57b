"""Retention: archives old dead letters and removes old rows."""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import islice
from typing import Any, TypeVar
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.alert import Alert, AlertConfig
from doorstep.model.claim import Moved
from doorstep.model.delivery import DEAD_STATES, Delivery, DeliveryState
from doorstep.model.entity import Phase
from doorstep.stores import notes
from doorstep.stores.limits import KEY_MAX, read_cursor, write_cursor
from doorstep.stores.store import Cleaned, Retention
from tests.reference.actions import dead_letter_all
from tests.reference.finds import FindVerbs
from tests.reference.rows import Documents
from tests.reference.tables import DeliveryRow

T = TypeVar("T")


class RetentionVerbs(FindVerbs):
    """The cleaner's work, in small batches. "Before" an instant excludes that instant."""

    async def archive(self, dead_before: Instant, now: Instant, limit: int) -> Moved:
        letters = [row for row in self._settled(dead_before) if row.delivery.state is DeliveryState.DEAD]
        rows = [row for row in letters if not row.delivery.deleted][:limit]
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
        return dead_letter_all(self._tables, waiting, code, reason, now)

    async def clean(self, retention: Retention, now: Instant, limit: int) -> Cleaned:
        tables, settled_before = self._tables, retention.settled_before
        rows = [row for row in self._settled(settled_before) if _is_removable(row.delivery)][:limit]
        letters = [row for row in self._settled(retention.dead_before) if not _is_removable(row.delivery)]
        letters = sorted(letters, key=lambda row: row.delivery.state is not DeliveryState.ARCHIVED)[:limit]
        events_before = len(tables.events)
        for row in (*rows, *letters):
            tables.remove(row, now)
        self._remove_acknowledged(settled_before, now, limit)
        alerts = _remove_oldest(tables.alerts, limit, retention.alerts_before, _alert_end)
        silences = _remove_oldest(tables.alert_configs, limit, retention.silences_before, _config_end)
        return Cleaned(
            deliveries=len(rows),
            dead_letters=len(letters),
            attempts=sum(len(row.attempts) for row in (*rows, *letters)),
            events=events_before - len(tables.events),
            idempotency_keys=self._remove_expired_keys(now, limit),
            inbox_events=self._remove_unacknowledged(retention.inbox_before, now, limit),
            circuit_changes=self._remove_circuit_changes(settled_before, limit),
            audit_entries=_remove_oldest(tables.audit, limit, retention.audit_before, lambda entry: entry.at),
            bulk_items=self._remove_bulk_items(settled_before, limit),
            bulks=self._remove_bulks(settled_before, limit),
            alerts=alerts + silences,
            workers=_remove_oldest(tables.workers, limit, retention.workers_before, lambda worker: worker.seen_at),
        )

    async def clean_entities(
        self,
        org_id: UUID,
        pipeline: str,
        status: str,
        phases: Collection[Phase],
        before: Instant,
        cursor: str | None,
        limit: int,
    ) -> tuple[int, str | None]:
        (after,) = read_cursor(cursor, KEY_MAX) or (0,)
        later = (row for row in self.entities(org_id, pipeline) if row[0] > after)
        examined = [row for row in later if row[1].status == status][:limit]
        old = [one for _, one in examined if one.changed_at < before and one.phase in phases]
        for one in old:
            del self._tables.entities[org_id, pipeline, one.entity_id]
            self._tables.entity_history.pop((org_id, pipeline, one.entity_id), None)
        more = len(examined) == limit and examined[-1][1].created_at < before
        return len(old), write_cursor(examined[-1][0]) if more else None

    def _settled(self, before: Instant) -> list[DeliveryRow]:
        """Deliveries that were settled before an instant, oldest first."""
        rows = (row for row in self._tables.deliveries.values() if row.delivery.settled_at is not None)
        found = [(row.delivery.settled_at or 0, row.key, row) for row in rows]
        return [row for at, _, row in sorted(found, key=lambda one: one[:2]) if at < before]

    def _remove_acknowledged(self, settled_before: Instant, now: Instant, limit: int) -> None:
        acknowledged = self._tables.acknowledged
        old = sorted((at, event_id) for event_id, at in acknowledged.items() if at < settled_before)
        for _, event_id in old[:limit]:
            del acknowledged[event_id]
            self._tables.remove_event(event_id, now)

    def _remove_expired_keys(self, now: Instant, limit: int) -> int:
        stored = self._tables.idempotency
        expired = list(islice((slot for slot, (expires_at, *_) in stored.items() if expires_at <= now), limit))
        for slot in expired:
            del stored[slot]
        return len(expired)

    def _remove_unacknowledged(self, accepted_before: Instant, now: Instant, limit: int) -> int:
        inbox = (row.event for row in self._tables.events.values() if not row.accepted_deliveries)
        waiting = (event for event in inbox if event.event_id not in self._tables.acknowledged)
        old = sorted((one for one in waiting if one.created_at < accepted_before), key=lambda one: one.created_at)
        for event in old[:limit]:
            self._tables.remove_event(event.event_id, now)
        return len(old[:limit])

    def _remove_circuit_changes(self, before: Instant, limit: int) -> int:
        """Keep the newest change of each endpoint: it shows since when its circuit has been in its current state."""
        older = ((changes, one) for changes in self._tables.circuit_history.values() for one in changes[:-1])
        old = sorted((row for row in older if row[1].at < before), key=lambda row: row[1].at)
        for changes, change in old[:limit]:
            changes.remove(change)
        return len(old[:limit])

    def _remove_bulk_items(self, before: Instant, limit: int) -> int:
        items = [
            (bulk_id, one) for bulk_id in self._ended_bulks(before, limit) for one in self._tables.bulk_items[bulk_id]
        ]
        for bulk_id, delivery_id in items[:limit]:
            del self._tables.bulk_items[bulk_id][delivery_id]
        return len(items[:limit])

    def _remove_bulks(self, before: Instant, limit: int) -> int:
        empty = [bulk_id for bulk_id in self._ended_bulks(before, limit) if not self._tables.bulk_items[bulk_id]]
        for bulk_id in empty:
            del self._tables.bulks[bulk_id], self._tables.bulk_items[bulk_id]
        return len(empty)

    def _ended_bulks(self, before: Instant, limit: int) -> list[UUID]:
        """The operations that ended first, in order of their creation."""
        ended = [(bulk.finished_at or before, number, bulk.bulk_id) for number, bulk in self._tables.bulks.numbered()]
        old = sorted(row for row in ended if row[0] < before)[:limit]
        return [bulk_id for _, _, bulk_id in sorted(old, key=lambda row: row[1])]


def _is_removable(delivery: Delivery) -> bool:
    return delivery.deleted or delivery.state not in DEAD_STATES


def _alert_end(alert: Alert) -> Instant | None:
    return alert.ended_at if alert.review_at is None else None


def _config_end(config: AlertConfig) -> Instant | None:
    return config.ends_at


def _remove_oldest(
    documents: Documents[Any, T], limit: int, before: Instant, ended_at: Callable[[T], Instant | None]
) -> int:
    """Remove up to `limit` documents that ended before an instant, those that ended first before the others."""
    ended = [(ended_at(document), key) for key, document in documents.items()]
    old = sorted((row for row in ended if row[0] is not None and row[0] < before), key=lambda row: row[0] or 0)
    for _, key in old[:limit]:
        del documents[key]
    return len(old[:limit])
