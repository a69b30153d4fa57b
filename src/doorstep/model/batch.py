"""A batch: an event that a batch endpoint submits as a whole, seen as those who submitted it see it.

It is a view. The batch is its event, and how it stands is how its one batch delivery stands, whatever other endpoints
the event also goes to.
"""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.attempt import Attempt
from doorstep.model.delivery import DEAD_STATES, DONE_STATES, OPEN_STATES, Delivery, DeliveryState
from doorstep.model.record import Record


class BatchStatus(StrEnum):
    """Where a batch stands: a view of the state of its delivery."""

    PENDING = "PENDING"
    """Not yet submitted, under way, or waiting for its next try."""
    CONFIRMED = "CONFIRMED"
    """The other side has taken it, or an operator said that it needs no submission."""
    FAILED = "FAILED"
    """Nothing is left to try: given up, or cancelled."""


STATES: dict[BatchStatus, frozenset[DeliveryState]] = {
    BatchStatus.PENDING: OPEN_STATES,
    BatchStatus.CONFIRMED: DONE_STATES,
    BatchStatus.FAILED: DEAD_STATES | {DeliveryState.CANCELLED},
}
"""The states of the batch delivery that each status stands for; every state has exactly one."""

_STATUS = {state: status for status, states in STATES.items() for state in states}


class Batch(Record, frozen=True, kw_only=True):
    """Something that is handed over as a whole, as it stands."""

    batch_id: UUID
    """That of its event."""
    org_id: UUID
    event_type: str
    endpoint_id: UUID
    delivery_id: UUID | None = None
    """None only in the answer to `submit`."""
    status: BatchStatus
    created_at: Instant
    attempts: int = 0
    """Submissions in all, those before a resubmission too."""
    retry_attempts: int = 0
    """Retries used since it was submitted, or last resubmitted."""
    retries_max: int
    last_attempt_at: Instant | None = None
    next_retry_at: Instant | None = None
    settled_at: Instant | None = None
    """When it was confirmed or failed."""
    error_code: str | None = None
    """Of the latest failure; None when it is confirmed."""
    error_reason: str | None = None


class BatchFilter(Record, frozen=True, kw_only=True):
    status: BatchStatus | None = None
    event_type: str | None = None
    """Exact, or a pattern whose final `*` stands for any rest."""

    @property
    def states(self) -> frozenset[DeliveryState]:
        """Those of the batch deliveries that are wanted."""
        return frozenset(DeliveryState) if self.status is None else STATES[self.status]


class SubmissionAttempt(Record, frozen=True, kw_only=True):
    """One submission of a batch, as the carrier log has it."""

    number: int
    at: Instant
    """When it ended."""
    error_code: str | None
    """None where the carrier took the batch."""
    error_reason: str | None
    carrier_response: str
    """What the carrier said, word for word, as far as it is kept."""
    next_retry_at: Instant | None
    late: bool
    """Its result came when somebody else had the batch: the carrier may have it, and nothing else was changed."""


def batch_of(delivery: Delivery) -> Batch:
    """The batch that a batch delivery submits."""
    return Batch(
        batch_id=delivery.event_id,
        org_id=delivery.org_id,
        event_type=delivery.event_type,
        endpoint_id=delivery.endpoint_id,
        delivery_id=delivery.delivery_id,
        status=_STATUS[delivery.state],
        created_at=delivery.created_at,
        attempts=delivery.attempt,
        retry_attempts=delivery.retry_attempts,
        retries_max=delivery.retries_max,
        last_attempt_at=delivery.last_attempt_at,
        next_retry_at=delivery.next_retry_at,
        settled_at=delivery.settled_at,
        error_code=delivery.code,
        error_reason=delivery.reason,
    )


def submission_of(attempt: Attempt) -> SubmissionAttempt:
    return SubmissionAttempt(
        number=attempt.number,
        at=attempt.finished_at,
        error_code=attempt.code,
        error_reason=attempt.reason or None,
        carrier_response=attempt.response_body.decode("utf-8", "replace"),
        next_retry_at=attempt.next_retry_at,
        late=attempt.late,
    )
