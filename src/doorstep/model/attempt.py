"""An attempt: one try, numbered from 1, kept for operators and auditors."""

from __future__ import annotations

from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.noun import Noun
from doorstep.model.outcome import UNSEEN, Timings


class Attempt(Noun, frozen=True, kw_only=True):
    """One row of the attempt log. The request body is the payload that was in force, byte for byte."""

    delivery_id: UUID
    number: int
    started_at: Instant
    finished_at: Instant
    timings: Timings
    request_headers: bytes
    response_code: int | None
    response_headers: bytes
    response_body: bytes
    category: str | None
    code: str | None
    reason: str
    detail: str
    worker: str
    next_retry_at: Instant | None
    late: bool
    """The lease had ended and someone else held the delivery: kept for the record, it changed nothing."""

    @property
    def was_sent(self) -> bool:
        """Whether a request is known to have been made, or a handler called. Its row has a correlation id anyway."""
        return b"webhook-id:" in self.request_headers or self.code not in UNSEEN
