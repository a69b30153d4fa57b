"""The shapes of events, deliveries and attempts, and how the model's values become them."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from doorstep.api.schemas import Pagination, Shape, Timestamp, iso
from doorstep.clock import to_iso
from doorstep.model.attempt import Attempt
from doorstep.model.delivery import Delivery
from doorstep.model.event import EventView


class EventStatusOut(Shape):
    """Where an event stands. Never the payload."""

    event_id: UUID
    status: Literal["received", "queued", "delivered", "failed"]
    retry_attempts: int
    last_retry_at: Timestamp | None
    failed_at: Timestamp | None
    next_retry_at: Timestamp | None

    @classmethod
    def of(cls, view: EventView) -> EventStatusOut:
        return cls(
            event_id=view.event.event_id,
            status=view.status.value,
            retry_attempts=view.retry_attempts,
            last_retry_at=iso(view.last_retry_at),
            failed_at=iso(view.failed_at),
            next_retry_at=iso(view.next_retry_at),
        )


class DeliveryOut(Shape):
    """One event owed to one endpoint."""

    delivery_id: UUID
    event_id: UUID
    endpoint_id: UUID
    event_type: str
    state: str
    attempts: int
    retry_attempts: int
    retries_max: int
    created_at: Timestamp
    due_at: Timestamp | None
    next_retry_at: Timestamp | None
    last_attempt_at: Timestamp | None
    settled_at: Timestamp | None
    response_code: int | None
    error_category: str | None
    error_code: str | None
    remark: str | None
    """How it stands or ended, in a sentence."""
    held: str | None
    """Why it is not tried although it may be due, in a sentence."""

    @classmethod
    def of(cls, delivery: Delivery, held: str | None) -> DeliveryOut:
        return cls(
            delivery_id=delivery.delivery_id,
            event_id=delivery.event_id,
            endpoint_id=delivery.endpoint_id,
            event_type=delivery.event_type,
            state=delivery.state.value,
            attempts=delivery.attempt,
            retry_attempts=delivery.retry_attempts,
            retries_max=delivery.retries_max,
            created_at=to_iso(delivery.created_at),
            due_at=iso(delivery.due_at),
            next_retry_at=iso(delivery.next_retry_at),
            last_attempt_at=iso(delivery.last_attempt_at),
            settled_at=iso(delivery.settled_at),
            response_code=delivery.response_code,
            error_category=delivery.category,
            error_code=delivery.code,
            remark=delivery.remark,
            held=held,
        )


class EventOut(EventStatusOut):
    """An event in full: what was accepted, where it stands, and what it owes."""

    event_type: str
    created_at: Timestamp
    correlation_id: str
    deliver_at: Timestamp | None
    expires_at: Timestamp | None
    metadata: Any
    payload: Any
    """Exactly the bytes that were accepted."""
    deliveries: list[DeliveryOut]


class AttemptOut(Shape):
    """One try. The request's body is the event's payload, byte for byte."""

    delivery_id: UUID
    number: int
    started_at: Timestamp
    finished_at: Timestamp
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
    next_retry_at: Timestamp | None
    late: bool

    @classmethod
    def of(cls, attempt: Attempt) -> AttemptOut:
        return cls(
            delivery_id=attempt.delivery_id,
            number=attempt.number,
            started_at=to_iso(attempt.started_at),
            finished_at=to_iso(attempt.finished_at),
            duration_ms=(attempt.finished_at - attempt.started_at) / 1_000,
            dns_ms=attempt.timings.dns / 1_000,
            connect_ms=attempt.timings.connect / 1_000,
            tls_ms=attempt.timings.tls / 1_000,
            first_byte_ms=attempt.timings.first_byte / 1_000,
            request_headers=attempt.request_headers.decode("utf-8", "replace"),
            response_code=attempt.response_code,
            response_headers=attempt.response_headers.decode("utf-8", "replace"),
            response_body=attempt.response_body.decode("utf-8", "replace"),
            error_category=attempt.category,
            error_code=attempt.code,
            error_reason=attempt.reason,
            error_detail=attempt.detail,
            worker=attempt.worker,
            next_retry_at=iso(attempt.next_retry_at),
            late=attempt.late,
        )


class AttemptsOut(Shape):
    attempts: list[AttemptOut]
    pagination: Pagination
