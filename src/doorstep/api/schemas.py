"""The shapes that the API takes and answers with, and how the model's values become them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from doorstep.clock import Instant, from_datetime, to_iso
from doorstep.errors import InvalidInput
from doorstep.model.attempt import Attempt
from doorstep.model.delivery import Delivery
from doorstep.model.endpoint import CircuitRules, Endpoint
from doorstep.model.event import EventView
from doorstep.model.retry_policy import RetryPolicy

Timestamp = Annotated[str, Field(json_schema_extra={"format": "date-time"}, examples=["2026-01-31T12:00:00.000000Z"])]
"""ISO 8601 in UTC, with microseconds and a Z."""

_LATEST: Instant = from_datetime(datetime.fromisoformat("9000-01-01T00:00:00Z"))


def iso(instant: Instant | None) -> str | None:
    return None if instant is None else to_iso(instant)


def instant_from(value: datetime | None, field: str) -> Instant | None:
    """A time that someone sent; it needs a zone, and must be one that every part of the world can write down."""
    if value is None:
        return None
    try:
        instant = from_datetime(value)
    except ValueError as error:
        raise InvalidInput(field, str(error)) from None
    if not 0 <= instant <= _LATEST:
        raise InvalidInput(field, f"must be between the years 1970 and 9000, got {value.isoformat()}")
    return instant


class Shape(BaseModel):
    """Numbers must be finite, and what is not known is refused rather than ignored."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, strict=True)


# -- lists -----------------------------------------------------------------------------------------------------


class Pagination(Shape):
    limit: int
    cursor: str | None
    has_more: bool
    total_count: int

    @classmethod
    def whole(cls, items: Sequence[object]) -> Pagination:
        """For lists that are always given whole."""
        return cls(limit=len(items), cursor=None, has_more=False, total_count=len(items))


# -- events ----------------------------------------------------------------------------------------------------


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

    @classmethod
    def of(cls, delivery: Delivery) -> DeliveryOut:
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


# -- endpoints -------------------------------------------------------------------------------------------------


class PolicyShape(Shape):
    delays: list[float] = Field(max_length=100)
    jitter: float = 0.1
    deadline_seconds: float | None = None
    name: str = ""

    @classmethod
    def of(cls, policy: RetryPolicy) -> PolicyShape:
        return cls(
            delays=[float(delay) for delay in policy.delays],
            jitter=float(policy.jitter),
            deadline_seconds=policy.deadline_seconds,
            name=policy.name,
        )


class CircuitShape(Shape):
    failures_max: int = CircuitRules().failures_max
    open_seconds: float = CircuitRules().open_seconds
    disable_after_seconds: float = CircuitRules().disable_after_seconds

    @classmethod
    def of(cls, rules: CircuitRules) -> CircuitShape:
        return cls(
            failures_max=rules.failures_max,
            open_seconds=float(rules.open_seconds),
            disable_after_seconds=float(rules.disable_after_seconds),
        )


class EndpointIn(Shape):
    """A receiver: a URL, or the name of a Python handler that workers have registered."""

    name: str
    url: str | None = None
    handler: str | None = None
    event_types: list[str] = Field(default=["*"], max_length=1_000)
    policy: str | list[float] | PolicyShape | None = None
    """A policy's name, its delays in seconds, or all of it."""
    timeout_seconds: float | None = None
    concurrency_max: int | None = None
    rate_per_second: float | None = None
    headers: dict[str, str] = Field(default={}, max_length=100)
    retry_on: list[str] = Field(default=[], max_length=100)
    give_up_on: list[str] = Field(default=[], max_length=100)
    code_map: dict[str, str] = Field(default={}, max_length=1_000)
    circuit: CircuitShape = CircuitShape()


class EndpointOut(Shape):
    """An endpoint. Its secret and the values of its headers are never shown."""

    endpoint_id: UUID
    name: str
    url: str | None
    handler: str | None
    event_types: list[str]
    policy: PolicyShape | None
    timeout_seconds: float | None
    concurrency_max: int | None
    rate_per_second: float | None
    retry_on: list[str]
    give_up_on: list[str]
    code_map: dict[str, str]
    circuit: CircuitShape
    state: str
    state_reason: str
    created_at: Timestamp

    @classmethod
    def of(cls, endpoint: Endpoint) -> EndpointOut:
        return cls(**_endpoint_fields(endpoint))


class NewEndpointOut(EndpointOut):
    """The answer to its creation: the only one that holds the signing secret."""

    secret: str

    @classmethod
    def with_secret(cls, endpoint: Endpoint, secret: str) -> NewEndpointOut:
        return cls(**_endpoint_fields(endpoint), secret=secret)


class EndpointsOut(Shape):
    endpoints: list[EndpointOut]
    pagination: Pagination


def _endpoint_fields(endpoint: Endpoint) -> dict[str, Any]:
    return {
        "endpoint_id": endpoint.endpoint_id,
        "name": endpoint.name,
        "url": endpoint.url,
        "handler": endpoint.handler,
        "event_types": list(endpoint.event_types),
        "policy": None if endpoint.policy is None else PolicyShape.of(endpoint.policy),
        "timeout_seconds": endpoint.timeout_seconds,
        "concurrency_max": endpoint.concurrency_max,
        "rate_per_second": endpoint.rate_per_second,
        "retry_on": list(endpoint.retry_on),
        "give_up_on": list(endpoint.give_up_on),
        "code_map": endpoint.code_map,
        "circuit": CircuitShape.of(endpoint.circuit),
        "state": endpoint.state.value,
        "state_reason": endpoint.state_reason,
        "created_at": to_iso(endpoint.created_at),
    }
