"""An entity: a thing that goes through the stages of a pipeline, and has a status that its people named."""

from __future__ import annotations

from enum import StrEnum
from typing import Any
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.record import Record


class Phase(StrEnum):
    """What a status means to the engine, whatever it is called; each status of a pipeline has one."""

    RUNNING = "running"
    """A stage is owed to it: its present event is on its way, is being tried, or is about to be tried again."""
    RESTING = "resting"
    """It waits at a gate for a person, or is complete."""
    DEAD = "dead"
    """The machine has given up on it, or a person rejected it."""
    ARCHIVED = "archived"
    """Dead, and nobody touched it for a while: hidden from lists unless asked for."""


ENDED = frozenset({Phase.RESTING, Phase.ARCHIVED})
"""Nothing is owed to what is in one of these; a gate is among them, and is told from the end by its status."""


class Entity(Record, frozen=True, kw_only=True):
    """One thing on its way through a pipeline, as it stands."""

    entity_id: str
    """The caller's own, or a new UUID as text; told apart within its organization and pipeline."""
    org_id: UUID
    pipeline: str
    status: str
    phase: Phase
    data: dict[str, Any] = {}
    """What it is about: the program's own, replaced by what a stage returns."""
    error_reason: str | None = None
    """Why its last stage failed, in a sentence for people."""
    metadata: dict[str, Any] = {}
    """The engine's own: `error` has the technical side of the last failure."""
    event_id: UUID | None = None
    """The event of its present stage. What any other event's stage did comes too late, and changes nothing."""
    created_at: Instant
    changed_at: Instant
    """When its status last changed."""
    version: int = 0
    """Grows with every write; a write names the version it was computed from."""


class EntityChange(Record, frozen=True):
    """One line of an entity's history."""

    at: Instant
    old_status: str | None
    new_status: str
    reason: str
    event_id: UUID | None
    """The event that brought it there; for a start and a retry the one that was sent."""


class EntityFilter(Record, frozen=True, kw_only=True):
    """Which entities of a pipeline."""

    pipeline: str
    status: str | None = None
    """Exact, as it is stored; not together with the archived ones alone."""
    archived: bool | None = False
    """False: without the archived ones; True: those alone; None: all."""
    archived_before: Instant = 0
    """Dead ones that died before this instant are archived, whether the keeper has come by or not."""
