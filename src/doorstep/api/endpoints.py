"""Endpoints: create, read, change, pause, resume, test and delete them, and rotate their secrets."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from msgspec import UNSET, convert, structs, to_builtins
from starlette.requests import Request

from doorstep.api.codec import all_of, instant_from, position, shape, shapes, time_or_none
from doorstep.api.deliveries import given
from doorstep.api.ingest import receipt_shown
from doorstep.api.middleware import correlation_id
from doorstep.api.routing import Caller, Routes
from doorstep.app import Doorstep
from doorstep.errors import InvalidInput
from doorstep.model import endpoint as endpoints
from doorstep.model.endpoint import EndpointState, RetryPolicy
from doorstep.model.endpoint import Slo as Target
from doorstep.operations.endpoint_rules import EndpointForm
from doorstep.operations.events import TEST_EVENT, TEST_PAYLOAD
from doorstep.schemas import endpoints as schemas
from doorstep.schemas.events import Receipt, TestIn
from doorstep.schemas.shape import ReasonIn

_NO_REASON, _AT_ONCE, _A_DAY, _GREETING = ReasonIn(), schemas.ResumeIn(), schemas.RotateIn(), TestIn()
"""The defaults for an empty body."""


def endpoint_routes(doorstep: Doorstep) -> Routes:
    routes = Routes("/v1/endpoints", "endpoints")

    @routes.post(status=201)
    async def create_endpoint(body: schemas.EndpointIn, caller: Caller) -> schemas.NewEndpoint:
        """Create an endpoint. The response contains its signing secret, which is shown only once."""
        endpoint, secret = await doorstep.components.endpoints.create(form_from(body), caller.org_id, caller.prefix)
        return shape(schemas.NewEndpoint, endpoint, **_shown_fields(endpoint), secret=secret)

    @routes.get()
    async def list_endpoints(query: schemas.EndpointsQuery, caller: Caller) -> schemas.EndpointPage:
        """The endpoints of the organization, oldest first."""
        state = None if query.state is None else EndpointState(query.state)
        page = await doorstep.components.reader.endpoints(caller.org_id, state, query.cursor, query.limit)
        return schemas.EndpointPage(all_of(endpoint_shown, page.items), position(page, query.limit))

    @routes.get("/{endpoint_id}")
    async def read_endpoint(endpoint_id: UUID, caller: Caller) -> schemas.Endpoint:
        """One endpoint; its secret and the values of its headers are never shown."""
        return endpoint_shown(await doorstep.components.reader.endpoint(caller.org_id, endpoint_id))

    @routes.patch("/{endpoint_id}")
    async def change_endpoint(endpoint_id: UUID, body: schemas.EndpointPatch, caller: Caller) -> schemas.Endpoint:
        """Change the given fields; null resets a field to its default."""
        changes, version = changes_from(body), body.version
        return endpoint_shown(
            await doorstep.components.endpoints.update(caller.org_id, endpoint_id, changes, caller.prefix, version)
        )

    @routes.delete("/{endpoint_id}")
    async def delete_endpoint(endpoint_id: UUID, caller: Caller) -> None:
        """Delete an endpoint. Its waiting deliveries become dead letters."""
        await doorstep.components.endpoints.delete(caller.org_id, endpoint_id, actor=caller.prefix)

    @routes.post("/{endpoint_id}/pause")
    async def pause_endpoint(endpoint_id: UUID, caller: Caller, body: ReasonIn = _NO_REASON) -> schemas.Endpoint:
        """Pause an endpoint: its deliveries are held until it is resumed, and none are lost."""
        return endpoint_shown(
            await doorstep.components.endpoints.pause(
                caller.org_id, endpoint_id, actor=caller.prefix, reason=body.reason
            )
        )

    @routes.post("/{endpoint_id}/resume")
    async def resume_endpoint(endpoint_id: UUID, caller: Caller, body: schemas.ResumeIn = _AT_ONCE) -> schemas.Endpoint:
        """Resume an endpoint and deliver its backlog: all at once, at a limited rate, or without old events."""
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
        """Send a test event to this endpoint only; it is delivered like any other event."""
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
    async def rotate_secret(
        endpoint_id: UUID, caller: Caller, body: schemas.RotateIn = _A_DAY
    ) -> schemas.RotatedSecret:
        """Create a new signing secret. Until the overlap ends, requests are signed with the old one too."""
        rotated = await doorstep.components.endpoints.rotate(
            caller.org_id, endpoint_id, caller.prefix, body.overlap_seconds, body.signing
        )
        return schemas.RotatedSecret(endpoint_id, rotated.verifier, time_or_none(rotated.old_expires_at))

    @routes.get("/{endpoint_id}/circuit")
    async def read_circuit(endpoint_id: UUID, caller: Caller) -> schemas.Circuit:
        """The state of the endpoint's circuit breaker, and its history with reasons, oldest first."""
        circuit = await doorstep.components.reader.circuit(caller.org_id, endpoint_id)
        changes = await doorstep.components.reader.circuit_history(caller.org_id, endpoint_id)
        until = None if circuit.state is endpoints.CircuitState.CLOSED else time_or_none(circuit.until)
        return shape(schemas.Circuit, circuit, until=until, history=shapes(schemas.CircuitChange, changes))

    return routes


