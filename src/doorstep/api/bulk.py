"""Bulk operations: started on the retry queue, the dead letters or an endpoint; watched and steered here."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query
from starlette.responses import Response

from doorstep.api.auth import Caller
from doorstep.api.bulk_schemas import (
    BulkLettersIn,
    BulkOut,
    BulkQueueIn,
    BulkRetryIn,
    BulksOut,
    PreviewOut,
    ReplayIn,
)
from doorstep.api.delivery_items import DeliveriesOut, delivery_item
from doorstep.api.routing import group
from doorstep.api.schemas import Asked, Pagination
from doorstep.app import Doorstep
from doorstep.model.bulk import BulkKind, Selection
from doorstep.model.org import ApiKey

Paged = Annotated[Asked, Query()]
Started = BulkQueueIn | BulkLettersIn | ReplayIn
_PREVIEW: dict[int | str, dict[str, Any]] = {200: {"model": PreviewOut, "description": "Only previewed"}}


def bulk_routes(doorstep: Doorstep) -> APIRouter:
    """Watching and steering."""
    router = group("/v1/bulk", "bulk")

    @router.get("")
    async def list_bulk(asked: Paged, caller: Caller) -> BulksOut:
        """Bulk operations, newest first."""
        page = await doorstep.components.store.list_bulk(caller.org_id, asked.cursor, asked.limit)
        return BulksOut(bulk=[BulkOut.of(bulk) for bulk in page.items], pagination=Pagination.of(page, asked.limit))

    @router.get("/{bulk_id}")
    async def read_bulk(bulk_id: UUID, caller: Caller) -> BulkOut:
        """How far a bulk operation has come."""
        return BulkOut.of(await doorstep.components.store.bulk(caller.org_id, bulk_id))

    @router.get("/{bulk_id}/failures")
    async def list_failures(bulk_id: UUID, asked: Paged, caller: Caller) -> DeliveriesOut:
        """What a bulk retry retried in vain."""
        await doorstep.components.store.bulk(caller.org_id, bulk_id)
        page = await doorstep.components.store.bulk_failures(caller.org_id, bulk_id, asked.cursor, asked.limit)
        described = await doorstep.components.reader.described(
            caller.org_id, [doorstep.components.reader.seen(one) for one in page.items]
        )
        return DeliveriesOut(
            deliveries=[delivery_item(one) for one in described], pagination=Pagination.of(page, asked.limit)
        )

    @router.post("/{bulk_id}/pause")
    async def pause_bulk(bulk_id: UUID, caller: Caller) -> BulkOut:
        """Take no more until it is resumed; what is under way goes on."""
        return BulkOut.of(await doorstep.components.bulk.pause(caller.org_id, bulk_id, caller.prefix))

    @router.post("/{bulk_id}/resume")
    async def resume_bulk(bulk_id: UUID, caller: Caller) -> BulkOut:
        """Go on where it was paused."""
        return BulkOut.of(await doorstep.components.bulk.resume(caller.org_id, bulk_id, caller.prefix))

    @router.post("/{bulk_id}/cancel")
    async def cancel_bulk(bulk_id: UUID, caller: Caller) -> BulkOut:
        """Take no more, ever. What was done stays done."""
        return BulkOut.of(await doorstep.components.bulk.cancel(caller.org_id, bulk_id, caller.prefix))

    return router


def bulk_start_routes(doorstep: Doorstep) -> APIRouter:
    """Starting."""
    router = group("/v1")
    queue: dict[str, Any] = {
        "status_code": 202,
        "response_model": BulkOut,
        "responses": _PREVIEW,
        "tags": ["retry queue"],
    }
    letters = queue | {"tags": ["dead letters"]}

    @router.post("/retry-queue/bulk-retry", **queue)
    async def bulk_retry_queue(body: BulkQueueIn, caller: Caller) -> BulkOut | Response:
        """Retry many waiting deliveries now, in the background."""
        return await begin(BulkKind.RETRY, body, body.selection(doorstep.clock), caller)

    @router.post("/retry-queue/bulk-skip", **queue)
    async def bulk_skip(body: BulkQueueIn, caller: Caller) -> BulkOut | Response:
        """Move many waiting deliveries to the dead letters, in the background."""
        return await begin(BulkKind.SKIP, body, body.selection(doorstep.clock), caller)

    @router.post("/dead-letters/bulk-retry", **letters)
    async def bulk_retry_letters(body: BulkRetryIn, caller: Caller) -> BulkOut | Response:
        """Retry many dead letters, in the background; with `canary`, one of each cause first."""
        return await begin(BulkKind.RETRY, body, body.selection(), caller, canary=body.canary)

    @router.post("/dead-letters/bulk-resolve", **letters)
    async def bulk_resolve(body: BulkLettersIn, caller: Caller) -> BulkOut | Response:
        """Say of many dead letters that they need no delivery."""
        return await begin(BulkKind.RESOLVE, body, body.selection(), caller)

    @router.post("/dead-letters/bulk-delete", **letters)
    async def bulk_delete(body: BulkLettersIn, caller: Caller) -> BulkOut | Response:
        """Take many dead letters off every list. Their attempt logs stay."""
        return await begin(BulkKind.DELETE, body, body.selection(), caller)

    @router.post("/endpoints/{endpoint_id}/replay", **queue | {"tags": ["endpoints"]})
    async def replay_to_endpoint(endpoint_id: UUID, body: ReplayIn, caller: Caller) -> BulkOut | Response:
        """Send the events of a time range to this endpoint again, each as a new event, oldest first."""
        await doorstep.components.reader.endpoint(caller.org_id, endpoint_id)
        return await begin(BulkKind.REPLAY, body, body.selection(), caller, endpoint_id=endpoint_id)

    async def begin(
        kind: BulkKind, body: Started, selection: Selection, caller: ApiKey, **more: Any
    ) -> BulkOut | Response:
        if body.preview:
            return await previewed(selection, caller, more.get("endpoint_id"))
        bulk = await doorstep.components.bulk.start(
            kind,
            caller.org_id,
            selection,
            caller.prefix,
            reason=body.reason,
            rate_per_second=body.rate_per_second,
            **more,
        )
        return BulkOut.of(bulk)

    async def previewed(selection: Selection, caller: ApiKey, replay_to: UUID | None) -> Response:
        preview = await doorstep.components.bulk.preview(caller.org_id, selection, replay_to)
        names = await doorstep.components.reader.endpoint_names(caller.org_id, preview.by_endpoint)
        return Response(PreviewOut.of(preview, names).model_dump_json(), media_type="application/json")

    return router
