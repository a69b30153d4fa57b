"""The shapes of endpoints, and how the model's values become them and come from them."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from pydantic import Field

from doorstep.api.limits import (
    Code,
    CodeMap,
    ConcurrencyMax,
    DisableAfterSeconds,
    EventTypes,
    FailuresMax,
    Headers,
    Name,
    OpenSeconds,
    OverlapSeconds,
    Rate,
    TimeoutSeconds,
)
from doorstep.api.policy_schemas import Policies, PolicyIn, PolicyShape, policy_form
from doorstep.api.schemas import Asked, Moment, Pagination, Shape, Timestamp
from doorstep.api.slo_schemas import SloShape
from doorstep.clock import to_iso
from doorstep.errors import InvalidInput
from doorstep.model.endpoint import CircuitRules, Endpoint
from doorstep.path.enrol import EndpointForm

StateName = Literal["active", "paused", "disabled", "deleted"]
Signing = Literal["v1", "v1a"]


class CircuitShape(Shape):
    """After how many failures in a row it opens, for how long, and after how long the endpoint is disabled."""

    failures_max: FailuresMax = CircuitRules().failures_max
    open_seconds: OpenSeconds = CircuitRules().open_seconds
    disable_after_seconds: DisableAfterSeconds = CircuitRules().disable_after_seconds

    @classmethod
    def of(cls, rules: CircuitRules) -> CircuitShape:
        return cls(
            failures_max=rules.failures_max,
            open_seconds=float(rules.open_seconds),
            disable_after_seconds=float(rules.disable_after_seconds),
        )


class EndpointIn(Shape):
    """A receiver: a URL, or the name of a Python handler that workers have registered."""

    name: Name
    url: str | None = None
    handler: Name | None = None
    event_types: EventTypes = Field(default=["*"], max_length=1_000)
    policy: PolicyIn | None = None
    """A policy's name, its delays in seconds, or all of it."""
    policy_by_event_type: Policies = Field(default={}, max_length=100)
    """For some event types (`order.paid`, `order.*`) another one; the most specific counts."""
    timeout_seconds: TimeoutSeconds | None = None
    concurrency_max: ConcurrencyMax | None = None
    rate_per_second: Rate | None = None
    headers: Headers = Field(default={}, max_length=100)
    retry_on: list[Code] = Field(default=[], max_length=100)
    give_up_on: list[Code] = Field(default=[], max_length=100)
    code_map: CodeMap = Field(default={}, max_length=1_000)
    circuit: CircuitShape = CircuitShape()
    slo: SloShape | None = None
    """Its own target; without one that of the organization counts, see `PUT /v1/slo/default`."""
    envelope: bool = False
    """Deliver `{"type", "timestamp", "data"}` with the payload as data, instead of the payload alone."""
    batch: bool = False
    """What goes to it are batches: `/v1/batches` finds them by status and resubmits them."""
    signing: Signing = "v1"
    """`v1`: HMAC-SHA256 with a shared secret; `v1a`: Ed25519, of which the receiver has the public key."""

    def form(self) -> EndpointForm:
        given: dict[str, Any] = {name: getattr(self, name) for name in type(self).model_fields}
        return EndpointForm(**{name: _as_form(name, value) for name, value in given.items()})


class EndpointPatch(Shape):
    """What is to change. A field that is left out stays as it is; null puts it back to its default."""

    name: Name = ""
    """Cannot be put back to a default: it has none."""
    url: str | None = None
    handler: Name | None = None
    event_types: EventTypes | None = Field(default=None, max_length=1_000)
    policy: PolicyIn | None = None
    policy_by_event_type: Policies | None = Field(default=None, max_length=100)
    timeout_seconds: TimeoutSeconds | None = None
    concurrency_max: ConcurrencyMax | None = None
    rate_per_second: Rate | None = None
    headers: Headers | None = Field(default=None, max_length=100)
    retry_on: list[Code] | None = Field(default=None, max_length=100)
    give_up_on: list[Code] | None = Field(default=None, max_length=100)
    code_map: CodeMap | None = Field(default=None, max_length=1_000)
    circuit: CircuitShape | None = None
    slo: SloShape | None = None
    envelope: bool | None = None
    batch: bool | None = None
    version: int | None = None
    """The version that the change was made for: if it is no longer the newest, the answer is a 409."""

    def changes(self) -> dict[str, Any]:
        names = self.model_fields_set - {"version"}
        if not names:
            raise InvalidInput("body", "must change something; name at least one field")
        return {name: self._new_value(name) for name in sorted(names)}

    def _new_value(self, name: str) -> object:
        value = getattr(self, name)
        return getattr(_DEFAULTS, name) if value is None else _as_form(name, value)


_DEFAULTS = EndpointForm(name="")


def _as_form(name: str, value: Any) -> Any:
    match name:
        case "policy":
            return None if value is None else policy_form(value)
        case "policy_by_event_type":
            return {pattern: policy_form(policy) for pattern, policy in value.items()}
        case "circuit":
            return CircuitRules(**value.model_dump())
        case "slo":
            return None if value is None else value.slo()
    return tuple(value) if isinstance(value, list) else value


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
    slo: SloShape | None
    envelope: bool
    batch: bool
    signing: Signing
    public_key: str | None
    """`v1a`: what receivers verify with."""
    state: StateName
    state_reason: str
    created_at: Timestamp
    updated_at: Timestamp
    version: int

    @classmethod
    def of(cls, endpoint: Endpoint) -> EndpointOut:
        return cls(**_endpoint_fields(endpoint))


class NewEndpointOut(EndpointOut):
    """The answer to its creation: the only one that holds the signing secret (with `v1a`, the public key)."""

    secret: str

    @classmethod
    def with_secret(cls, endpoint: Endpoint, secret: str) -> NewEndpointOut:
        return cls(**_endpoint_fields(endpoint), secret=secret)


class EndpointsOut(Shape):
    endpoints: list[EndpointOut]
    pagination: Pagination


class EndpointsAsked(Asked):
    state: Literal["active", "paused", "disabled"] | None = None


class ResumeIn(Shape):
    """How what has waited meanwhile is to go: at once, at a rate, or without what is too old."""

    drain_per_second: Rate | None = None
    skip_older_than: Moment | None = None
    """What was accepted before this time becomes dead letters."""


class RotateIn(Shape):
    overlap_seconds: OverlapSeconds = 86_400.0
    """For how long the old secret goes on signing beside the new one; at most 30 days."""
    signing: Signing | None = None
    """To change the kind of signature with it."""


class RotatedOut(Shape):
    """The new signing secret (with `v1a`, the public key), which cannot be seen again."""

    endpoint_id: UUID
    secret: str
    old_secret_expires_at: Timestamp | None


def _endpoint_fields(endpoint: Endpoint) -> dict[str, Any]:
    signing = endpoint.signing_secret
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
        "slo": None if endpoint.slo is None else SloShape.of(endpoint.slo),
        "envelope": endpoint.envelope,
        "batch": endpoint.batch,
        "signing": "v1" if signing is None else signing.scheme,
        "public_key": None if signing is None else signing.public_key or None,
        "state": endpoint.state.value,
        "state_reason": endpoint.state_reason,
        "created_at": to_iso(endpoint.created_at),
        "updated_at": to_iso(endpoint.updated_at),
        "version": endpoint.version,
    }
