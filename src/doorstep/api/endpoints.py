"""Creating, reading, changing, holding and deleting endpoints."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from msgspec import UNSET, structs
from starlette.requests import Request

from doorstep.api.answers import all_of, position, shape, time_or_none
from doorstep.api.bodies import instant_from
from doorstep.api.deliveries import given
from doorstep.api.frame import correlation_id
from doorstep.api.ingest import receipt_shown
from doorstep.api.routing import Caller, Routes
from doorstep.app import Doorstep
from doorstep.errors import InvalidInput
from doorstep.model import circuit as circuits
from doorstep.model import endpoint as endpoints
from doorstep.model.endpoint import EndpointState, RetryPolicy
from doorstep.model.endpoint import Slo as Target
from doorstep.operations.endpoint_rules import EndpointForm
from doorstep.operations.events import TEST_EVENT, TEST_PAYLOAD
from doorstep.schemas.endpoints import (
    Circuit,
    CircuitChange,
    CircuitRules,
    Endpoint,
    EndpointIn,
    EndpointPage,
    EndpointPatch,
    EndpointsQuery,
    NewEndpoint,
    Policy,
    ResumeIn,
    RotatedSecret,
    RotateIn,
    Slo,
)
from doorstep.schemas.events import Receipt, TestIn
from doorstep.schemas.shape import ReasonIn

_NO_REASON, _AT_ONCE, _A_DAY, _GREETING = ReasonIn(), ResumeIn(), RotateIn(), TestIn()
"""What an empty body means."""


def endpoint_routes(doorstep: Doorstep) -> Routes:
    routes = Routes("/v1/endpoints", "endpoints")

    @routes.post(status=201)
    async def create_endpoint(body: EndpointIn, caller: Caller) -> NewEndpoint:
        """Create an endpoint. The answer holds its signing secret, which cannot be seen again."""
        endpoint, secret = await doorstep.components.endpoints.create(form_from(body), caller.org_id, caller.prefix)
        return shape(NewEndpoint, endpoint, **_worded(endpoint), secret=secret)

    @routes.get()
    async def list_endpoints(asked: EndpointsQuery, caller: Caller) -> EndpointPage:
        """The endpoints of the organization, in the order of their creation."""
        state = None if asked.state is None else EndpointState(asked.state)
        page = await doorstep.components.reader.endpoints(caller.org_id, state, asked.cursor, asked.limit)
        return EndpointPage(all_of(endpoint_shown, page.items), position(page, asked.limit))

    @routes.get("/{endpoint_id}")
    async def read_endpoint(endpoint_id: UUID, caller: Caller) -> Endpoint:
        """One endpoint; its secret and the values of its headers are never shown."""
        return endpoint_shown(await doorstep.components.reader.endpoint(caller.org_id, endpoint_id))

    @routes.patch("/{endpoint_id}")
    async def change_endpoint(endpoint_id: UUID, body: EndpointPatch, caller: Caller) -> Endpoint:
        """Change the fields that are given; null puts one back to its default."""
        changes, version = changes_from(body), body.version
        return endpoint_shown(
            await doorstep.components.endpoints.update(caller.org_id, endpoint_id, changes, caller.prefix, version)
        )

    @routes.delete("/{endpoint_id}")
    async def delete_endpoint(endpoint_id: UUID, caller: Caller) -> None:
        """Delete an endpoint. What still waits for it becomes dead letters."""
        await doorstep.components.endpoints.delete(caller.org_id, endpoint_id, actor=caller.prefix)

    @routes.post("/{endpoint_id}/pause")
    async def pause_endpoint(endpoint_id: UUID, caller: Caller, body: ReasonIn = _NO_REASON) -> Endpoint:
        """Hold its deliveries until it is resumed; none are lost."""
        return endpoint_shown(
            await doorstep.components.endpoints.pause(
                caller.org_id, endpoint_id, actor=caller.prefix, reason=body.reason
            )
        )

    @routes.post("/{endpoint_id}/resume")
    async def resume_endpoint(endpoint_id: UUID, caller: Caller, body: ResumeIn = _AT_ONCE) -> Endpoint:
        """Let its deliveries go again: all at once, at a rate, or without those that are too old."""
        return endpoint_shown(
            await doorstep.components.endpoints.resume(
                caller.org_id,
                endpoint_id,
                actor=caller.prefix,
                drain_per_second=body.drain_per_second,
                skip_older_than=instant_from(body.skip_older_than, "skip_older_than"),
            )
        )

    @routes.post("/{endpoint_id}/test", status=202, payload=True)
    async def test_endpoint(endpoint_id: UUID, caller: Caller, request: Request, body: TestIn = _GREETING) -> Receipt:
        """Send a test event to this endpoint alone, the way that every event goes."""
        payload = given(body.payload)
        receipt = await doorstep.components.events.test(
            caller.org_id,
            endpoint_id,
            caller.prefix,
            correlation_id(request),
            TEST_EVENT if body.event_type is None else body.event_type,
            TEST_PAYLOAD if payload is None else payload,
        )
        return receipt_shown(receipt)

    @routes.post("/{endpoint_id}/rotate-secret")
    async def rotate_secret(endpoint_id: UUID, caller: Caller, body: RotateIn = _A_DAY) -> RotatedSecret:
        """Give it a new signing secret. The old one signs beside it until the overlap ends."""
        rotated = await doorstep.components.endpoints.rotate(
            caller.org_id, endpoint_id, caller.prefix, body.overlap_seconds, body.signing
        )
        return RotatedSecret(endpoint_id, rotated.verifier, time_or_none(rotated.old_expires_at))

    @routes.get("/{endpoint_id}/circuit")
    async def read_circuit(endpoint_id: UUID, caller: Caller) -> Circuit:
        """The state of its circuit breaker, and when and why that changed, oldest first."""
        circuit = await doorstep.components.reader.circuit(caller.org_id, endpoint_id)
        return _circuit_shown(circuit, await doorstep.components.reader.circuit_history(caller.org_id, endpoint_id))

    return routes


# -- what is asked for -------------------------------------------------------------------------------------------


def form_from(body: EndpointIn) -> EndpointForm:
    return EndpointForm(**{name: _in_the_model(getattr(body, name)) for name in body.__struct_fields__})


def changes_from(body: EndpointPatch) -> dict[str, Any]:
    given = {name: getattr(body, name) for name in sorted(body.__struct_fields__) if name != "version"}
    changes = {name: _new_value(name, value) for name, value in given.items() if value is not UNSET}
    if not changes:
        raise InvalidInput("body", "must change something; name at least one field")
    return changes


_DEFAULTS = EndpointForm(name="")


def _new_value(name: str, value: object) -> object:
    return getattr(_DEFAULTS, name) if value is None else _in_the_model(value)


def _in_the_model(value: Any) -> Any:
    """The engine's own value for a shape; everything else is the same here and there."""
    match value:
        case Policy():
            return RetryPolicy(**structs.asdict(value))
        case CircuitRules():
            return endpoints.CircuitRules(**structs.asdict(value))
        case Slo():
            return target_from(value)
        case dict():
            return {name: _in_the_model(one) for name, one in value.items()}
    return value


