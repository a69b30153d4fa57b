"""The pipelines of the program around: see their entities, retry, approve, reject and delete them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from doorstep.api.auth import Caller
from doorstep.api.event_schemas import ReasonIn
from doorstep.api.pipeline_schemas import (
    ApprovalIn,
    EntitiesAsked,
    EntitiesOut,
    EntityChangeOut,
    EntityHistoryOut,
    EntityOut,
    PipelineOut,
    PipelinesOut,
    RejectionIn,
    retry_queued,
)
from doorstep.api.routing import group
from doorstep.api.schemas import CountedPagination, Pagination
from doorstep.app import Doorstep
from doorstep.errors import NotFound
from doorstep.model.org import ApiKey
from doorstep.pipelines.pipeline import Pipeline

_NO_REASON, _AT_ITS_GATE, _REJECTED = ReasonIn(), ApprovalIn(), RejectionIn()


def pipeline_routes(doorstep: Doorstep) -> APIRouter:
    router = group("/v1/pipelines", "pipelines")

    def named(pipeline: str, caller: ApiKey) -> Pipeline:
        found = doorstep.pipelines.get(pipeline)
        if found is None or found.org_id != caller.org_id:
            raise NotFound(f"no pipeline {pipeline}")
        return found

    @router.get("")
    async def list_pipelines(caller: Caller) -> PipelinesOut:
        """The pipelines that this server's program declares."""
        own = [PipelineOut.of(one) for one in doorstep.pipelines.values() if one.org_id == caller.org_id]
        return PipelinesOut(pipelines=own, pagination=CountedPagination.whole(own))

    @router.get("/{pipeline}/entities")
    async def list_entities(pipeline: str, asked: Annotated[EntitiesAsked, Query()], caller: Caller) -> EntitiesOut:
        """Entities, newest first; archived ones only if asked for."""
        page = await named(pipeline, caller).list(
            asked.status, archived=asked.archived, cursor=asked.cursor, limit=asked.limit
        )
        entities = [EntityOut.of(one) for one in page.items]
        return EntitiesOut(entities=entities, pagination=Pagination.of(page, asked.limit))

    @router.get("/{pipeline}/entities/{entity_id}")
    async def read_entity(pipeline: str, entity_id: str, caller: Caller) -> EntityOut:
        """One entity as it stands."""
        return EntityOut.of(await named(pipeline, caller).entity(entity_id))

    @router.get("/{pipeline}/entities/{entity_id}/history")
    async def read_entity_history(pipeline: str, entity_id: str, caller: Caller) -> EntityHistoryOut:
        """Every change of its status, oldest first."""
        lines = [EntityChangeOut.of(one) for one in await named(pipeline, caller).history(entity_id)]
        return EntityHistoryOut(history=lines, pagination=CountedPagination.whole(lines))

    @router.post("/{pipeline}/entities/{entity_id}/retry")
    async def retry_entity(
        pipeline: str, entity_id: str, caller: Caller, body: ReasonIn = _NO_REASON
    ) -> dict[str, str]:
        """Send a failed, dead or archived entity through again from the start; 400 in any other status."""
        return retry_queued(await named(pipeline, caller).retry(entity_id, caller.prefix, body.reason))

    @router.post("/{pipeline}/entities/{entity_id}/approve")
    async def approve_entity(
        pipeline: str, entity_id: str, caller: Caller, body: ApprovalIn = _AT_ITS_GATE
    ) -> EntityOut:
        """Let an entity through the gate that it waits at."""
        return EntityOut.of(await named(pipeline, caller).approve(entity_id, caller.prefix, gate=body.gate))

    @router.post("/{pipeline}/entities/{entity_id}/reject")
    async def reject_entity(pipeline: str, entity_id: str, caller: Caller, body: RejectionIn = _REJECTED) -> EntityOut:
        """Send an entity from the gate that it waits at to the dead letters."""
        rejected = await named(pipeline, caller).reject(entity_id, caller.prefix, body.reason, gate=body.gate)
        return EntityOut.of(rejected)

    @router.delete("/{pipeline}/entities/{entity_id}", status_code=204)
    async def delete_entity(pipeline: str, entity_id: str, caller: Caller) -> None:
        """Remove an entity and its history, in whatever status."""
        await named(pipeline, caller).delete(entity_id, caller.prefix)

    return router
