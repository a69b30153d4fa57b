"""Batches and their carrier log."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

from doorstep.client.answers.answer import Answered


class Batch(Answered, frozen=True, kw_only=True):
    """A batch as it stands. Its id is that of its event."""

    batch_id: UUID
    event_type: str
    endpoint_id: UUID
    delivery_id: UUID
    status: Literal["PENDING", "CONFIRMED", "FAILED"]
    created_at: datetime
    attempts: int
    """Submissions in all, those before a resubmission too."""
    retry_attempts: int
    """Retries used since it was submitted, or last resubmitted."""
    retries_max: int
    last_attempt_at: datetime | None
    next_retry_at: datetime | None
    settled_at: datetime | None
    """When it was confirmed or failed."""
    error_code: str | None
    error_reason: str | None


class Submission(Answered, frozen=True, kw_only=True):
    """One submission of a batch. Without an error code, the carrier took it."""

    number: int
    at: datetime
    error_code: str | None
    error_reason: str | None
    carrier_response: str
    next_retry_at: datetime | None
    late: bool
