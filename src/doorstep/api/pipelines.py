"""Pipelines: list, retry, approve, reject and delete entities, in this API or in an application that mounts these
routes."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
from fastapi import APIRouter, Depends
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from doorstep.api.codec import SMALL_BODY_BYTES_MAX, all_of, answer, body_of, position, query_of, whole
from doorstep.api.openapi import inline
from doorstep.api.problems import Refusal, refusal_for, respond
from doorstep.api.program import Caller, allowed
from doorstep.api.routing import ApiRequest, Routes
from doorstep.errors import DoorstepError, NotFound
from doorstep.model.org import Permission
from doorstep.pipelines import pipeline as program
from doorstep.schemas.pipelines import (
    ApprovalIn,
    EntitiesQuery,
    Entity,
    EntityHistoryPage,
    EntityPage,
    Pipeline,
    PipelinePage,
    RejectionIn,
)
from doorstep.schemas.shape import ReasonIn

_NO_REASON, _AT_ITS_GATE, _REJECTED = ReasonIn(), ApprovalIn(), RejectionIn()

routes = Routes("/v1/pipelines", "pipelines")


def _named(pipeline: str, request: ApiRequest) -> program.Pipeline:
    found = request.doorstep.registry.pipelines.get(pipeline)
    if found is None or found.org_id != request.org_id:
        raise NotFound(f"no pipeline {pipeline}")
    return found


@routes.get("", Permission.LOOK)
async def list_pipelines(request: ApiRequest) -> PipelinePage:
    """The pipelines that this server's program declares."""
    own = tuple(
        _pipeline_shown(one) for one in request.doorstep.registry.pipelines.values() if one.org_id == request.org_id
    )
    return whole(PipelinePage, own)


@routes.get("/{pipeline}/entities", Permission.LOOK)
async def list_entities(pipeline: str, query: EntitiesQuery, request: ApiRequest) -> EntityPage:
    """Entities, newest first. Archived ones are included only on request."""
    page = await _named(pipeline, request).list(
        query.status, archived=query.archived, cursor=query.cursor, limit=query.limit
    )
    return EntityPage(page.items, pagination=position(page, query.limit))


@routes.get("/{pipeline}/entities/{entity_id}", Permission.LOOK)
async def read_entity(pipeline: str, entity_id: str, request: ApiRequest) -> Entity:
    """One entity in its current status."""
    return await _named(pipeline, request).entity(entity_id)


@routes.get("/{pipeline}/entities/{entity_id}/history", Permission.LOOK)
async def read_entity_history(pipeline: str, entity_id: str, request: ApiRequest) -> EntityHistoryPage:
    """Every change of the entity's status, oldest first."""
    return whole(EntityHistoryPage, await _named(pipeline, request).history(entity_id))


@routes.post("/{pipeline}/entities/{entity_id}/retry", Permission.ACT)
async def retry_entity(
    pipeline: str, entity_id: str, request: ApiRequest, body: ReasonIn = _NO_REASON
) -> dict[str, str]:
    """Restart a failed, dead or archived entity from its first stage. In any other status, the response is a 400."""
    return _retry_queued(await _named(pipeline, request).retry(entity_id, request.actor, body.reason))


@routes.post("/{pipeline}/entities/{entity_id}/approve", Permission.ACT, conflict=True)
async def approve_entity(pipeline: str, entity_id: str, request: ApiRequest, body: ApprovalIn = _AT_ITS_GATE) -> Entity:
    """Approve an entity that is waiting at a gate."""
    return await _named(pipeline, request).approve(entity_id, request.actor, gate=body.gate)


@routes.post("/{pipeline}/entities/{entity_id}/reject", Permission.ACT, conflict=True)
async def reject_entity(pipeline: str, entity_id: str, request: ApiRequest, body: RejectionIn = _REJECTED) -> Entity:
    """Reject an entity that is waiting at a gate. It becomes a dead letter."""
    return await _named(pipeline, request).reject(entity_id, request.actor, body.reason, gate=body.gate)


@routes.delete("/{pipeline}/entities/{entity_id}", Permission.ACT, conflict=True)
async def delete_entity(pipeline: str, entity_id: str, request: ApiRequest) -> None:
    """Delete an entity and its history, regardless of its status."""
    await _named(pipeline, request).delete(entity_id, request.actor)


# -- mounted in an application -----------------------------------------------------------------------------------

Actor = Callable[[Request], str]
"""A function, supplied by the application, that determines the actor of a request for the audit log."""


