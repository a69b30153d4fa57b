"""Reading events and what became of them."""

from __future__ import annotations

from uuid import UUID

import msgspec
from fastapi import APIRouter
from starlette.responses import Response

from doorstep.api.auth import Looking, ReadingStatus
from doorstep.api.event_schemas import AttemptOut, AttemptsOut, DeliveryOut, EventOut, EventStatusOut
from doorstep.api.routing import StrictRoute
from doorstep.api.schemas import Pagination, iso
from doorstep.app import Doorstep
from doorstep.clock import to_iso
from doorstep.model.delivery import Delivery
from doorstep.model.event import EventView


def event_routes(doorstep: Doorstep) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["events"], route_class=StrictRoute)

    @router.get("/events/{event_id}", response_model=EventOut)
    async def read_event(event_id: UUID, key: Looking) -> Response:
        """An event in full, with its payload and its deliveries."""
        view = await doorstep.event(key.org_id, event_id)
        deliveries = [await shown(delivery) for delivery in await doorstep.deliveries(key.org_id, event_id)]
        return Response(_event_json(view, deliveries), media_type="application/json")

    @router.get("/events/{event_id}/status")
    async def read_status(event_id: UUID, key: ReadingStatus) -> EventStatusOut:
        """Where an event stands, without its payload."""
        return EventStatusOut.of(await doorstep.event(key.org_id, event_id))

    @router.get("/deliveries/{delivery_id}", tags=["deliveries"])
    async def read_delivery(delivery_id: UUID, key: Looking) -> DeliveryOut:
        """One event owed to one endpoint, as it stands."""
        return await shown(await doorstep.delivery(key.org_id, delivery_id))

    @router.get("/deliveries/{delivery_id}/attempts", tags=["deliveries"])
    async def list_attempts(delivery_id: UUID, key: Looking) -> AttemptsOut:
        """The attempt log of a delivery, in order. It outlives the deletion of a dead letter."""
        await doorstep.delivery(key.org_id, delivery_id)
        attempts = [AttemptOut.of(attempt) for attempt in await doorstep.attempts(key.org_id, delivery_id)]
        return AttemptsOut(attempts=attempts, pagination=Pagination.whole(attempts))

    async def shown(delivery: Delivery) -> DeliveryOut:
        return DeliveryOut.of(delivery, await doorstep.why_held(delivery))

    return router


def _event_json(view: EventView, deliveries: list[DeliveryOut]) -> bytes:
    """Put together by msgspec rather than pydantic, because the payload's bytes must come out as they went in."""
    event = view.event
    fields = EventStatusOut.of(view).model_dump() | {
        "event_type": event.event_type,
        "created_at": to_iso(event.created_at),
        "correlation_id": event.correlation_id,
        "deliver_at": iso(event.deliver_at),
        "expires_at": iso(event.expires_at),
        "metadata": _as_it_is(event.metadata),
        "payload": _as_it_is(event.payload),
        "deliveries": [delivery.model_dump() for delivery in deliveries],
    }
    return msgspec.json.encode(fields)


def _as_it_is(content: bytes) -> object:
    """The very bytes where they are JSON. A library user may send others; those are shown as text."""
    try:
        content.decode()
        return msgspec.json.decode(content, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return content.decode("utf-8", "replace")
