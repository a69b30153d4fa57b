"""Batches and their carrier log."""

from __future__ import annotations

from typing import Literal, TypeAlias
from uuid import UUID

from doorstep.schemas.shape import Answer, CountedPagination, EventTypePattern, Listing, ListQuery, Pagination, Time

BatchStatus: TypeAlias = Literal["PENDING", "CONFIRMED", "FAILED"]


class BatchesQuery(ListQuery, frozen=True, kw_only=True):
    """Which batches."""

    status: BatchStatus | None = None
    event_type: EventTypePattern | None = None


class Batch(Answer, frozen=True):
    """A batch: PENDING, then CONFIRMED or FAILED. Its id is that of its event."""

    batch_id: UUID
    event_type: str
    endpoint_id: UUID
    delivery_id: UUID
    status: BatchStatus
    created_at: Time
    attempts: int
    """Submissions in all, those before a resubmission too."""
    retry_attempts: int
    """Retries used since it was submitted, or last resubmitted."""
    retries_max: int
    last_attempt_at: Time | None
    next_retry_at: Time | None
    settled_at: Time | None
    """When it was confirmed or failed."""
    error_code: str | None
    error_reason: str | None


class BatchPage(Listing[Batch], frozen=True):
    """One page of the batches."""

    batches: tuple[Batch, ...]
    pagination: Pagination


class Submission(Answer, frozen=True):
    """One submission of a batch. Without an error code, the carrier took it."""

    number: int
    at: Time
    error_code: str | None
    error_reason: str | None
    carrier_response: str
    """What the carrier said, word for word, as far as it is kept."""
    next_retry_at: Time | None
    late: bool
    """Its result came when somebody else had the batch: the carrier may have it, and nothing else was changed."""


class SubmissionPage(Listing[Submission], frozen=True):
    """The carrier log of a batch."""

    attempts: tuple[Submission, ...]
    pagination: CountedPagination
