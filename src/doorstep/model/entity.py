"""Entities: items that go through the stages of a pipeline, with statuses that the pipeline defines."""

from __future__ import annotations

from enum import StrEnum
from typing import Any
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.listing import BoundedQuery, PagedQuery
from doorstep.model.record import Record


class Phase(StrEnum):
    """The meaning of a status for the engine; each status of a pipeline has one phase."""

    RUNNING = "running"
    """A stage is in progress: its event is waiting, being attempted, or will be retried."""
    RESTING = "resting"
    """The entity is waiting for approval at a gate, or is complete."""
    DEAD = "dead"
    """A stage failed permanently, or a person rejected the entity."""
    ARCHIVED = "archived"
    """Dead, and nobody has acted on it for a while. Hidden from lists unless requested."""


ENDED = frozenset({Phase.RESTING, Phase.ARCHIVED})
"""Phases without a stage in progress. RESTING includes entities waiting at a gate; only the status distinguishes these
from completed ones."""


class Entity(Record, frozen=True, kw_only=True):
    """One item in a pipeline, with its current status."""

    entity_id: str
    """The caller's own id, or a new UUID as text; unique within its organization and pipeline."""
    org_id: UUID
    pipeline: str
    status: str
    phase: Phase
    data: dict[str, Any] = {}
    """The program's own data. If a stage returns a mapping, the mapping replaces the data."""
    error_reason: str | None = None
    """Why its last stage failed, in a sentence for people."""
    metadata: dict[str, Any] = {}
    """The engine's own data. `error` has the technical details of the last failure."""
    event_id: UUID | None = None
    """The event of its current stage. Results of any other event are stale and change nothing."""
    created_at: Instant
    changed_at: Instant
    """When its status last changed."""
    version: int = 0
    """Increases with every write; a write states the version it was computed from."""


class EntityChange(Record, frozen=True):
    """One entry in the history of an entity."""

    at: Instant
    old_status: str | None
    new_status: str
    reason: str
    event_id: UUID | None
    """The event that caused the change. For a start or a retry, this is the event that was sent."""


class EntityFilter(PagedQuery[Entity], frozen=True, kw_only=True):
    """Entities of a pipeline, most recently created first."""

    pipeline: str
    status: str | None = None
    """The exact stored status. It cannot be combined with `archived=True`."""
    archived: bool | None = False
    """False excludes archived entities, True returns only those, and None returns all."""
    archived_before: Instant = 0
    """Entities that became dead before this instant count as archived, even if the reconciler has not run yet."""


class OrphanedEntities(PagedQuery[Entity], frozen=True, kw_only=True):
    """Running entities without pending work, in order of creation. The event of such an entity is not in the outbox and
    has no open delivery to any of `endpoint_ids`. For a page with a limit of N, at most N running entities are
    examined, so it may contain fewer than N."""

    pipeline: str
    endpoint_ids: tuple[UUID, ...]


class AwaitingEntities(BoundedQuery[Entity], frozen=True, kw_only=True):
    """Running entities whose current event is one of `event_ids`."""

    pipeline: str
    event_ids: tuple[UUID, ...]


class StaleEntities(BoundedQuery[Entity], frozen=True, kw_only=True):
    """Dead entities whose status last changed before `dead_before`, oldest first."""

    pipeline: str
    dead_before: Instant
    limit: int


class EntityStatuses(BoundedQuery[str], frozen=True, kw_only=True):
    """All statuses that entities of this pipeline have, sorted."""

    pipeline: str


class EntityHistory(BoundedQuery[EntityChange], frozen=True, kw_only=True):
    """All changes of an entity's status, oldest first."""

    pipeline: str
    entity_id: str


class PipelineDeclaration(Record, frozen=True, kw_only=True):
    """A document that is stored when a program declares a pipeline."""

    org_id: UUID
    pipeline: str
    declared_at: Instant
    """When a worker last declared it."""


class PipelineDeclarations(BoundedQuery[PipelineDeclaration], frozen=True, kw_only=True):
    """The latest declaration of every pipeline in all organizations."""
