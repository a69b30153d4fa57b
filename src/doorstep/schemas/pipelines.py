"""Pipelines and their entities."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias
from uuid import UUID

import msgspec

from doorstep.schemas.shape import (
    Answer,
    CountedPagination,
    Listing,
    ListQuery,
    Pagination,
    Reason,
    Request,
    Time,
    told,
)

AnyObject: TypeAlias = Annotated[dict[str, Any], told(additionalProperties=True)]


class EntitiesQuery(ListQuery, frozen=True, kw_only=True):
    """Which entities of a pipeline."""

    status: str | None = None
    """Only those with this status; `archived` (or whatever the pipeline calls it) gives the archived ones."""
    archived: bool = False
    """The archived ones too."""


class ApprovalIn(Request, frozen=True):
    """A decision about the gate that an entity waits at."""

    gate: Annotated[str, msgspec.Meta(max_length=64)] | None = None
    """The gate that is decided about. Without it, the decision is about that at which the entity waits by then."""


class RejectionIn(ApprovalIn, frozen=True):
    """The same, with a reason."""

    reason: Reason = ""


class Pipeline(Answer, frozen=True):
    """A pipeline as its program declares it."""

    name: str
    statuses: tuple[str, ...]
    """In the order of a good life, then those of failures."""
    gates: tuple[str, ...]
    """Where an entity waits to be approved or rejected."""
    retryable: tuple[str, ...]


class PipelinePage(Listing[Pipeline], frozen=True):
    """All of them."""

    pipelines: tuple[Pipeline, ...]
    pagination: CountedPagination


class Entity(Answer, frozen=True):
    """A thing on its way through a pipeline."""

    entity_id: str
    pipeline: str
    status: str
    data: AnyObject
    """What it is about: the program's own."""
    error_reason: str | None
    """Why its last stage failed, in a sentence."""
    metadata: AnyObject
    """`error` has the technical side of the last failure: category, code, attempts, and the event to look for."""
    event_id: UUID | None
    """The event of its present stage."""
    created_at: Time
    changed_at: Time


class EntityPage(Listing[Entity], frozen=True):
    """One page of a pipeline's entities."""

    entities: tuple[Entity, ...]
    pagination: Pagination


class EntityChange(Answer, frozen=True):
    """One change of an entity's status."""

    at: Time
    old_status: str | None
    new_status: str
    reason: str
    event_id: UUID | None
    """The event that brought it there."""


class EntityHistoryPage(Listing[EntityChange], frozen=True):
    """Every change of an entity's status."""

    history: tuple[EntityChange, ...]
    pagination: CountedPagination
