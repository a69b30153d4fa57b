"""Pipelines: see their entities, retry, approve, reject and delete them; in this API, or mounted in an application's own."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from doorstep.api.answers import all_of, answer, position, shape, whole
from doorstep.api.bodies import SMALL_BODY_BYTES_MAX, body_of, query_of
from doorstep.api.openapi import inline
from doorstep.api.problems import Refusal, refusal_for, respond
from doorstep.api.routing import Caller, Routes
from doorstep.app import Doorstep
from doorstep.errors import DoorstepError, NotFound
from doorstep.model import entity as model
from doorstep.model.org import ApiKey
from doorstep.pipelines import pipeline as program
from doorstep.schemas.pipelines import (
    ApprovalIn,
    EntitiesQuery,
    Entity,
    EntityChange,
    EntityHistoryPage,
    EntityPage,
    Pipeline,
    PipelinePage,
    RejectionIn,
)
from doorstep.schemas.shape import ReasonIn

_NO_REASON, _AT_ITS_GATE, _REJECTED = ReasonIn(), ApprovalIn(), RejectionIn()


def pipeline_routes(doorstep: Doorstep) -> Routes:
    routes = Routes("/v1/pipelines", "pipelines")

    def named(pipeline: str, caller: ApiKey) -> program.Pipeline:
        found = doorstep.pipelines.get(pipeline)
        if found is None or found.org_id != caller.org_id:
            raise NotFound(f"no pipeline {pipeline}")
        return found

    @routes.get()
    async def list_pipelines(caller: Caller) -> PipelinePage:
        """The pipelines that this server's program declares."""
        own = tuple(_pipeline_shown(one) for one in doorstep.pipelines.values() if one.org_id == caller.org_id)
        return PipelinePage(own, whole(own))

    @routes.get("/{pipeline}/entities")
    async def list_entities(pipeline: str, asked: EntitiesQuery, caller: Caller) -> EntityPage:
        """Entities, newest first; archived ones only if asked for."""
        page = await named(pipeline, caller).list(
            asked.status, archived=asked.archived, cursor=asked.cursor, limit=asked.limit
        )
        return EntityPage(all_of(_entity_shown, page.items), position(page, asked.limit))

    @routes.get("/{pipeline}/entities/{entity_id}")
    async def read_entity(pipeline: str, entity_id: str, caller: Caller) -> Entity:
        """One entity as it stands."""
        return _entity_shown(await named(pipeline, caller).entity(entity_id))

    @routes.get("/{pipeline}/entities/{entity_id}/history")
    async def read_entity_history(pipeline: str, entity_id: str, caller: Caller) -> EntityHistoryPage:
        """Every change of its status, oldest first."""
        history = all_of(_change_shown, await named(pipeline, caller).history(entity_id))
        return EntityHistoryPage(history, whole(history))

    @routes.post("/{pipeline}/entities/{entity_id}/retry")
    async def retry_entity(
        pipeline: str, entity_id: str, caller: Caller, body: ReasonIn = _NO_REASON
    ) -> dict[str, str]:
        """Send a failed, dead or archived entity through again from the start; 400 in any other status."""
        return _retry_queued(await named(pipeline, caller).retry(entity_id, caller.prefix, body.reason))

    @routes.post("/{pipeline}/entities/{entity_id}/approve")
    async def approve_entity(pipeline: str, entity_id: str, caller: Caller, body: ApprovalIn = _AT_ITS_GATE) -> Entity:
        """Let an entity through the gate that it waits at."""
        return _entity_shown(await named(pipeline, caller).approve(entity_id, caller.prefix, gate=body.gate))

    @routes.post("/{pipeline}/entities/{entity_id}/reject")
    async def reject_entity(pipeline: str, entity_id: str, caller: Caller, body: RejectionIn = _REJECTED) -> Entity:
        """Send an entity from the gate that it waits at to the dead letters."""
        rejected = await named(pipeline, caller).reject(entity_id, caller.prefix, body.reason, gate=body.gate)
        return _entity_shown(rejected)

    @routes.delete("/{pipeline}/entities/{entity_id}")
    async def delete_entity(pipeline: str, entity_id: str, caller: Caller) -> None:
        """Remove an entity and its history, in whatever status."""
        await named(pipeline, caller).delete(entity_id, caller.prefix)

    return routes


# -- mounted in an application -----------------------------------------------------------------------------------

Actor = Callable[[Request], str]
"""Who is acting, for the audit log: found by the application in its own request."""