# -- from requests -------------------------------------------------------------------------------------------


def form_from(body: schemas.EndpointIn) -> EndpointForm:
    return EndpointForm(**{name: _in_the_model(getattr(body, name)) for name in body.__struct_fields__})


def changes_from(body: schemas.EndpointPatch) -> dict[str, Any]:
    given = {name: getattr(body, name) for name in sorted(body.__struct_fields__) if name != "version"}
    changes = {name: _new_value(name, value) for name, value in given.items() if value is not UNSET}
    if not changes:
        raise InvalidInput("body", "must change something; name at least one field")
    return changes


_DEFAULTS = EndpointForm(name="")


def _new_value(name: str, value: object) -> object:
    return getattr(_DEFAULTS, name) if value is None else _in_the_model(value)


def _in_the_model(value: Any) -> Any:
    """Convert a shape into the model's value. Other values are the same in both."""
    match value:
        case schemas.Policy():
            return RetryPolicy(**structs.asdict(value))
        case schemas.CircuitRules():
            return endpoints.CircuitRules(**structs.asdict(value))
        case schemas.Slo():
            return target_from(value)
        case schemas.DestinationKind():
            return convert(to_builtins(value), endpoints.Destination)
        case dict():
            return {name: _in_the_model(one) for name, one in value.items()}
    return value


def target_from(slo: schemas.Slo) -> Target:
    return Target(**structs.asdict(slo))


# -- shapes ------------------------------------------------------------------------------------------------------


def endpoint_shown(endpoint: endpoints.Endpoint) -> schemas.Endpoint:
    return shape(schemas.Endpoint, endpoint, **_shown_fields(endpoint))


def _shown_fields(endpoint: endpoints.Endpoint) -> dict[str, Any]:
    signing = endpoint.signing_secret
    return {
        "policy": None if endpoint.policy is None else _policy_shown(endpoint.policy),
        "policy_by_event_type": {key: _policy_shown(value) for key, value in endpoint.policy_by_event_type.items()},
        "circuit": shape(schemas.CircuitRules, endpoint.circuit),
        "destination": convert(to_builtins(endpoint.destination), schemas.Destination),
        "slo": None if endpoint.slo is None else shape(schemas.Slo, endpoint.slo),
        "signing": "v1" if signing is None else signing.scheme,
        "public_key": None if signing is None else signing.public_key or None,
    }


def _policy_shown(policy: RetryPolicy) -> schemas.Policy:
    return shape(schemas.Policy, policy, delays=tuple(map(float, policy.delays)))