class _ProblemRoute(APIRoute):
    """Responds to Doorstep's errors and to invalid requests with a problem document. The application handles other
    errors."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def with_problems(request: Request) -> Response:
            try:
                return await handler(request)
            except (DoorstepError, Refusal) as error:
                return respond(refusal_for(error))

        return with_problems


def router(pipeline: program.Pipeline, *, actor: Actor = lambda _: "application", api_keys: bool = False) -> APIRouter:
    """Routes that list, read, retry, approve, reject and delete entities. The application decides who may use them.

        application.include_router(router(protocols), prefix="/protocols", dependencies=[Depends(signed_in)])

    With `api_keys`, in the server of Doorstep, they require API keys: `look` to read, `act` for the rest. The key is
    then the actor.

        doorstep.server.include_router(router(protocols, api_keys=True), prefix="/protocols")

    In responses, the id field (`protocol_id`) and the list field (`protocols`) are named after the pipeline.
    """
    routes = APIRouter(route_class=_ProblemRoute, tags=[pipeline.name])
    looking = [_actor_with(Permission.LOOK, pipeline)] if api_keys else []
    acting = _actor_with(Permission.ACT, pipeline) if api_keys else _actor_by(actor)

    def shown(entity: Entity) -> dict[str, Any]:
        fields = msgspec.structs.asdict(entity)
        own = {name: value for name, value in fields.items() if name not in ("entity_id", "pipeline", "event_id")}
        return {f"{pipeline.name}_id": entity.entity_id, **own}

    @routes.get("/", name=f"list_{pipeline.plural}", dependencies=looking, openapi_extra=inline(query=EntitiesQuery))
    async def list_entities(request: Request) -> Response:
        """Entities, newest first. Archived ones are included only on request."""
        query = query_of(request, EntitiesQuery)
        page = await pipeline.list(query.status, archived=query.archived, cursor=query.cursor, limit=query.limit)
        return answer({pipeline.plural: all_of(shown, page.items), "pagination": position(page, query.limit)})

    @routes.get("/{entity_id}", name=f"read_{pipeline.name}", dependencies=looking)
    async def read_entity(entity_id: str) -> Response:
        """One entity in its current status."""
        return answer(shown(await pipeline.entity(entity_id)))

    @routes.get("/{entity_id}/history", name=f"read_{pipeline.name}_history", dependencies=looking)
    async def read_history(entity_id: str) -> Response:
        """Every change of the entity's status, oldest first."""
        return answer(whole(EntityHistoryPage, await pipeline.history(entity_id)))

    @routes.post("/{entity_id}/retry", name=f"retry_{pipeline.name}", openapi_extra=inline(body=ReasonIn))
    async def retry_entity(entity_id: str, request: Request, who: str = acting) -> Response:
        """Restart a failed, dead or archived entity from its first stage. In any other status, the response is a
        400."""
        body = await _body(request, ReasonIn)
        return answer(_retry_queued(await pipeline.retry(entity_id, who, body.reason)))

    @routes.post("/{entity_id}/approve", name=f"approve_{pipeline.name}", openapi_extra=inline(body=ApprovalIn))
    async def approve_entity(entity_id: str, request: Request, who: str = acting) -> Response:
        """Approve an entity that is waiting at a gate. If it is not waiting at a gate, or is waiting at another gate,
        the response is a 409."""
        body = await _body(request, ApprovalIn)
        return answer(shown(await pipeline.approve(entity_id, who, gate=body.gate)))

    @routes.post("/{entity_id}/reject", name=f"reject_{pipeline.name}", openapi_extra=inline(body=RejectionIn))
    async def reject_entity(entity_id: str, request: Request, who: str = acting) -> Response:
        """Reject an entity that is waiting at a gate; it becomes a dead letter. If it is not waiting at a gate, or is
        waiting at another gate, the response is a 409."""
        body = await _body(request, RejectionIn)
        return answer(shown(await pipeline.reject(entity_id, who, body.reason, gate=body.gate)))

    @routes.delete("/{entity_id}", name=f"delete_{pipeline.name}", status_code=204)
    async def delete_entity(entity_id: str, who: str = acting) -> None:
        """Delete an entity and its history, regardless of its status."""
        await pipeline.delete(entity_id, who)

    return routes


def _actor_by(actor: Actor) -> Any:
    """A dependency: the actor that the application determines. Its function runs in the event loop."""

    async def called(request: Request) -> str:
        return actor(request)

    return Depends(called)


def _actor_with(permission: Permission, pipeline: program.Pipeline) -> Any:
    """A dependency: the caller with an API key of the pipeline's organization and with this permission."""
    permitted: Any = allowed(permission)

    async def actor(caller: Caller = permitted) -> str:
        if caller.org_id != pipeline.org_id:
            raise NotFound(f"no pipeline {pipeline.name}")
        return caller.actor

    return Depends(actor)


async def _body(request: Request, kind: Any) -> Any:
    return await body_of(request, msgspec.json.Decoder(kind), SMALL_BODY_BYTES_MAX) or kind()


# -- shapes ------------------------------------------------------------------------------------------------------


def _pipeline_shown(pipeline: program.Pipeline) -> Pipeline:
    plan = pipeline.plan
    statuses = tuple(plan.phases)
    return Pipeline(plan.name, statuses, tuple(sorted(plan.gates)), tuple(filter(plan.can_retry, statuses)))


def _retry_queued(entity: Entity) -> dict[str, str]:
    """The response to a retry; its id field is named after the pipeline."""
    return {"status": "retry_queued", f"{entity.pipeline}_id": entity.entity_id}
