"""Writes that post messages: to the outbox itself, for alerts, and for pipeline entities."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from itertools import islice
from uuid import UUID

import msgspec
from msgspec.structs import replace

from doorstep.clock import Instant
from doorstep.errors import NotFound
from doorstep.model.action import AuditEntry
from doorstep.model.alert import AlertChange, AlertWrite
from doorstep.model.claim import Moved
from doorstep.model.entity import Entity, EntityChange
from doorstep.model.outbox import OutboxMessage
from doorstep.stores import notes
from doorstep.stores.limits import OUTBOX_BYTES_MAX, check_storable, count_within, storable
from doorstep.stores.store import Topic
from tests.reference.actions import ActionVerbs
from tests.reference.documents import decode_entity


class MessageVerbs(ActionVerbs):
    # -- outbox --------------------------------------------------------------------------------------------

    async def outbox(self, limit: int) -> list[OutboxMessage]:
        waiting = (row for row in self._tables.outbox.values() if row.refused_at is None)
        first = list(islice(waiting, limit))
        return first[: count_within((len(row.payload) for row in first), OUTBOX_BYTES_MAX)]

    async def clear_outbox(self, event_ids: Sequence[UUID]) -> None:
        for event_id in event_ids:
            self._tables.outbox.pop(event_id, None)

    async def reject(self, event_id: UUID, reason: str, now: Instant) -> None:
        row = self._tables.outbox.get(event_id)
        if row is not None and row.refused_at is None:
            self._tables.outbox[event_id] = replace(row, refused_at=now, refusal=reason)

    async def requeue(self, event_ids: Sequence[UUID], entry: AuditEntry) -> list[OutboxMessage]:
        found = self._rejected(event_ids)
        self._audit(entry, found)
        for row in found:
            self._tables.outbox[row.event_id] = replace(row, refused_at=None, refusal=None)
        self._tables.wake(Topic.OUTBOX)
        return found

    async def discard(self, event_ids: Sequence[UUID], entry: AuditEntry) -> list[OutboxMessage]:
        found = self._rejected(event_ids)
        self._audit(entry, found)
        for row in found:
            del self._tables.outbox[row.event_id]
        return found

    def _post(self, messages: Sequence[OutboxMessage]) -> None:
        for message in messages:
            self._tables.outbox[message.event_id] = message
        if messages:
            self._tables.wake(Topic.OUTBOX)

    def _rejected(self, event_ids: Sequence[UUID]) -> list[OutboxMessage]:
        rows = (self._tables.outbox.get(event_id) for event_id in dict.fromkeys(event_ids))
        return [row for row in rows if row is not None and row.refused_at is not None]

    def _audit(self, entry: AuditEntry, done: Sequence[OutboxMessage]) -> None:
        entries = notes.outbox_entries(entry, done, {org.org_id for org in self._tables.orgs})
        for one in entries:
            self._tables.check_org(one.org_id)
        self._tables.add_audit(*entries)

    # -- alerts --------------------------------------------------------------------------------------------

    async def write_alerts(self, write: AlertWrite) -> bool:
        tables = self._tables
        tables.check_org(write.org_id)
        if not all(key in tables.incidents for key in write.incident_keys):
            return False
        ending = {change.alert.alert_id for change in write.changes if not change.alert.is_open}
        if not all(self._may_write_alert(change, ending) for change in write.changes):
            return False
        for change in write.changes:
            tables.alerts[change.alert.alert_id] = replace(change.alert, version=change.expected_version + 1)
        for key in write.incident_keys:
            del tables.incidents[key]
        self._post(write.messages)
        tables.add_audit(write.entry)
        return True

    def _may_write_alert(self, change: AlertChange, ending: Collection[UUID]) -> bool:
        alert, stored = change.alert, self._tables.alerts.get(change.alert.alert_id)
        others = (one for one in self._tables.alerts if one.org_id == alert.org_id and one.alert_id != alert.alert_id)
        rivals = (one for one in others if one.is_open and one.alert_id not in ending)
        taken = alert.is_open and any(one.subject == alert.subject for one in rivals)
        return (stored.version if stored else 0) == change.expected_version and not taken

    # -- entities ------------------------------------------------------------------------------------------

    async def put_entity(
        self,
        entity: Entity,
        expected_version: int,
        change: EntityChange | None = None,
        messages: Sequence[OutboxMessage] = (),
        entry: AuditEntry | None = None,
    ) -> bool:
        check_storable("entity_id", entity.entity_id)
        self._tables.check_org(entity.org_id)
        name = (entity.org_id, entity.pipeline, entity.entity_id)
        if not _is_same(self._tables.entities.get(name), entity, expected_version):
            return False
        self._tables.entities[name] = msgspec.json.encode(_storable(entity, expected_version + 1))
        if change is not None:
            self._tables.entity_history[name].append(replace(change, reason=storable(change.reason)))
        self._post(messages)
        self._tables.add_audit(entry)
        return True

    async def delete_entity(self, entity: Entity, entry: AuditEntry, arrival: UUID | None = None) -> Moved | None:
        name = (entity.org_id, entity.pipeline, entity.entity_id)
        document = self._tables.entities.get(name)
        if document is None or not _is_same(document, entity, entity.version):
            return None
        moved = Moved()
        if arrival is not None:
            with suppress(NotFound):
                moved = await self.delete_event(entity.org_id, arrival, entry.actor, entry.at)
        del self._tables.entities[name]
        self._tables.entity_history.pop(name, None)
        self._tables.add_audit(entry)
        return moved


def _is_same(document: bytes | None, entity: Entity, version: int) -> bool:
    """Whether the stored entity is still this version, and is not a newer entity with the same name."""
    if document is None:
        return version == 0
    stored = decode_entity(document)
    return (stored.version, stored.created_at) == (version, entity.created_at)


def _storable(entity: Entity, version: int) -> Entity:
    reason = None if entity.error_reason is None else storable(entity.error_reason)
    return replace(entity, error_reason=reason, version=version)
