"""Events: the routes that programs poll (status, lists, inbox), whole events, actions on events, and batches."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from doorstep.api.codec import (
    all_of,
    answer,
    as_it_is,
    counted,
    encoded,
    instant_from,
    position,
    query_of,
    shape,
    shapes,
    time,
    time_or_none,
    whole,
)
from doorstep.api.deliveries import delivery_shown
from doorstep.api.ingest import receipt_shown
from doorstep.api.middleware import api_key
from doorstep.api.routing import Caller, Routes, id_of
from doorstep.app import Doorstep
from doorstep.coalesce import Shared
from doorstep.model import batch as batches
from doorstep.model import event as model
from doorstep.model.action import ActionKind
from doorstep.model.event import EventStatus as Status
from doorstep.model.event import EventSummary, EventView
from doorstep.model.listing import Count, EventFilter, Page
from doorstep.model.org import ApiKey
from doorstep.operations.reader import Described
from doorstep.schemas import events as schemas
from doorstep.schemas.batches import Batch, BatchesQuery, BatchPage, Submission, SubmissionPage
from doorstep.schemas.shape import ReasonIn

_NO_REASON = ReasonIn()
_NULL = msgspec.Raw(b"null")


def event_routes(doorstep: Doorstep) -> Routes:
    routes = Routes("/v1/events", "events")
    polling = Polling(doorstep)
    routes.plain("GET", "/v1/events", polling.list_events, schemas.EventPage, query=schemas.EventsQuery)
    routes.plain(
        "GET", "/v1/events/{event_id}/status", polling.read_status, schemas.EventStatus, ids={"event_id": UUID}
    )
    routes.plain("GET", "/v1/inbox", polling.read_inbox, schemas.InboxPage, query=schemas.InboxQuery)

    @routes.get("/{event_id}")
    async def read_event(event_id: UUID, caller: Caller) -> schemas.Event:
        """An event in full, with its payload and its deliveries."""
        view = await doorstep.components.reader.event(caller.org_id, event_id)
        deliveries = await doorstep.components.reader.deliveries(caller.org_id, event_id)
        return event_shown(view, await doorstep.components.reader.described(caller.org_id, deliveries))

    @routes.delete("/{event_id}")
    async def delete_event(event_id: UUID, caller: Caller) -> None:
        """Delete an event and its payload. Its waiting deliveries are cancelled and its dead letters deleted; the
        attempt log is kept."""
        await doorstep.components.events.delete(caller.org_id, event_id, caller.prefix)

    @routes.post("/{event_id}/ack")
    async def acknowledge_event(event_id: UUID, caller: Caller) -> schemas.Acknowledged:
        """Acknowledge an event from the inbox (role `operator`): it then counts as delivered. Repeating the request is
        harmless."""
        await doorstep.components.events.acknowledge(caller.org_id, event_id, caller.prefix)
        return schemas.Acknowledged(event_id, "delivered")

    @routes.post("/{event_id}/retry", status=202)
    async def retry_event(event_id: UUID, caller: Caller, body: ReasonIn = _NO_REASON) -> schemas.Retried:
        """Retry the event's dead letters and waiting deliveries now. The retry count of dead letters is reset; waiting
        deliveries move to the front of the queue."""
        return schemas.Retried(event_id, *await acted(ActionKind.RETRY, event_id, caller, body.reason))

    @routes.post("/{event_id}/cancel")
    async def cancel_event(event_id: UUID, caller: Caller, body: ReasonIn = _NO_REASON) -> schemas.Cancelled:
        """Cancel the event's waiting deliveries."""
        return schemas.Cancelled(event_id, *await acted(ActionKind.CANCEL, event_id, caller, body.reason))

    @routes.post("/{event_id}/replay", status=202)
    async def replay_event(event_id: UUID, body: schemas.ReplayEventIn, caller: Caller) -> schemas.Receipt:
        """Send the same type, payload and metadata to one endpoint again, as a new event."""
        return receipt_shown(
            await doorstep.components.events.replay(caller.org_id, event_id, body.endpoint_id, caller.prefix)
        )

    async def acted(
        kind: ActionKind, event_id: UUID, caller: ApiKey, reason: str
    ) -> tuple[tuple[UUID, ...], tuple[schemas.Refused, ...]]:
        result = await doorstep.components.events.act(kind, caller.org_id, event_id, caller.prefix, reason)
        refused = result.refused.items()
        return tuple(result.done), tuple(schemas.Refused(one, state and state.value) for one, state in refused)

    return routes


# -- polling -----------------------------------------------------------------------------------------------------


