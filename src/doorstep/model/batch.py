"""Batches: events that are submitted as a whole to a batch endpoint, from the point of view of the submitter.

A batch is a view of its event. Its status follows from its single batch delivery. Deliveries of the event to other
endpoints do not affect it.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from doorstep.clock import Instant, to_datetime
from doorstep.model.attempt import Attempt
from doorstep.model.delivery import DEAD_STATES, DONE_STATES, OPEN_STATES, Delivery, DeliveryState, Hold
from doorstep.model.listing import PagedQuery
from doorstep.model.record import Record


class BatchStatus(StrEnum):
    """The status of a batch, derived from the state of its delivery."""

    PENDING = "PENDING"
    """Not yet submitted, in progress, or waiting for a retry."""
    CONFIRMED = "CONFIRMED"
    """The carrier accepted it, or an operator resolved it."""
    FAILED = "FAILED"
    """It failed permanently, or was cancelled."""


STATES: dict[BatchStatus, frozenset[DeliveryState]] = {
    BatchStatus.PENDING: OPEN_STATES,
    BatchStatus.CONFIRMED: DONE_STATES,
    BatchStatus.FAILED: DEAD_STATES | {DeliveryState.CANCELLED},
}
"""The delivery states that each batch status covers. Every delivery state belongs to exactly one batch status."""

_STATUS = {state: status for status, states in STATES.items() for state in states}


class Held(Record, frozen=True):
    """Why a batch is not submitted, and until when; None if nobody knows."""

    reason: str
    until: datetime | None


class Batch(Record, frozen=True, kw_only=True):
    """An event that is submitted as a whole, with its current status."""

    batch_id: UUID
    """The id of its event."""
    org_id: UUID
    event_type: str
    endpoint_id: UUID
    delivery_id: UUID | None = None
    """The id of its delivery; None only in the result of `submit`."""
    status: BatchStatus
    created_at: datetime
    attempts: int = 0
    """The total number of submissions, including those before a resubmission."""
    retry_attempts: int = 0
    """Retries used since the batch was submitted or last resubmitted."""
    retries_max: int
    last_attempt_at: datetime | None = None
    next_retry_at: datetime | None = None
    """When it will really be submitted again; None if nobody knows."""
    held: Held | None = None
    """Why it is not submitted although it may be due."""
    settled_at: datetime | None = None
    """When it was confirmed or failed."""
    error_code: str | None = None
    """The code of the latest failure; None if the batch is confirmed."""
    error_reason: str | None = None


class BatchFilter(PagedQuery[Delivery], frozen=True, kw_only=True):
    """Batch deliveries, newest first. They are sorted by id, which is the order of creation. Deleted ones are
    excluded."""

    status: BatchStatus | None = None
    event_type: str | None = None
    """An exact event type, or a pattern whose final `*` matches any ending."""

    @property
    def states(self) -> frozenset[DeliveryState]:
        """The delivery states to list."""
        return frozenset(DeliveryState) if self.status is None else STATES[self.status]


class SubmissionAttempt(Record, frozen=True, kw_only=True):
    """One submission of a batch in the carrier log."""

    number: int
    at: datetime
    """When it ended."""
    error_code: str | None
    """None if the carrier accepted the batch."""
    error_reason: str | None
    carrier_response: str
    """The response of the carrier, word for word, up to the size limit."""
    next_retry_at: datetime | None
    late: bool
    """Whether the result arrived after another worker had taken over the batch and therefore changed nothing. The
    carrier may still have received this submission."""


def batch_of(delivery: Delivery, next_retry_at: Instant | None, hold: Hold | None) -> Batch:
    """The batch of a batch delivery, with what holds it."""
    return Batch(
        batch_id=delivery.event_id,
        org_id=delivery.org_id,
        event_type=delivery.event_type,
        endpoint_id=delivery.endpoint_id,
        delivery_id=delivery.delivery_id,
        status=_STATUS[delivery.state],
        created_at=to_datetime(delivery.created_at),
        attempts=delivery.attempt,
        retry_attempts=delivery.retry_attempts,
        retries_max=delivery.retries_max,
        last_attempt_at=_time(delivery.last_attempt_at),
        next_retry_at=_time(next_retry_at),
        held=None if hold is None else Held(hold.reason, _time(hold.until)),
        settled_at=_time(delivery.settled_at),
        error_code=delivery.code,
        error_reason=delivery.reason,
    )


def submission_of(attempt: Attempt) -> SubmissionAttempt:
    return SubmissionAttempt(
        number=attempt.number,
        at=to_datetime(attempt.finished_at),
        error_code=attempt.code,
        error_reason=attempt.reason or None,
        carrier_response=attempt.response_body.decode("utf-8", "replace"),
        next_retry_at=_time(attempt.next_retry_at),
        late=attempt.late,
    )


def _time(at: Instant | None) -> datetime | None:
    return None if at is None else to_datetime(at)
