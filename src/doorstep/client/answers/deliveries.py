"""Deliveries and what is known of them: attempts, history, dead letters and their causes."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from doorstep.client.answers.answer import Answered


class Delivery(Answered, frozen=True, kw_only=True):
    """One event owed to one endpoint."""

    delivery_id: UUID
    event_id: UUID
    endpoint_id: UUID
    event_type: str
    state: str
    attempts: int
    retry_attempts: int
    retries_max: int
    created_at: datetime
    due_at: datetime | None
    next_retry_at: datetime | None
    last_attempt_at: datetime | None
    settled_at: datetime | None
    response_code: int | None
    error_category: str | None
    error_code: str | None
    edited: bool
    """An operator gave it another payload than its event has."""
    remark: str | None
    """How it stands or ended, in a sentence."""
    held: str | None
    """Why it is not tried although it may be due, in a sentence."""


class QueuedDelivery(Delivery, frozen=True, kw_only=True):
    """A delivery in the retry queue: it failed at least once and will be tried again."""

    endpoint_name: str
    error: str | None
    error_reason: str | None
    retry_count: str
    """`1 / 3`."""
    first_failed_at: datetime | None


class DeadLetter(QueuedDelivery, frozen=True, kw_only=True):
    """A delivery that the machine has given up on."""

    cause: str | None
    """Dead letters with the same cause have the same endpoint, code and (normalised) message."""


class CauseGroup(Answered, frozen=True, kw_only=True):
    """The dead letters of one cause."""

    cause: str
    endpoint_id: UUID
    endpoint_name: str
    error_code: str | None
    error_reason: str | None
    count: int
    count_is_floor: bool
    first_died_at: datetime
    last_died_at: datetime
    sample_delivery_id: UUID


class Attempt(Answered, frozen=True, kw_only=True):
    """One try."""

    delivery_id: UUID
    number: int
    started_at: datetime
    finished_at: datetime
    duration_ms: float
    dns_ms: float
    connect_ms: float
    tls_ms: float
    first_byte_ms: float
    request_headers: str
    response_code: int | None
    response_headers: str
    response_body: str
    error_category: str | None
    error_code: str | None
    error_reason: str
    error_detail: str
    worker: str
    next_retry_at: datetime | None
    late: bool


class Transition(Answered, frozen=True, kw_only=True):
    """One line of a delivery's history."""

    at: datetime
    old_state: str | None
    new_state: str
    attempt: int
    note: str
