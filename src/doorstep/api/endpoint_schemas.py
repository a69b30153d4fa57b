"""The shapes of endpoints and their policies, and how the model's values become them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from pydantic import Field

from doorstep.api.schemas import Pagination, Shape, Timestamp
from doorstep.clock import to_iso
from doorstep.model.endpoint import CircuitRules, Endpoint
from doorstep.model.retry_policy import RetryPolicy


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


PolicyIn = str | list[float] | PolicyShape


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
    policy: PolicyIn | None = None
    """A policy's name, its delays in seconds, or all of it."""
    policy_by_event_type: dict[str, PolicyIn] = Field(default={}, max_length=100)
    """For some event types (`order.paid`, `order.*`) another one; the most specific counts."""
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
    policy_by_event_type: dict[str, PolicyShape]
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
        "policy_by_event_type": {key: PolicyShape.of(value) for key, value in endpoint.policy_by_event_type.items()},
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
