"""Deliveries one by one: how they stand, every try, every change."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from fastapi import APIRouter
from starlette.responses import Response

from doorstep.api.auth import Caller
from doorstep.api.event_items import as_it_is
from doorstep.api.event_schemas import AttemptOut, AttemptsOut, DeliveryOut, HistoryLineOut, HistoryOut
from doorstep.api.examples import FIELDS
from doorstep.api.routing import group
from doorstep.api.schemas import CountedPagination
from doorstep.app import Doorstep
from doorstep.model.act import ActKind
from doorstep.model.delivery import Delivery, States
from doorstep.model.org import ApiKey

_ANY_JSON: dict[int | str, dict[str, Any]] = {
    200: {"description": "The payload", "content": {"application/json": {"schema": {}, "example": FIELDS["payload"]}}}
}


def delivery_routes(doorstep: Doorstep) -> APIRouter:
    router = group("/v1/deliveries", "deliveries")

    @router.get("/{delivery_id}")
    async def read_delivery(delivery_id: UUID, caller: Caller) -> DeliveryOut:
        """One event owed to one endpoint, as it stands."""
        return await shown(doorstep, await doorstep.components.reader.delivery(caller.org_id, delivery_id))

    @router.get("/{delivery_id}/payload", response_class=Response, responses=_ANY_JSON)
    async def read_payload(delivery_id: UUID, caller: Caller) -> Response:
        """The payload that is delivered, byte for byte: the event's, or the one that an operator gave instead."""
        payload = await doorstep.components.store.payload(caller.org_id, delivery_id)
        return Response(bytes(as_it_is(payload)), media_type="application/json")

    @router.get("/{delivery_id}/attempts")
    async def list_attempts(delivery_id: UUID, caller: Caller) -> AttemptsOut:
        """The attempt log of a delivery, in order. It outlives the deletion of a dead letter."""
        await doorstep.components.reader.delivery(caller.org_id, delivery_id)
        attempts = [
            AttemptOut.of(attempt) for attempt in await doorstep.components.reader.attempts(caller.org_id, delivery_id)
        ]
        return AttemptsOut(attempts=attempts, pagination=CountedPagination.whole(attempts))

    @router.get("/{delivery_id}/history")
    async def list_history(delivery_id: UUID, caller: Caller) -> HistoryOut:
        """Every change of its state in order, its acceptance first."""
        await doorstep.components.reader.delivery(caller.org_id, delivery_id)
        lines = [
            HistoryLineOut.of(line) for line in await doorstep.components.reader.history(caller.org_id, delivery_id)
        ]
        return HistoryOut(history=lines, pagination=CountedPagination.whole(lines))

    return router


async def shown(doorstep: Doorstep, delivery: Delivery) -> DeliveryOut:
    """With the reason for its waiting, where it is held."""
    return DeliveryOut.of(delivery, await doorstep.components.reader.why_held(delivery))


async def after_act(
    doorstep: Doorstep,
    kind: ActKind,
    delivery_id: UUID,
    caller: ApiKey,
    only_in: States,
    reason: str = "",
    payload: bytes | None = None,
) -> DeliveryOut:
    """Do it, if the delivery is in the states of this list, and show how it stands then."""
    await doorstep.components.deliveries.act_on(
        kind, caller.org_id, delivery_id, caller.prefix, reason, payload, only_in=only_in
    )
    return await shown(doorstep, await doorstep.components.reader.delivery(caller.org_id, delivery_id))
