"""Creating, reading, changing, holding and deleting endpoints."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from doorstep.api.auth import Caller
from doorstep.api.circuit_schemas import CircuitOut
from doorstep.api.endpoint_schemas import (
    EndpointIn,
    EndpointOut,
    EndpointPatch,
    EndpointsAsked,
    EndpointsOut,
    NewEndpointOut,
    ResumeIn,
    RotatedOut,
    RotateIn,
)
from doorstep.api.event_schemas import ReasonIn
from doorstep.api.frame import correlation_id
from doorstep.api.ingest import RECEIPT, receipt_answer
from doorstep.api.raw_bodies import TEST_OPERATION, TestBody, given
from doorstep.api.routing import group
from doorstep.api.schemas import Pagination, iso
from doorstep.app import Doorstep
from doorstep.model.endpoint import EndpointState
from doorstep.path.steward import TEST_EVENT, TEST_PAYLOAD

_NO_REASON, _AT_ONCE, _A_DAY = ReasonIn(), ResumeIn(), RotateIn()
"""What an empty body means."""


def endpoint_routes(doorstep: Doorstep) -> APIRouter:
    router = group("/v1/endpoints", "endpoints")

    @router.post("", status_code=201)
    async def create_endpoint(body: EndpointIn, caller: Caller) -> NewEndpointOut:
        """Create an endpoint. The answer holds its signing secret, which cannot be seen again."""
        endpoint, secret = await doorstep.components.endpoints.create(body.form(), caller.org_id, caller.prefix)
        return NewEndpointOut.with_secret(endpoint, secret)

    @router.get("")
    async def list_endpoints(asked: Annotated[EndpointsAsked, Query()], caller: Caller) -> EndpointsOut:
        """The endpoints of the organization, in the order of their creation."""
        state = None if asked.state is None else EndpointState(asked.state)
        page = await doorstep.components.reader.endpoints(caller.org_id, state, asked.cursor, asked.limit)
        shown = [EndpointOut.of(endpoint) for endpoint in page.items]
        return EndpointsOut(endpoints=shown, pagination=Pagination.of(page, asked.limit))

    @router.get("/{endpoint_id}")
    async def read_endpoint(endpoint_id: UUID, caller: Caller) -> EndpointOut:
        """One endpoint; its secret and the values of its headers are never shown."""
        return EndpointOut.of(await doorstep.components.reader.endpoint(caller.org_id, endpoint_id))

    @router.patch("/{endpoint_id}")
    async def change_endpoint(endpoint_id: UUID, body: EndpointPatch, caller: Caller) -> EndpointOut:
        """Change the fields that are given; null puts one back to its default."""
        changes, version = body.changes(), body.version
        return EndpointOut.of(
            await doorstep.components.endpoints.update(caller.org_id, endpoint_id, changes, caller.prefix, version)
        )

    @router.delete("/{endpoint_id}", status_code=204)
    async def delete_endpoint(endpoint_id: UUID, caller: Caller) -> None:
        """Delete an endpoint. What still waits for it becomes dead letters."""
        await doorstep.components.endpoints.delete(caller.org_id, endpoint_id, actor=caller.prefix)

    @router.post("/{endpoint_id}/pause")
    async def pause_endpoint(endpoint_id: UUID, caller: Caller, body: ReasonIn = _NO_REASON) -> EndpointOut:
        """Hold its deliveries until it is resumed; none are lost."""
        return EndpointOut.of(
            await doorstep.components.endpoints.pause(
                caller.org_id, endpoint_id, actor=caller.prefix, reason=body.reason
            )
        )

    @router.post("/{endpoint_id}/resume")
    async def resume_endpoint(endpoint_id: UUID, caller: Caller, body: ResumeIn = _AT_ONCE) -> EndpointOut:
        """Let its deliveries go again: all at once, at a rate, or without those that are too old."""
        return EndpointOut.of(
            await doorstep.components.endpoints.resume(
                caller.org_id,
                endpoint_id,
                actor=caller.prefix,
                drain_per_second=body.drain_per_second,
                skip_older_than=body.skip_older_than,
            )
        )

    @router.post("/{endpoint_id}/test", status_code=202, responses=RECEIPT, openapi_extra=TEST_OPERATION)
    async def test_endpoint(endpoint_id: UUID, body: TestBody, caller: Caller, request: Request) -> Response:
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
        return receipt_answer(receipt)

    @router.post("/{endpoint_id}/rotate-secret")
    async def rotate_secret(endpoint_id: UUID, caller: Caller, body: RotateIn = _A_DAY) -> RotatedOut:
        """Give it a new signing secret. The old one signs beside it until the overlap ends."""
        rotated = await doorstep.components.endpoints.rotate(
            caller.org_id, endpoint_id, caller.prefix, body.overlap_seconds, body.signing
        )
        return RotatedOut(
            endpoint_id=endpoint_id,
            secret=rotated.verifier,
            old_secret_expires_at=iso(rotated.old_expires_at),
        )

    @router.get("/{endpoint_id}/circuit")
    async def read_circuit(endpoint_id: UUID, caller: Caller) -> CircuitOut:
        """The state of its circuit breaker, and when and why that changed, oldest first."""
        circuit = await doorstep.components.reader.circuit(caller.org_id, endpoint_id)
        return CircuitOut.of(circuit, await doorstep.components.reader.circuit_history(caller.org_id, endpoint_id))

    return router
