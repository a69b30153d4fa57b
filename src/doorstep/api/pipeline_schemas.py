"""The shapes of pipelines and their entities."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from pydantic import Field

from doorstep.api.schemas import Asked, CountedPagination, Pagination, Reason, Shape, Timestamp
from doorstep.clock import to_iso
from doorstep.model.entity import Entity, EntityChange
from doorstep.pipelines.pipeline import Pipeline


class EntitiesAsked(Asked):
    status: str | None = None
    """Only those with this status; `archived` (or whatever the pipeline calls it) gives the archived ones."""
    archived: bool = False
    """The archived ones too."""


class ApprovalIn(Shape):
    gate: str | None = Field(default=None, max_length=64)
    """The gate that is decided about. Without it, the decision is about that at which the entity waits by then."""


class RejectionIn(ApprovalIn):
    reason: Reason = ""


class PipelineOut(Shape):
    """A pipeline as its program declares it."""

    name: str
    statuses: list[str]
    """In the order of a good life, then those of failures."""
    gates: list[str]
    """Where an entity waits to be approved or rejected."""
    retryable: list[str]

    @classmethod
    def of(cls, pipeline: Pipeline) -> PipelineOut:
        plan = pipeline.plan
        statuses = list(plan.phases)
        retryable = [status for status in statuses if plan.can_retry(status)]
        return cls(name=plan.name, statuses=statuses, gates=sorted(plan.gates), retryable=retryable)


class PipelinesOut(Shape):
    pipelines: list[PipelineOut]
    pagination: CountedPagination


class EntityOut(Shape):
    """A thing on its way through a pipeline."""

    entity_id: str
    pipeline: str
    status: str
    data: dict[str, Any]
    """What it is about: the program's own."""
    error_reason: str | None
    """Why its last stage failed, in a sentence."""
    metadata: dict[str, Any]
    """`error` has the technical side of the last failure: category, code, attempts, and the event to look for."""
    event_id: UUID | None
    """The event of its present stage."""
    created_at: Timestamp
    changed_at: Timestamp

    @classmethod
    def of(cls, entity: Entity) -> EntityOut:
        return cls(
            entity_id=entity.entity_id,
            pipeline=entity.pipeline,
            status=entity.status,
            data=entity.data,
            error_reason=entity.error_reason,
            metadata=entity.metadata,
            event_id=entity.event_id,
            created_at=to_iso(entity.created_at),
            changed_at=to_iso(entity.changed_at),
        )


class EntitiesOut(Shape):
    entities: list[EntityOut]
    pagination: Pagination


class EntityChangeOut(Shape):
    at: Timestamp
    old_status: str | None
    new_status: str
    reason: str
    event_id: UUID | None
    """The event that brought it there."""

    @classmethod
    def of(cls, change: EntityChange) -> EntityChangeOut:
        return cls(
            at=to_iso(change.at),
            old_status=change.old_status,
            new_status=change.new_status,
            reason=change.reason,
            event_id=change.event_id,
        )


class EntityHistoryOut(Shape):
    history: list[EntityChangeOut]
    pagination: CountedPagination


def retry_queued(entity: Entity) -> dict[str, str]:
    """The answer to a retry; the id is called after the pipeline."""
    return {"status": "retry_queued", f"{entity.pipeline}_id": entity.entity_id}
