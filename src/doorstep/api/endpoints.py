"""Creating, reading, holding and deleting endpoints."""

from __future__ import annotations

from uuid import UUID

from fastapi import APIRouter

from doorstep.api.auth import Acting, Looking
from doorstep.api.endpoint_schemas import EndpointIn, EndpointOut, EndpointsOut, NewEndpointOut, PolicyIn, PolicyShape
from doorstep.api.routing import StrictRoute
from doorstep.api.schemas import Pagination
from doorstep.app import Doorstep
from doorstep.model.endpoint import CircuitRules
from doorstep.model.retry_policy import RetryPolicy
from doorstep.path.enrol import PolicyForm


def endpoint_routes(doorstep: Doorstep) -> APIRouter:
    router = APIRouter(prefix="/v1/endpoints", tags=["endpoints"], route_class=StrictRoute)

    @router.post("", status_code=201)
    async def create_endpoint(body: EndpointIn, key: Acting) -> NewEndpointOut:
        """Create an endpoint. The answer holds its signing secret, which cannot be seen again."""
        given = body.model_dump(exclude={"policy", "policy_by_event_type", "circuit"})
        endpoint, secret = await doorstep.create_endpoint(
            org_id=key.org_id,
            policy=None if body.policy is None else _policy(body.policy),
            policy_by_event_type={pattern: _policy(policy) for pattern, policy in body.policy_by_event_type.items()},
            circuit=CircuitRules(**body.circuit.model_dump()),
            **given,
        )
        return NewEndpointOut.with_secret(endpoint, secret)

    @router.get("")
    async def list_endpoints(key: Looking) -> EndpointsOut:
        """All endpoints of the organization, in the order of their creation."""
        endpoints = [EndpointOut.of(endpoint) for endpoint in await doorstep.endpoints(key.org_id)]
        return EndpointsOut(endpoints=endpoints, pagination=Pagination.whole(endpoints))

    @router.get("/{endpoint_id}")
    async def read_endpoint(endpoint_id: UUID, key: Looking) -> EndpointOut:
        """One endpoint; its secret and the values of its headers are never shown."""
        return EndpointOut.of(await doorstep.endpoint(key.org_id, endpoint_id))

    @router.delete("/{endpoint_id}", status_code=204)
    async def delete_endpoint(endpoint_id: UUID, key: Acting) -> None:
        """Delete an endpoint. What still waits for it becomes dead letters."""
        await doorstep.delete_endpoint(key.org_id, endpoint_id, actor=key.prefix)

    @router.post("/{endpoint_id}/pause")
    async def pause_endpoint(endpoint_id: UUID, key: Acting) -> EndpointOut:
        """Hold its deliveries until it is resumed; none are lost."""
        return EndpointOut.of(await doorstep.pause_endpoint(key.org_id, endpoint_id, actor=key.prefix))

    @router.post("/{endpoint_id}/resume")
    async def resume_endpoint(endpoint_id: UUID, key: Acting) -> EndpointOut:
        """Let its deliveries go again."""
        return EndpointOut.of(await doorstep.resume_endpoint(key.org_id, endpoint_id, actor=key.prefix))

    return router


def _policy(given: PolicyIn) -> PolicyForm:
    if not isinstance(given, PolicyShape):
        return given
    return RetryPolicy(tuple(given.delays), given.jitter, given.deadline_seconds, given.name)
