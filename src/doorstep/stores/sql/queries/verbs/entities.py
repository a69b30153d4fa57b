"""Entities of pipelines."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.action import AuditEntry
from doorstep.model.claim import Moved
from doorstep.model.entity import Entity, EntityChange, EntityFilter, Phase
from doorstep.model.listing import Count, Page
from doorstep.model.outbox import OutboxMessage
from doorstep.stores.limits import COUNT_MAX
from doorstep.stores.sql.queries import entities, entity_lists
from doorstep.stores.sql.queries import entity_lists as declared
from doorstep.stores.sql.queries.verbs.scripted import Scripted


class EntityVerbs(Scripted):
    async def put_entity(
        self,
        entity: Entity,
        expected_version: int,
        change: EntityChange | None = None,
        posted: Sequence[OutboxMessage] = (),
        line: AuditEntry | None = None,
    ) -> bool:
        return await self._write(entity.org_id, entities.put_entity, entity, expected_version, change, posted, line)

    async def delete_entity(self, entity: Entity, line: AuditEntry, arrival: UUID | None = None) -> Moved | None:
        return await self._write(entity.org_id, entities.delete_entity, entity, line, arrival)

    async def entity(self, org_id: UUID, pipeline: str, entity_id: str) -> Entity:
        return await self._read(org_id, entities.entity, org_id, pipeline, entity_id)

    async def entity_history(self, org_id: UUID, pipeline: str, entity_id: str) -> list[EntityChange]:
        return await self._read(org_id, entities.history, org_id, pipeline, entity_id)

    async def list_entities(
        self, org_id: UUID, wanted: EntityFilter, cursor: str | None = None, limit: int = 50
    ) -> Page[Entity]:
        return await self._read(org_id, entity_lists.list_entities, org_id, wanted, cursor, limit)

    async def count_entities(self, org_id: UUID, wanted: Sequence[EntityFilter], limit: int = COUNT_MAX) -> list[Count]:
        return await self._read(org_id, entity_lists.count_entities, org_id, wanted, limit)

    async def adrift(
        self, org_id: UUID, pipeline: str, endpoint_ids: Sequence[UUID], cursor: str | None, limit: int
    ) -> Page[Entity]:
        return await self._read(org_id, entity_lists.orphaned, org_id, pipeline, endpoint_ids, cursor, limit)

    async def expecting(self, org_id: UUID, pipeline: str, event_ids: Sequence[UUID]) -> list[Entity]:
        return await self._read(org_id, entity_lists.expecting, org_id, pipeline, event_ids)

    async def untouched(self, org_id: UUID, pipeline: str, dead_before: Instant, limit: int) -> list[Entity]:
        return await self._read(org_id, entity_lists.untouched, org_id, pipeline, dead_before, limit)

    async def entity_statuses(self, org_id: UUID, pipeline: str) -> list[str]:
        return await self._read(org_id, entity_lists.entity_statuses, org_id, pipeline)

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
        return await self._write(
            org_id, entity_lists.clean_entities, org_id, pipeline, status, phases, before, cursor, limit
        )

    async def declare_pipelines(self, names: Sequence[tuple[UUID, str]], now: Instant) -> None:
        await self._write(None, declared.declare_pipelines, names, now)

    async def declared_pipelines(self) -> dict[tuple[UUID, str], Instant]:
        return await self._read(None, declared.declared_pipelines)