class Polling:
    """The routes that programs poll. They parse and respond directly, without the overhead of the other routes."""

    def __init__(self, doorstep: Doorstep) -> None:
        self._doorstep = doorstep
        self._inboxes = Shared()

    async def read_status(self, request: Request) -> Response:
        """The status of an event, without its payload."""
        event_id = id_of(request.path_params["event_id"])
        return answer(status_shown(await self._doorstep.components.reader.summary(api_key(request).org_id, event_id)))

    async def list_events(self, request: Request) -> Response:
        """Events, newest first, without their payloads."""
        query = query_of(request, schemas.EventsQuery)
        filter = EventFilter(
            status=None if query.status is None else Status(query.status),
            event_type=query.event_type,
            created_from=instant_from(query.created_from, "created_from"),
            created_before=instant_from(query.created_before, "created_before"),
        )
        page = await self._doorstep.components.reader.events(api_key(request).org_id, filter, query.cursor, query.limit)
        return answer(schemas.EventPage(all_of(item_shown, page.items), position(page, query.limit)))

    async def read_inbox(self, request: Request) -> Response:
        """Unacknowledged events that no endpoint receives, oldest first, with their payloads; or failed events, without
        payloads."""
        query = query_of(request, schemas.InboxQuery)
        org_id = api_key(request).org_id
        question = (org_id, query.status, query.cursor, query.limit)
        # All consumers of an inbox poll its first page, so concurrent requests share one read and one encoding.
        body = await self._inboxes.ask(question, lambda: self._inbox(org_id, query))
        return Response(body, media_type="application/json")

    async def _inbox(self, org_id: UUID, query: schemas.InboxQuery) -> bytes:
        status = Status(query.status)
        page, count = await self._doorstep.components.reader.inbox(org_id, status, query.cursor, query.limit)
        return encoded(inbox_shown(page, query.limit, count, payloads=status is Status.RECEIVED))


# -- shapes ------------------------------------------------------------------------------------------------------


def status_shown(summary: EventSummary) -> schemas.EventStatus:
    return schemas.EventStatus(event_id=summary.event_id, **_status_fields(summary))


def _status_fields(event: EventSummary | EventView) -> dict[str, Any]:
    return {
        "status": event.status.value,
        "retry_attempts": event.retry_attempts,
        "last_retry_at": time_or_none(event.last_retry_at),
        "failed_at": time_or_none(event.failed_at),
        "next_retry_at": time_or_none(event.next_retry_at),
    }


def _item_fields(event: model.Event | EventSummary) -> dict[str, Any]:
    return {
        "event_id": event.event_id,
        "event_type": event.event_type,
        "created_at": time(event.created_at),
        "correlation_id": event.correlation_id,
    }


def item_shown(summary: EventSummary) -> schemas.EventItem:
    return schemas.EventItem(**_item_fields(summary), **_status_fields(summary), deliveries=summary.deliveries)


def inbox_shown(page: Page[EventView], limit: int, count: Count, *, payloads: bool) -> schemas.InboxPage:
    return schemas.InboxPage(tuple(_inbox_item(view, payloads) for view in page.items), counted(page, limit, count))


def _inbox_item(view: EventView, payload: bool) -> schemas.InboxItem:
    return schemas.InboxItem(
        **_item_fields(view.event),
        **_status_fields(view),
        deliveries=view.deliveries,
        payload_json=as_it_is(view.event.payload) if payload else _NULL,
        metadata_json=as_it_is(view.event.metadata),
    )


def event_shown(view: EventView, deliveries: list[Described]) -> schemas.Event:
    event = view.event
    return schemas.Event(
        **_item_fields(event),
        **_status_fields(view),
        refusal=view.refusal,
        deliver_at=time_or_none(event.deliver_at),
        expires_at=time_or_none(event.expires_at),
        ordering_key=event.ordering_key,
        metadata_json=as_it_is(event.metadata),
        payload_json=as_it_is(event.payload),
        deliveries=tuple(delivery_shown(one.delivery, one.held) for one in deliveries),
    )


def batch_routes(doorstep: Doorstep) -> Routes:
    routes = Routes("/v1/batches", "batches")

    @routes.get()
    async def list_batches(query: BatchesQuery, caller: Caller) -> BatchPage:
        """Batches, newest first, optionally only those with one status."""
        status = None if query.status is None else batches.BatchStatus(query.status)
        page = await doorstep.batches.list(
            status, query.event_type, cursor=query.cursor, limit=query.limit, org_id=caller.org_id
        )
        return BatchPage(all_of(_batch_shown, page.items), position(page, query.limit))

    @routes.get("/{batch_id}")
    async def read_batch(batch_id: UUID, caller: Caller) -> Batch:
        """A batch and its status."""
        return _batch_shown(await doorstep.batches.batch(batch_id, org_id=caller.org_id))

    @routes.get("/{batch_id}/attempts")
    async def list_submissions(batch_id: UUID, caller: Caller) -> SubmissionPage:
        """The carrier log: every submission with the carrier's response, oldest first."""
        log = await doorstep.batches.attempts(batch_id, org_id=caller.org_id)
        return whole(SubmissionPage, shapes(Submission, log))

    @routes.post("/{batch_id}/resubmit", status=202)
    async def resubmit_batch(batch_id: UUID, caller: Caller, body: ReasonIn = _NO_REASON) -> Batch:
        """Submit a FAILED batch again, at once and with the retry count reset."""
        return _batch_shown(await doorstep.batches.resubmit(batch_id, caller.prefix, body.reason, org_id=caller.org_id))

    return routes


def _batch_shown(batch: batches.Batch) -> Batch:
    assert batch.delivery_id is not None, "a stored batch has a delivery"
    return shape(Batch, batch)
