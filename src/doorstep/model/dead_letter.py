"""A dead letter as a program is told of it: what the machine has given up on, and why."""

from __future__ import annotations

from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.noun import Noun


class DeadLetter(Noun, frozen=True, kw_only=True):
    """What a function that is told of dead letters is given."""

    delivery_id: UUID
    event_id: UUID
    event_type: str
    endpoint: str
    """The endpoint's name; of a handler, its function's."""
    code: str
    reason: str
    """A sentence for people."""
    attempts: int
    org_id: UUID
    at: Instant