def target_from(slo: Slo) -> Target:
    return Target(**structs.asdict(slo))


# -- shapes ------------------------------------------------------------------------------------------------------


def endpoint_shown(endpoint: endpoints.Endpoint) -> Endpoint:
    return shape(Endpoint, endpoint, **_worded(endpoint))


def _worded(endpoint: endpoints.Endpoint) -> dict[str, Any]:
    signing = endpoint.signing_secret
    return {
        "policy": None if endpoint.policy is None else _policy_shown(endpoint.policy),
        "policy_by_event_type": {key: _policy_shown(value) for key, value in endpoint.policy_by_event_type.items()},
        "circuit": shape(CircuitRules, endpoint.circuit),
        "slo": None if endpoint.slo is None else slo_shown(endpoint.slo),
        "signing": "v1" if signing is None else signing.scheme,
        "public_key": None if signing is None else signing.public_key or None,
    }


def _policy_shown(policy: RetryPolicy) -> Policy:
    return shape(Policy, policy, delays=tuple(map(float, policy.delays)))


def slo_shown(slo: Target) -> Slo:
    return shape(Slo, slo)


def _circuit_shown(circuit: circuits.Circuit, changes: list[circuits.CircuitChange]) -> Circuit:
    until = None if circuit.state is circuits.CircuitState.CLOSED else time_or_none(circuit.until)
    history = tuple(shape(CircuitChange, change) for change in changes)
    return shape(Circuit, circuit, until=until, history=history)
