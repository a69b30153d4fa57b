"""A settlement: what is written about one try, decided beforehand as data and written in one place."""

from __future__ import annotations

from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.claim import Claim
from doorstep.model.delivery import DeliveryState
from doorstep.model.event import EventStatus
from doorstep.model.noun import Noun
from doorstep.model.outcome import Outcome


class Settlement(Noun, frozen=True):
    """Made only by the named constructors, so that no impossible combination can be written."""

    claim: Claim
    outcome: Outcome
    state: DeliveryState
    due_at: Instant | None
    retries_max: int

    @classmethod
    def delivered(cls, claim: Claim, outcome: Outcome) -> Settlement:
        return cls(claim, outcome, DeliveryState.DELIVERED, None, claim.retries_max)

    @classmethod
    def retry(cls, claim: Claim, outcome: Outcome, due_at: Instant, retries_max: int) -> Settlement:
        return cls(claim, outcome, DeliveryState.PENDING, due_at, retries_max)

    @classmethod
    def dead(cls, claim: Claim, outcome: Outcome) -> Settlement:
        return cls(claim, outcome, DeliveryState.DEAD, None, claim.retries_max)


class StatusChange(Noun, frozen=True):
    """An event whose status was changed by a write."""

    event_id: UUID
    org_id: UUID
    correlation_id: str
    old_status: EventStatus | None
    new_status: EventStatus
    retry_attempts: int = 0


class Settled(Noun, frozen=True):
    """What a settle call wrote: which claims came too late, and which events changed their status."""

    late: tuple[Claim, ...] = ()
    changes: tuple[StatusChange, ...] = ()