class _ProblemRoute(APIRoute):
    """Answers our errors as problems, and requests that make no sense; whatever the application does with its own."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def with_problems(request: Request) -> Response:
            try:
                return await handler(request)
            except (DoorstepError, Refusal) as error:
                return respond(refusal_for(error))

        return with_problems


def router(pipeline: program.Pipeline, *, actor: Actor = lambda _: "application") -> APIRouter:
    """List, read, retry, approve, reject and delete its entities. Who may do so is the application's to say.

        application.include_router(router(protocols), prefix="/protocols", dependencies=[Depends(signed_in)])

    Ids are called after the pipeline (`protocol_id`), and so is the list (`protocols`).
    """
    routes = APIRouter(route_class=_ProblemRoute, tags=[pipeline.name])

    def shown(entity: model.Entity) -> dict[str, Any]:
        fields = msgspec.structs.asdict(_entity_shown(entity))
        own = {name: value for name, value in fields.items() if name not in ("entity_id", "pipeline", "event_id")}
        return {f"{pipeline.name}_id": entity.entity_id, **own}

    @routes.get("/", name=f"list_{pipeline.plural}", openapi_extra=inline(query=EntitiesQuery))
    async def list_entities(request: Request) -> Response:
        """Newest first; archived ones only if asked for."""
        asked = query_of(request, EntitiesQuery)
        page = await pipeline.list(asked.status, archived=asked.archived, cursor=asked.cursor, limit=asked.limit)
        return answer({pipeline.plural: all_of(shown, page.items), "pagination": position(page, asked.limit)})

    @routes.get("/{entity_id}", name=f"read_{pipeline.name}")
    async def read_entity(entity_id: str) -> Response:
        """One as it stands."""
        return answer(shown(await pipeline.entity(entity_id)))

    @routes.get("/{entity_id}/history", name=f"read_{pipeline.name}_history")
    async def read_history(entity_id: str) -> Response:
        """Every change of its status, oldest first."""
        history = all_of(_change_shown, await pipeline.history(entity_id))
        return answer(EntityHistoryPage(history, whole(history)))

    @routes.post("/{entity_id}/retry", name=f"retry_{pipeline.name}", openapi_extra=inline(body=ReasonIn))
    async def retry_entity(entity_id: str, request: Request) -> Response:
        """Through again from the start; 400 unless it failed, is a dead letter or archived."""
        body = await _body(request, ReasonIn)
        return answer(_retry_queued(await pipeline.retry(entity_id, actor(request), body.reason)))

    @routes.post("/{entity_id}/approve", name=f"approve_{pipeline.name}", openapi_extra=inline(body=ApprovalIn))
    async def approve_entity(entity_id: str, request: Request) -> Response:
        """Through the gate that it waits at; 409 if it waits at none, or not at the one that is named."""
        body = await _body(request, ApprovalIn)
        return answer(shown(await pipeline.approve(entity_id, actor(request), gate=body.gate)))

    @routes.post("/{entity_id}/reject", name=f"reject_{pipeline.name}", openapi_extra=inline(body=RejectionIn))
    async def reject_entity(entity_id: str, request: Request) -> Response:
        """From the gate that it waits at to the dead letters; 409 if it waits at none, or not at the one that is named."""
        body = await _body(request, RejectionIn)
        return answer(shown(await pipeline.reject(entity_id, actor(request), body.reason, gate=body.gate)))

    @routes.delete("/{entity_id}", name=f"delete_{pipeline.name}", status_code=204)
    async def delete_entity(entity_id: str, request: Request) -> None:
        """With its history, in whatever status."""
        await pipeline.delete(entity_id, actor(request))

    return routes


async def _body(request: Request, kind: Any) -> Any:
    return await body_of(request, msgspec.json.Decoder(kind), SMALL_BODY_BYTES_MAX) or kind()


# -- shapes ------------------------------------------------------------------------------------------------------


def _pipeline_shown(pipeline: program.Pipeline) -> Pipeline:
    plan = pipeline.plan
    statuses = tuple(plan.phases)
    return Pipeline(plan.name, statuses, tuple(sorted(plan.gates)), tuple(filter(plan.can_retry, statuses)))


def _entity_shown(entity: model.Entity) -> Entity:
    return shape(Entity, entity)


def _change_shown(change: model.EntityChange) -> EntityChange:
    return shape(EntityChange, change)


def _retry_queued(entity: model.Entity) -> dict[str, str]:
    """The answer to a retry; the id is called after the pipeline."""
    return {"status": "retry_queued", f"{entity.pipeline}_id": entity.entity_id}
