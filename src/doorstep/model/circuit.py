"""A circuit: what is remembered of an endpoint's recent failures, shared by all workers."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.record import Record


class CircuitState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Circuit(Record, frozen=True, kw_only=True):
    """An endpoint without a stored circuit is closed and has no failures."""

    endpoint_id: UUID
    state: CircuitState = CircuitState.CLOSED
    failures: int = 0
    """Consecutive failures that blame the endpoint."""
    failing_since: Instant | None = None
    """The first failure after the last success."""
    changed_at: Instant = 0
    until: Instant | None = None
    """Open: when a probe may go. Half-open: when the probe counts as lost and another may go. Closed, with failures:
    when the last one was."""
    version: int = 0
    """Grows with every write; a write names the version it was computed from."""


class CircuitChange(Record, frozen=True):
    """One line of a circuit's history."""

    at: Instant
    old_state: CircuitState
    new_state: CircuitState
    reason: str
