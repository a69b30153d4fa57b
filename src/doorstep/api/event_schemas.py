"""The shapes of events, deliveries and attempts, and how the model's values become them."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from doorstep.api.event_items import StatusName
from doorstep.api.schemas import CountedPagination, Id, Reason, Shape, Timestamp, iso
from doorstep.clock import to_iso
from doorstep.model.act import ActResult
from doorstep.model.attempt import Attempt
from doorstep.model.delivery import Delivery, HistoryLine

StateName = Literal["pending", "in_progress", "delivered", "dead", "resolved", "archived", "cancelled"]


class DeliveryOut(Shape):
    """One event owed to one endpoint."""

    delivery_id: UUID
    event_id: UUID
    endpoint_id: UUID
    event_type: str
    state: StateName
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
    edited: bool
    """An operator gave it a payload of its own, which is delivered instead of the event's."""
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
            edited=delivery.edited,
            remark=delivery.remark,
            held=held,
        )


class EventOut(Shape):
    """An event in full: what was accepted, where it stands, and what it owes."""

    event_id: UUID
    status: StatusName
    retry_attempts: int
    last_retry_at: Timestamp | None
    failed_at: Timestamp | None
    next_retry_at: Timestamp | None
    refusal: str | None
    """Why it was set aside in the outbox, where it can never be accepted; null for every other event."""
    event_type: str
    created_at: Timestamp
    correlation_id: str
    deliver_at: Timestamp | None
    expires_at: Timestamp | None
    ordering_key: str | None
    metadata: dict[str, Any]
    payload: Any
    """Exactly the bytes that were accepted."""
    deliveries: list[DeliveryOut]


class ReasonIn(Shape):
    reason: Reason = ""


class ReplayEventIn(Shape):
    endpoint_id: Id


class AcknowledgedOut(Shape):
    event_id: UUID
    status: Literal["delivered"]


class RefusedOut(Shape):
    """A delivery that was left alone, and the state that did not allow it."""

    delivery_id: UUID
    state: StateName | None


class RetriedOut(Shape):
    event_id: UUID
    retried: list[UUID]
    refused: list[RefusedOut]


class CancelledOut(Shape):
    event_id: UUID
    cancelled: list[UUID]
    refused: list[RefusedOut]


def refused_out(result: ActResult) -> list[RefusedOut]:
    return [
        RefusedOut(delivery_id=delivery_id, state=None if state is None else state.value)
        for delivery_id, state in result.refused.items()
    ]


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
    pagination: CountedPagination


class HistoryLineOut(Shape):
    """One change of a delivery's state. The first line, its acceptance, has no old state."""

    at: Timestamp
    old_state: StateName | None
    new_state: StateName
    attempt: int
    note: str

    @classmethod
    def of(cls, line: HistoryLine) -> HistoryLineOut:
        return cls(
            at=to_iso(line.at),
            old_state=None if line.old_state is None else line.old_state.value,
            new_state=line.new_state.value,
            attempt=line.attempt,
            note=line.note,
        )


class HistoryOut(Shape):
    history: list[HistoryLineOut]
    pagination: CountedPagination
