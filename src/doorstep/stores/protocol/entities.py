"""Entities of pipelines."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.action import AuditEntry
from doorstep.model.claim import Moved
from doorstep.model.entity import Entity, EntityChange, EntityFilter, Phase
from doorstep.model.listing import Count, Page
from doorstep.model.outbox import OutboxMessage
from doorstep.stores.limits import COUNT_MAX


class EntityStore(Protocol):
    """What a pipeline carries from status to status."""

    async def put_entity(
        self,
        entity: Entity,
        expected_version: int,
        change: EntityChange | None = None,
        posted: Sequence[OutboxMessage] = (),
        line: AuditEntry | None = None,
    ) -> bool:
        """Write an entity computed from `expected_version` (stored as version + 1); False if another was faster.

        Version 0 is that of an entity that does not exist yet, and creates it; a later one that was given the name of
        an entity that was deleted is another, told by its `created_at`. What it posts to the outbox, its line
        of history and `line` are kept in the same transaction; a write that came too late keeps nothing. Whether its
        status may follow the one before was decided by whoever calls. NotFound for an unknown organization.
        """

    async def delete_entity(self, entity: Entity, line: AuditEntry, arrival: UUID | None = None) -> Moved | None:
        """Remove an entity and its history, with `line`, and what its arrival gave, if that event is still there: as
        `delete_event` does it, by the actor of the line. None if the entity is no longer as it was given."""

    async def entity(self, org_id: UUID, pipeline: str, entity_id: str) -> Entity: ...

    async def entity_history(self, org_id: UUID, pipeline: str, entity_id: str) -> list[EntityChange]:
        """Every change of its status, oldest first."""

    async def list_entities(
        self, org_id: UUID, wanted: EntityFilter, cursor: str | None = None, limit: int = 50
    ) -> Page[Entity]:
        """In the order of their creation, the newest first; bounded as every list is."""

    async def count_entities(self, org_id: UUID, wanted: Sequence[EntityFilter], limit: int = COUNT_MAX) -> list[Count]:
        """How many each of these lists has; for each of them no more than `limit` entries are looked at."""

    async def adrift(
        self, org_id: UUID, pipeline: str, endpoint_ids: Sequence[UUID], cursor: str | None, limit: int
    ) -> Page[Entity]:
        """Those of the next `limit` running entities that nothing carries on, in the order of their creation: their
        event waits in no outbox, and none of these endpoints has it still to do."""

    async def expecting(self, org_id: UUID, pipeline: str, event_ids: Sequence[UUID]) -> list[Entity]:
        """The running entities whose present event is one of these."""

    async def untouched(self, org_id: UUID, pipeline: str, dead_before: Instant, limit: int) -> list[Entity]:
        """Up to `limit` dead entities whose status last changed before `dead_before`, oldest first."""

    async def entity_statuses(self, org_id: UUID, pipeline: str) -> list[str]:
        """Every status that an entity of this pipeline has, in order."""

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
        """Of the next `limit` entities with this status, in the order of their creation, remove those that have had it
        since `before` and are in one of these phases; returns how many, and where to go on: None once the rest is too
        young."""

    async def declare_pipelines(self, names: Sequence[tuple[UUID, str]], now: Instant) -> None:
        """Note that a worker has these pipelines now, each named by its organization and its name."""

    async def declared_pipelines(self) -> dict[tuple[UUID, str], Instant]:
        """When each pipeline was last noted, by any worker."""
