"""The retry queue: what failed and will be tried again. Retry now, or skip to the dead letters."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query

from doorstep.api.auth import Caller
from doorstep.api.deliveries import after_act
from doorstep.api.delivery_items import QueueAsked, QueueOut, delivery_item
from doorstep.api.event_schemas import DeliveryOut, ReasonIn
from doorstep.api.routing import group
from doorstep.api.schemas import CountedPagination
from doorstep.app import Doorstep
from doorstep.model.act import ActKind
from doorstep.model.delivery import WAITING_STATES

_NO_REASON = ReasonIn()


def retry_queue_routes(doorstep: Doorstep) -> APIRouter:
    router = group("/v1/retry-queue", "retry queue")

    @router.get("")
    async def list_retry_queue(asked: Annotated[QueueAsked, Query()], caller: Caller) -> QueueOut:
        """Deliveries that failed at least once and will be tried again, or are being tried; the next retry first."""
        page, count = await doorstep.components.reader.retry_queue(
            caller.org_id, asked.queue(doorstep.clock), asked.cursor, asked.limit
        )
        described = await doorstep.components.reader.described(caller.org_id, page.items)
        return QueueOut(
            deliveries=[delivery_item(one) for one in described],
            pagination=CountedPagination.counted(page, asked.limit, count),
        )

    @router.post("/{delivery_id}/retry", status_code=202)
    async def retry_delivery(delivery_id: UUID, caller: Caller, body: ReasonIn = _NO_REASON) -> DeliveryOut:
        """Try a waiting delivery now, ahead of the queue and through an open circuit."""
        return await after_act(doorstep, ActKind.RETRY, delivery_id, caller, WAITING_STATES, body.reason)

    @router.post("/{delivery_id}/skip")
    async def skip_delivery(delivery_id: UUID, caller: Caller, body: ReasonIn = _NO_REASON) -> DeliveryOut:
        """Move a waiting delivery to the dead letters without another try."""
        return await after_act(doorstep, ActKind.SKIP, delivery_id, caller, WAITING_STATES, body.reason)

    return router
