"""Pipelines and their entities."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from doorstep.client.answers.answer import Answered


class Pipeline(Answered, frozen=True, kw_only=True):
    """A pipeline as its program declares it."""

    name: str
    statuses: tuple[str, ...]
    gates: tuple[str, ...]
    """Where an entity waits to be approved or rejected."""
    retryable: tuple[str, ...]


class Entity(Answered, frozen=True, kw_only=True):
    """A thing on its way through a pipeline."""

    entity_id: str
    pipeline: str
    status: str
    data: dict[str, Any]
    error_reason: str | None
    metadata: dict[str, Any]
    """`error` has the technical side of the last failure."""
    event_id: UUID | None
    created_at: datetime
    changed_at: datetime


class EntityChange(Answered, frozen=True, kw_only=True):
    """One change of an entity's status."""

    at: datetime
    old_status: str | None
    new_status: str
    reason: str
    event_id: UUID | None
