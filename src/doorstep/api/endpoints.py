"""Endpoints: create, read, change, pause, resume, test and delete them, and rotate their secrets."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from msgspec import UNSET, convert, structs, to_builtins

from doorstep.api.codec import all_of, instant_from, position
from doorstep.api.middleware import correlation_id
from doorstep.api.routing import ApiRequest, Routes
from doorstep.errors import InvalidInput
from doorstep.model import endpoint as endpoints
from doorstep.model.endpoint import EndpointState, RetryPolicy
from doorstep.model.org import Permission
from doorstep.operations.actions import TEST_EVENT, TEST_PAYLOAD
from doorstep.operations.endpoint_rules import EndpointForm
from doorstep.operations.shapes import endpoint_fields, endpoint_shown, receipt_shown, shape, shapes, time_or_none
from doorstep.schemas import endpoints as schemas
from doorstep.schemas.events import Receipt, TestIn
from doorstep.schemas.shape import ReasonIn

_NO_REASON, _AT_ONCE, _A_DAY, _GREETING = ReasonIn(), schemas.ResumeIn(), schemas.RotateIn(), TestIn()
"""The defaults for an empty body."""

routes = Routes("/v1/endpoints", "endpoints")


@routes.post("", Permission.ACT, conflict=True, status=201)
async def create_endpoint(body: schemas.EndpointIn, request: ApiRequest) -> schemas.NewEndpoint:
    """Create an endpoint. The response contains its signing secret, which is shown only once."""
    form = EndpointForm(**{name: _in_the_model(getattr(body, name)) for name in body.__struct_fields__})
    endpoint, secret = await request.components.endpoints.create(form, request.org_id, request.actor)
    return shape(schemas.NewEndpoint, endpoint, **endpoint_fields(endpoint), secret=secret)


@routes.get("", Permission.LOOK)
async def list_endpoints(query: schemas.EndpointsQuery, request: ApiRequest) -> schemas.EndpointPage:
    """The endpoints of the organization, oldest first."""
    state = None if query.state is None else EndpointState(query.state)
    page = await request.reader.endpoints(request.org_id, state, query.cursor, query.limit)
    return schemas.EndpointPage(all_of(endpoint_shown, page.items), pagination=position(page, query.limit))


@routes.get("/{endpoint_id}", Permission.LOOK)
async def read_endpoint(endpoint_id: UUID, request: ApiRequest) -> schemas.Endpoint:
    """One endpoint; its secret and the values of its headers are never shown."""
    return endpoint_shown(await request.reader.endpoint(request.org_id, endpoint_id))


@routes.patch("/{endpoint_id}", Permission.ACT, conflict=True)
async def change_endpoint(endpoint_id: UUID, body: schemas.EndpointPatch, request: ApiRequest) -> schemas.Endpoint:
    """Change the given fields; null resets a field to its default."""
    changes, version = changes_from(body), body.version
    return endpoint_shown(
        await request.components.endpoints.update(request.org_id, endpoint_id, changes, request.actor, version)
    )


@routes.delete("/{endpoint_id}", Permission.ACT, conflict=True)
async def delete_endpoint(endpoint_id: UUID, request: ApiRequest) -> None:
    """Delete an endpoint. Its waiting deliveries become dead letters."""
    await request.components.endpoints.delete(request.org_id, endpoint_id, actor=request.actor)


@routes.post("/{endpoint_id}/pause", Permission.ACT, conflict=True)
async def pause_endpoint(endpoint_id: UUID, request: ApiRequest, body: ReasonIn = _NO_REASON) -> schemas.Endpoint:
    """Pause an endpoint: its deliveries are held until it is resumed, and none are lost."""
    return endpoint_shown(
        await request.components.endpoints.pause(request.org_id, endpoint_id, actor=request.actor, reason=body.reason)
    )


@routes.post("/{endpoint_id}/resume", Permission.ACT, conflict=True)
async def resume_endpoint(
    endpoint_id: UUID, request: ApiRequest, body: schemas.ResumeIn = _AT_ONCE
) -> schemas.Endpoint:
    """Resume an endpoint and deliver its backlog, immediately or at a limited rate. Deliveries of old events can be
    skipped."""
    return endpoint_shown(
        await request.components.endpoints.resume(
            request.org_id,
            endpoint_id,
            actor=request.actor,
            drain_per_second=body.drain_per_second,
            skip_older_than=instant_from(body.skip_older_than, "skip_older_than"),
        )
    )


@routes.post("/{endpoint_id}/test", Permission.ACT, conflict=True, status=202, payload=True)
async def test_endpoint(endpoint_id: UUID, request: ApiRequest, body: TestIn = _GREETING) -> Receipt:
    """Send a test event to this endpoint only; it is delivered like any other event."""
    receipt = await request.components.events.test(
        request.org_id,
        endpoint_id,
        request.actor,
        correlation_id(request.http),
        TEST_EVENT if body.event_type is None else body.event_type,
        bytes(body.payload) or TEST_PAYLOAD,
    )
    return receipt_shown(receipt)


@routes.post("/{endpoint_id}/rotate-secret", Permission.ACT, conflict=True)
async def rotate_secret(
    endpoint_id: UUID, request: ApiRequest, body: schemas.RotateIn = _A_DAY
) -> schemas.RotatedSecret:
    """Create a new signing secret. Until the overlap ends, requests are also signed with the old secret."""
    rotated = await request.components.endpoints.rotate(
        request.org_id, endpoint_id, request.actor, body.overlap_seconds, body.signing, body.secret
    )
    return schemas.RotatedSecret(endpoint_id, rotated.verifier, time_or_none(rotated.old_expires_at))


@routes.get("/{endpoint_id}/circuit", Permission.LOOK)
async def read_circuit(endpoint_id: UUID, request: ApiRequest) -> schemas.Circuit:
    """The state of the endpoint's circuit breaker, and its history with reasons, oldest first."""
    circuit = await request.reader.circuit(request.org_id, endpoint_id)
    changes = await request.reader.circuit_history(request.org_id, endpoint_id)
    until = None if circuit.state is endpoints.CircuitState.CLOSED else time_or_none(circuit.until)
    return shape(schemas.Circuit, circuit, until=until, history=shapes(schemas.CircuitChange, changes))


# -- from requests -------------------------------------------------------------------------------------------


def changes_from(body: schemas.EndpointPatch) -> dict[str, Any]:
    given = {name: getattr(body, name) for name in sorted(body.__struct_fields__) if name != "version"}
    changes = {
        name: getattr(_DEFAULTS, name) if value is None else _in_the_model(value)
        for name, value in given.items()
        if value is not UNSET
    }
    if not changes:
        raise InvalidInput("body", "must change something; name at least one field")
    return changes


_DEFAULTS = EndpointForm(name="")


def _in_the_model(value: Any) -> Any:
    """Convert a shape of the API into the corresponding value of the model. Other values are returned unchanged."""
    match value:
        case schemas.Policy():
            return RetryPolicy(**structs.asdict(value))
        case schemas.CircuitRules():
            return endpoints.CircuitRules(**structs.asdict(value))
        case schemas.Slo():
            return endpoints.Slo(**structs.asdict(value))
        case schemas.DestinationKind():
            return convert(to_builtins(value), endpoints.Destination)
        case dict():
            return {name: _in_the_model(one) for name, one in value.items()}
    return value
