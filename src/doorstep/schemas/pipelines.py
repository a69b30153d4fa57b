"""Pipelines and their entities."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias
from uuid import UUID

import msgspec

from doorstep.schemas.shape import (
    Answer,
    CountedListing,
    Listing,
    ListQuery,
    Reason,
    Request,
    Time,
    stated,
)

AnyObject: TypeAlias = Annotated[dict[str, Any], stated(additionalProperties=True)]


class EntitiesQuery(ListQuery, frozen=True, kw_only=True):
    """Filters of the entities of a pipeline."""

    status: str | None = None
    """Only entities with this status. To select archived entities, give the pipeline's name for that status, by default
    `archived`."""
    archived: bool = False
    """Include archived entities."""


class ApprovalIn(Request, frozen=True):
    """A decision at a gate."""

    gate: Annotated[str, msgspec.Meta(max_length=64)] | None = None
    """The gate to decide on; by default, the one at which the entity is waiting when the request arrives."""


class RejectionIn(ApprovalIn, frozen=True):
    """A rejection at a gate, with a reason."""

    reason: Reason = ""


class Pipeline(Answer, frozen=True):
    """A pipeline as its program declares it."""

    name: str
    statuses: tuple[str, ...]
    """The statuses that a successful entity passes through, in order, then the statuses for failures."""
    gates: tuple[str, ...]
    """The statuses in which an entity waits for approval or rejection."""
    retryable: tuple[str, ...]


class PipelinePage(CountedListing[Pipeline], frozen=True):
    """All pipelines."""

    pipelines: tuple[Pipeline, ...]


class Entity(Answer, frozen=True):
    """An entity of a pipeline."""

    entity_id: str
    pipeline: str
    status: str
    data: AnyObject
    """The entity's data, as the program stored it."""
    error_reason: str | None
    """Why the entity's last stage failed, as a sentence."""
    metadata: AnyObject
    """`error` contains the technical details of the last failure: category, code, attempts and event id."""
    event_id: UUID | None
    """The event of the entity's current stage."""
    created_at: Time
    changed_at: Time


class EntityPage(Listing[Entity], frozen=True):
    """One page of a pipeline's entities."""

    entities: tuple[Entity, ...]


class EntityChange(Answer, frozen=True):
    """One change of an entity's status."""

    at: Time
    old_status: str | None
    new_status: str
    reason: str
    event_id: UUID | None
    """The event that caused the change."""


class EntityHistoryPage(CountedListing[EntityChange], frozen=True):
    """Every change of an entity's status."""

    history: tuple[EntityChange, ...]
