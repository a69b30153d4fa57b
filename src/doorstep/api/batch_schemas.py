"""The shapes of batches and of their submissions."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from doorstep.api.delivery_items import Pattern
from doorstep.api.schemas import Asked, CountedPagination, Pagination, Shape, Timestamp, iso
from doorstep.clock import to_iso
from doorstep.model.batch import Batch, BatchStatus, SubmissionAttempt

BatchStatusName = Literal["PENDING", "CONFIRMED", "FAILED"]


class BatchesAsked(Asked):
    status: BatchStatusName | None = None
    event_type: Pattern | None = None

    @property
    def wanted_status(self) -> BatchStatus | None:
        return None if self.status is None else BatchStatus(self.status)


class BatchOut(Shape):
    """A batch: PENDING, then CONFIRMED or FAILED. Its id is that of its event."""

    batch_id: UUID
    event_type: str
    endpoint_id: UUID
    delivery_id: UUID
    status: BatchStatusName
    created_at: Timestamp
    attempts: int
    """Submissions in all, those before a resubmission too."""
    retry_attempts: int
    """Retries used since it was submitted, or last resubmitted."""
    retries_max: int
    last_attempt_at: Timestamp | None
    next_retry_at: Timestamp | None
    settled_at: Timestamp | None
    """When it was confirmed or failed."""
    error_code: str | None
    error_reason: str | None

    @classmethod
    def of(cls, batch: Batch) -> BatchOut:
        assert batch.delivery_id is not None, "one that was read has its delivery"
        return cls(
            batch_id=batch.batch_id,
            event_type=batch.event_type,
            endpoint_id=batch.endpoint_id,
            delivery_id=batch.delivery_id,
            status=batch.status.value,
            created_at=to_iso(batch.created_at),
            attempts=batch.attempts,
            retry_attempts=batch.retry_attempts,
            retries_max=batch.retries_max,
            last_attempt_at=iso(batch.last_attempt_at),
            next_retry_at=iso(batch.next_retry_at),
            settled_at=iso(batch.settled_at),
            error_code=batch.error_code,
            error_reason=batch.error_reason,
        )


class BatchesOut(Shape):
    batches: list[BatchOut]
    pagination: Pagination


class SubmissionOut(Shape):
    """One submission of a batch. Without an error code, the carrier took it."""

    number: int
    at: Timestamp
    error_code: str | None
    error_reason: str | None
    carrier_response: str
    """What the carrier said, word for word, as far as it is kept."""
    next_retry_at: Timestamp | None
    late: bool
    """Its result came when somebody else had the batch: the carrier may have it, and nothing else was changed."""

    @classmethod
    def of(cls, attempt: SubmissionAttempt) -> SubmissionOut:
        return cls(
            number=attempt.number,
            at=to_iso(attempt.at),
            error_code=attempt.error_code,
            error_reason=attempt.error_reason,
            carrier_response=attempt.carrier_response,
            next_retry_at=iso(attempt.next_retry_at),
            late=attempt.late,
        )


class SubmissionsOut(Shape):
    attempts: list[SubmissionOut]
    pagination: CountedPagination
