"""Batches and their carrier log."""

from __future__ import annotations

from typing import Literal, TypeAlias
from uuid import UUID

from doorstep.schemas.shape import Answer, CountedPagination, EventTypePattern, Listing, ListQuery, Pagination, Time

BatchStatus: TypeAlias = Literal["PENDING", "CONFIRMED", "FAILED"]


class BatchesQuery(ListQuery, frozen=True, kw_only=True):
    """Filters of the batches."""

    status: BatchStatus | None = None
    event_type: EventTypePattern | None = None


class Batch(Answer, frozen=True):
    """A batch. Its status is PENDING, then CONFIRMED or FAILED. Its id is the id of its event."""

    batch_id: UUID
    event_type: str
    endpoint_id: UUID
    delivery_id: UUID
    status: BatchStatus
    created_at: Time
    attempts: int
    """All submissions, including those before a resubmission."""
    retry_attempts: int
    """Retries used since the last (re)submission."""
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
    """One submission of a batch. If there is no error code, the carrier accepted it."""

    number: int
    at: Time
    error_code: str | None
    error_reason: str | None
    carrier_response: str
    """The stored part of the carrier's response."""
    next_retry_at: Time | None
    late: bool
    """Whether the result arrived after the lease had ended. It changed nothing, but the carrier may have the batch."""


class SubmissionPage(Listing[Submission], frozen=True):
    """The carrier log of a batch."""

    attempts: tuple[Submission, ...]
    pagination: CountedPagination
