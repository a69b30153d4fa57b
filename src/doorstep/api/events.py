"""Events one by one: reading them in full, and acting on all that they owe."""

from __future__ import annotations

from uuid import UUID

import msgspec
from fastapi import APIRouter
from starlette.responses import Response

from doorstep.api.auth import Caller
from doorstep.api.event_items import as_it_is
from doorstep.api.event_schemas import (
    AcknowledgedOut,
    CancelledOut,
    DeliveryOut,
    EventOut,
    ReasonIn,
    ReplayEventIn,
    RetriedOut,
    refused_out,
)
from doorstep.api.ingest import RECEIPT, receipt_answer
from doorstep.api.routing import group
from doorstep.api.schemas import iso
from doorstep.app import Doorstep
from doorstep.clock import to_iso
from doorstep.model.act import ActKind
from doorstep.model.event import EventView

_NO_REASON = ReasonIn()


def event_routes(doorstep: Doorstep) -> APIRouter:
    router = group("/v1/events", "events")

    @router.get("/{event_id}", response_model=EventOut)
    async def read_event(event_id: UUID, caller: Caller) -> Response:
        """An event in full, with its payload and its deliveries."""
        view = await doorstep.components.reader.event(caller.org_id, event_id)
        deliveries = await doorstep.components.reader.deliveries(caller.org_id, event_id)
        described = await doorstep.components.reader.described(caller.org_id, deliveries)
        owed = [DeliveryOut.of(one.delivery, one.held) for one in described]
        return Response(_event_json(view, owed), media_type="application/json")

    @router.delete("/{event_id}", status_code=204)
    async def delete_event(event_id: UUID, caller: Caller) -> None:
        """Erase an event and its payload. What waits is cancelled, dead letters are deleted; the attempt log stays."""
        await doorstep.components.events.delete(caller.org_id, event_id, caller.prefix)

    @router.post("/{event_id}/ack")
    async def acknowledge_event(event_id: UUID, caller: Caller) -> AcknowledgedOut:
        """Say that you have taken the event from the inbox (role `operator`): it is delivered. Again does no harm."""
        await doorstep.components.events.acknowledge(caller.org_id, event_id, caller.prefix)
        return AcknowledgedOut(event_id=event_id, status="delivered")

    @router.post("/{event_id}/retry", status_code=202)
    async def retry_event(event_id: UUID, caller: Caller, body: ReasonIn = _NO_REASON) -> RetriedOut:
        """Try again now what failed or waits: dead letters with a fresh count, waiting deliveries ahead of the queue."""
        result = await doorstep.components.events.act(
            ActKind.RETRY, caller.org_id, event_id, caller.prefix, body.reason
        )
        return RetriedOut(event_id=event_id, retried=list(result.done), refused=refused_out(result))

    @router.post("/{event_id}/cancel")
    async def cancel_event(event_id: UUID, caller: Caller, body: ReasonIn = _NO_REASON) -> CancelledOut:
        """Call off the deliveries that still wait."""
        result = await doorstep.components.events.act(
            ActKind.CANCEL, caller.org_id, event_id, caller.prefix, body.reason
        )
        return CancelledOut(event_id=event_id, cancelled=list(result.done), refused=refused_out(result))

    @router.post("/{event_id}/replay", status_code=202, responses=RECEIPT)
    async def replay_event(event_id: UUID, body: ReplayEventIn, caller: Caller) -> Response:
        """Send the same type, payload and metadata to one endpoint again, as a new event."""
        return receipt_answer(
            await doorstep.components.events.replay(caller.org_id, event_id, body.endpoint_id, caller.prefix)
        )

    return router


def _event_json(view: EventView, deliveries: list[DeliveryOut]) -> bytes:
    """Put together by msgspec rather than pydantic, because the payload's bytes must come out as they went in."""
    event = view.event
    fields = {
        "event_id": event.event_id,
        "status": view.status,
        "retry_attempts": view.retry_attempts,
        "last_retry_at": iso(view.last_retry_at),
        "failed_at": iso(view.failed_at),
        "next_retry_at": iso(view.next_retry_at),
        "refusal": view.refusal,
        "event_type": event.event_type,
        "created_at": to_iso(event.created_at),
        "correlation_id": event.correlation_id,
        "deliver_at": iso(event.deliver_at),
        "expires_at": iso(event.expires_at),
        "ordering_key": event.ordering_key,
        "metadata": as_it_is(event.metadata),
        "payload": as_it_is(event.payload),
        "deliveries": [delivery.model_dump() for delivery in deliveries],
    }
    return msgspec.json.encode(fields)
