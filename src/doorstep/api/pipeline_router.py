"""The routes of one pipeline, for an application to mount among its own. Who may use them is the application's to say."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.responses import Response

from doorstep.api.event_schemas import ReasonIn
from doorstep.api.pipeline_schemas import (
    ApprovalIn,
    EntitiesAsked,
    EntityChangeOut,
    EntityOut,
    RejectionIn,
    retry_queued,
)
from doorstep.api.problems import refusal_for, respond
from doorstep.api.schemas import CountedPagination, Pagination
from doorstep.errors import DoorstepError
from doorstep.model.entity import Entity
from doorstep.pipelines.pipeline import Pipeline

Actor = Callable[[Request], str]
"""Who is acting, for the audit log: found by the application in its own request."""
_NO_REASON, _AT_ITS_GATE, _REJECTED = ReasonIn(), ApprovalIn(), RejectionIn()


class _ProblemRoute(APIRoute):
    """Answers our errors as problems, and requests that make no sense; whatever the application does with its own."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def with_problems(request: Request) -> Response:
            try:
                return await handler(request)
            except (DoorstepError, RequestValidationError) as error:
                return respond(refusal_for(error))

        return with_problems


def router(pipeline: Pipeline, *, actor: Actor = lambda _: "application") -> APIRouter:
    """List, read, retry, approve, reject and delete its entities.

        application.include_router(router(protocols), prefix="/protocols", dependencies=[Depends(signed_in)])

    Ids are called after the pipeline (`protocol_id`), and so is the list (`protocols`).
    """
    routes = APIRouter(route_class=_ProblemRoute, tags=[pipeline.name])

    def shown(entity: Entity) -> dict[str, Any]:
        fields = EntityOut.of(entity).model_dump(mode="json", exclude={"entity_id", "pipeline", "event_id"})
        return {f"{pipeline.name}_id": entity.entity_id, **fields}

    @routes.get("/", name=f"list_{pipeline.plural}")
    async def list_entities(asked: Annotated[EntitiesAsked, Query()]) -> dict[str, Any]:
        """Newest first; archived ones only if asked for."""
        page = await pipeline.list(asked.status, archived=asked.archived, cursor=asked.cursor, limit=asked.limit)
        pagination = Pagination.of(page, asked.limit).model_dump()
        return {pipeline.plural: [shown(one) for one in page.items], "pagination": pagination}

    @routes.get("/{entity_id}", name=f"read_{pipeline.name}")
    async def read_entity(entity_id: str) -> dict[str, Any]:
        """One as it stands."""
        return shown(await pipeline.entity(entity_id))

    @routes.get("/{entity_id}/history", name=f"read_{pipeline.name}_history")
    async def read_history(entity_id: str) -> dict[str, Any]:
        """Every change of its status, oldest first."""
        lines = [EntityChangeOut.of(one).model_dump(mode="json") for one in await pipeline.history(entity_id)]
        return {"history": lines, "pagination": CountedPagination.whole(lines).model_dump()}

    @routes.post("/{entity_id}/retry", name=f"retry_{pipeline.name}")
    async def retry_entity(entity_id: str, request: Request, body: ReasonIn = _NO_REASON) -> dict[str, str]:
        """Through again from the start; 400 unless it failed, is a dead letter or archived."""
        return retry_queued(await pipeline.retry(entity_id, actor(request), body.reason))

    @routes.post("/{entity_id}/approve", name=f"approve_{pipeline.name}")
    async def approve_entity(entity_id: str, request: Request, body: ApprovalIn = _AT_ITS_GATE) -> dict[str, Any]:
        """Through the gate that it waits at; 409 if it waits at none, or not at the one that is named."""
        return shown(await pipeline.approve(entity_id, actor(request), gate=body.gate))

    @routes.post("/{entity_id}/reject", name=f"reject_{pipeline.name}")
    async def reject_entity(entity_id: str, request: Request, body: RejectionIn = _REJECTED) -> dict[str, Any]:
        """From the gate that it waits at to the dead letters; 409 if it waits at none, or not at the one that is named."""
        return shown(await pipeline.reject(entity_id, actor(request), body.reason, gate=body.gate))

    @routes.delete("/{entity_id}", name=f"delete_{pipeline.name}", status_code=204)
    async def delete_entity(entity_id: str, request: Request) -> None:
        """With its history, in whatever status."""
        await pipeline.delete(entity_id, actor(request))

    return routes
