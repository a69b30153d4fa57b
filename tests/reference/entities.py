"""Entities of pipelines: kept encoded, so that nobody's change of `data` reaches what is kept."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from itertools import islice
from uuid import UUID

import msgspec
from msgspec.structs import replace

from doorstep.clock import Instant
from doorstep.errors import NotFound
from doorstep.model.action import AuditEntry
from doorstep.model.claim import Moved
from doorstep.model.delivery import OPEN_STATES
from doorstep.model.entity import Entity, EntityChange, EntityFilter, Phase
from doorstep.model.listing import Count, Page
from doorstep.model.outbox import OutboxMessage
from doorstep.stores import cursor as cursors
from doorstep.stores import notes
from doorstep.stores.limits import COUNT_MAX
from doorstep.stores.text import check_storable, storable
from tests.reference.operators import OperatorVerbs
from tests.reference.outbox import OutboxVerbs
from tests.reference.tables import EntityRow

_decode = msgspec.json.Decoder(Entity).decode


class EntityVerbs(OutboxVerbs, OperatorVerbs):
    async def put_entity(
        self,
        entity: Entity,
        expected_version: int,
        change: EntityChange | None = None,
        posted: Sequence[OutboxMessage] = (),
        line: AuditEntry | None = None,
    ) -> bool:
        check_storable("entity_id", entity.entity_id)
        self._tables.check_org(entity.org_id)
        name = (entity.org_id, entity.pipeline, entity.entity_id)
        row = self._tables.entities.get(name)
        if not _is_same(row, entity, expected_version):
            return False
        if row is None:
            row = self._tables.entities[name] = EntityRow(self._next_entity_key())
        row.document = msgspec.json.encode(_storable(entity, expected_version + 1))
        if change is not None:
            row.history.append(replace(change, reason=storable(change.reason)))
        if posted:
            await self.post(posted)
        if line is not None:
            self._tables.audit.append(line)
        return True

    async def delete_entity(self, entity: Entity, line: AuditEntry, arrival: UUID | None = None) -> Moved | None:
        name = (entity.org_id, entity.pipeline, entity.entity_id)
        row = self._tables.entities.get(name)
        if row is None or not _is_same(row, entity, entity.version):
            return None
        moved = Moved()
        if arrival is not None:
            with suppress(NotFound):
                moved = await self.delete_event(entity.org_id, arrival, line.actor, line.at)
        del self._tables.entities[name]
        self._tables.audit.append(line)
        return moved

    async def entity(self, org_id: UUID, pipeline: str, entity_id: str) -> Entity:
        return _decode(self._entity_row(org_id, pipeline, entity_id).document)

    async def entity_history(self, org_id: UUID, pipeline: str, entity_id: str) -> list[EntityChange]:
        return list(self._entity_row(org_id, pipeline, entity_id).history)

    async def list_entities(
        self, org_id: UUID, wanted: EntityFilter, cursor: str | None = None, limit: int = 50
    ) -> Page[Entity]:
        check_storable("status", wanted.status)
        (before,) = cursors.read(cursor, cursors.KEY_MAX) or (cursors.KEY_MAX,)
        newest_first = reversed(self._entities(org_id, wanted.pipeline))
        found = [(key, one) for key, one in newest_first if key < before and _is_wanted(one, wanted)]
        more = cursors.write(found[limit - 1][0]) if len(found) > limit else None
        return Page(tuple(one for _, one in found[:limit]), more)

    async def count_entities(self, org_id: UUID, wanted: Sequence[EntityFilter], limit: int = COUNT_MAX) -> list[Count]:
        for one in wanted:
            check_storable("status", one.status)
        found = [sum(_is_wanted(one, each) for _, one in self._entities(org_id, each.pipeline)) for each in wanted]
        return [Count(min(number, limit), exact=number <= limit) for number in found]

    async def adrift(
        self, org_id: UUID, pipeline: str, endpoint_ids: Sequence[UUID], cursor: str | None, limit: int
    ) -> Page[Entity]:
        (after,) = cursors.read(cursor, cursors.KEY_MAX) or (0,)
        running = [
            (key, one) for key, one in self._entities(org_id, pipeline) if key > after and one.phase is Phase.RUNNING
        ][:limit]
        found = (one for _, one in running if not self._is_carried(one, endpoint_ids))
        return Page(tuple(found), cursors.write(running[-1][0]) if len(running) == limit else None)

    async def expecting(self, org_id: UUID, pipeline: str, event_ids: Sequence[UUID]) -> list[Entity]:
        wanted = set(event_ids)
        running = (one for _, one in self._entities(org_id, pipeline) if one.phase is Phase.RUNNING)
        return [one for one in running if one.event_id in wanted]

    async def untouched(self, org_id: UUID, pipeline: str, dead_before: Instant, limit: int) -> list[Entity]:
        dead = ((one.changed_at, key, one) for key, one in self._entities(org_id, pipeline) if one.phase is Phase.DEAD)
        oldest_first = sorted(((at, key, one) for at, key, one in dead if at < dead_before), key=lambda row: row[:2])
        return [one for _, _, one in islice(oldest_first, limit)]

    async def entity_statuses(self, org_id: UUID, pipeline: str) -> list[str]:
        return sorted({one.status for _, one in self._entities(org_id, pipeline)})

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
        (after,) = cursors.read(cursor, cursors.KEY_MAX) or (0,)
        window = [(key, one) for key, one in self._entities(org_id, pipeline) if key > after and one.status == status][
            :limit
        ]
        aged = [one for _, one in window if one.changed_at < before and one.phase in phases]
        for one in aged:
            del self._tables.entities[org_id, pipeline, one.entity_id]
        more = len(window) == limit and window[-1][1].created_at < before
        return len(aged), cursors.write(window[-1][0]) if more else None

    async def declare_pipelines(self, names: Sequence[tuple[UUID, str]], now: Instant) -> None:
        self._tables.declared_pipelines |= dict.fromkeys(names, now)

    async def declared_pipelines(self) -> dict[tuple[UUID, str], Instant]:
        return dict(self._tables.declared_pipelines)

    def _next_entity_key(self) -> int:
        """They are kept in the order of their creation."""
        newest = next(reversed(self._tables.entities.values()), None)
        return newest.key + 1 if newest else 1

    def _entity_row(self, org_id: UUID, pipeline: str, entity_id: str) -> EntityRow:
        row = self._tables.entities.get((org_id, pipeline, entity_id))
        if row is None:
            raise NotFound(notes.no_entity(pipeline, entity_id))
        return row

    def _entities(self, org_id: UUID, pipeline: str) -> list[tuple[int, Entity]]:
        rows: Iterable[EntityRow] = (
            row for name, row in self._tables.entities.items() if name[:2] == (org_id, pipeline)
        )
        return [(row.key, _decode(row.document)) for row in rows]

    def _is_carried(self, entity: Entity, endpoint_ids: Sequence[UUID]) -> bool:
        """Its event is still to be forwarded, or one of these endpoints still has it to do."""
        if entity.event_id is None:
            return False
        event = self._tables.events.get(entity.event_id)
        owed = (row.delivery for row in event.deliveries) if event else ()
        posting = self._tables.outbox.get(entity.event_id)
        return (posting is not None and posting.refused_at is None) or any(
            one.state in OPEN_STATES and one.endpoint_id in endpoint_ids for one in owed
        )


def _is_same(row: EntityRow | None, entity: Entity, version: int) -> bool:
    """Nobody was faster, and it is not a later one that was given its name."""
    if row is None:
        return version == 0
    kept = _decode(row.document)
    return (kept.version, kept.created_at) == (version, entity.created_at)


def _storable(entity: Entity, version: int) -> Entity:
    reason = None if entity.error_reason is None else storable(entity.error_reason)
    return replace(entity, error_reason=reason, version=version)


def _is_wanted(entity: Entity, wanted: EntityFilter) -> bool:
    archived = entity.phase is Phase.ARCHIVED or (
        entity.phase is Phase.DEAD and entity.changed_at < wanted.archived_before
    )
    return wanted.status in (None, entity.status) and wanted.archived in (None, archived)
