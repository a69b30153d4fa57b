"""Events: the routes that programs poll (status, lists, inbox), whole events, actions on events, and batches."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
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
from doorstep.api.routing import ApiRequest, Routes, id_of
from doorstep.coalesce import Shared
from doorstep.model import batch as batches
from doorstep.model import event as model
from doorstep.model.action import ActionKind
from doorstep.model.event import EventStatus as Status
from doorstep.model.event import EventSummary, EventView
from doorstep.model.listing import EventFilter
from doorstep.operations.reader import Described
from doorstep.schemas import events as schemas
from doorstep.schemas.shape import ReasonIn

_NO_REASON = ReasonIn()
_NULL = msgspec.Raw(b"null")

event_routes = Routes("/v1/events", "events")
batch_routes = Routes("/v1/batches", "batches")


@event_routes.get("/{event_id}")
async def read_event(event_id: UUID, request: ApiRequest) -> schemas.Event:
    """An event in full, with its payload and its deliveries."""
    view = await request.reader.event(request.org_id, event_id)
    deliveries = await request.reader.deliveries(request.org_id, event_id)
    return event_shown(view, await request.reader.described(request.org_id, deliveries))


@event_routes.delete("/{event_id}")
async def delete_event(event_id: UUID, request: ApiRequest) -> None:
    """Delete an event and its payload. Its waiting deliveries are cancelled and its dead letters deleted; the
    attempt log is kept."""
    await request.components.events.delete(request.org_id, event_id, request.actor)


@event_routes.post("/{event_id}/ack")
async def acknowledge_event(event_id: UUID, request: ApiRequest) -> schemas.Acknowledged:
    """Acknowledge an event from the inbox (role `operator`). The event then counts as delivered. Repeating the request
    is harmless."""
    await request.components.events.acknowledge(request.org_id, event_id, request.actor)
    return schemas.Acknowledged(event_id, "delivered")


@event_routes.post("/{event_id}/retry", status=202)
async def retry_event(event_id: UUID, request: ApiRequest, body: ReasonIn = _NO_REASON) -> schemas.Retried:
    """Retry the event's dead letters and waiting deliveries now. The retry count of dead letters is reset; waiting
    deliveries move to the front of the queue."""
    return schemas.Retried(event_id, *await _act(ActionKind.RETRY, event_id, request, body.reason))


@event_routes.post("/{event_id}/cancel")
async def cancel_event(event_id: UUID, request: ApiRequest, body: ReasonIn = _NO_REASON) -> schemas.Cancelled:
    """Cancel the event's waiting deliveries."""
    return schemas.Cancelled(event_id, *await _act(ActionKind.CANCEL, event_id, request, body.reason))


@event_routes.post("/{event_id}/replay", status=202)
async def replay_event(event_id: UUID, body: schemas.ReplayEventIn, request: ApiRequest) -> schemas.Receipt:
    """Send the event's type, payload and metadata to one endpoint again, as a new event."""
    receipt = await request.components.events.replay(request.org_id, event_id, body.endpoint_id, request.actor)
    return receipt_shown(receipt)


async def _act(
    kind: ActionKind, event_id: UUID, request: ApiRequest, reason: str
) -> tuple[tuple[UUID, ...], tuple[schemas.Refused, ...]]:
    result = await request.components.events.act(kind, request.org_id, event_id, request.actor, reason)
    refused = result.refused.items()
    return tuple(result.done), tuple(schemas.Refused(one, state and state.value) for one, state in refused)


# -- polling -----------------------------------------------------------------------------------------------------


@event_routes.plain("GET", "/v1/events/{event_id}/status", schemas.EventStatus, ids={"event_id": UUID})
async def read_status(request: ApiRequest) -> Response:
    """The status of an event, without its payload."""
    event_id = id_of(request.http.path_params["event_id"])
    summary = await request.reader.summary(request.org_id, event_id)
    return answer(schemas.EventStatus(event_id=event_id, **_status_fields(summary)))


@event_routes.plain("GET", "/v1/events", schemas.EventPage, query=schemas.EventsQuery)
async def list_events(request: ApiRequest) -> Response:
    """Events, newest first, without their payloads."""
    query = query_of(request.http, schemas.EventsQuery)
    filter = EventFilter(
        status=None if query.status is None else Status(query.status),
        event_type=query.event_type,
        created_from=instant_from(query.created_from, "created_from"),
        created_before=instant_from(query.created_before, "created_before"),
    )
    page = await request.reader.events(request.org_id, filter, query.cursor, query.limit)
    return answer(schemas.EventPage(tuple(map(item_shown, page.items)), pagination=position(page, query.limit)))


@event_routes.plain("GET", "/v1/inbox", schemas.InboxPage, query=schemas.InboxQuery)
async def read_inbox(request: ApiRequest) -> Response:
    """Unacknowledged events that no endpoint receives, oldest first, with their payloads. With `status=failed`, failed
    events without their payloads."""
    query = query_of(request.http, schemas.InboxQuery)
    question = (request.org_id, query.status, query.cursor, query.limit)
    # All consumers of an inbox poll its first page, so concurrent requests share one read and one encoding.
    inboxes: Shared = request.http.app.state.inboxes
    body = await inboxes.ask(question, lambda: _inbox(request, query))
    return Response(body, media_type="application/json")


async def _inbox(request: ApiRequest, query: schemas.InboxQuery) -> bytes:
    status = Status(query.status)
    page, count = await request.reader.inbox(request.org_id, status, query.cursor, query.limit)
    items = tuple(_inbox_item(view, payload=status is Status.RECEIVED) for view in page.items)
    return encoded(schemas.InboxPage(items, pagination=counted(page, query.limit, count)))


# -- batches -----------------------------------------------------------------------------------------------------


@batch_routes.get()
async def list_batches(query: schemas.BatchesQuery, request: ApiRequest) -> schemas.BatchPage:
    """Batches, newest first, optionally only batches with a given status."""
    status = None if query.status is None else batches.BatchStatus(query.status)
    page = await request.doorstep.batches.list(
        status, query.event_type, cursor=query.cursor, limit=query.limit, org_id=request.org_id
    )
    return schemas.BatchPage(all_of(_batch_shown, page.items), pagination=position(page, query.limit))


@batch_routes.get("/{batch_id}")
async def read_batch(batch_id: UUID, request: ApiRequest) -> schemas.Batch:
    """A batch and its status."""
    return _batch_shown(await request.doorstep.batches.batch(batch_id, org_id=request.org_id))


@batch_routes.get("/{batch_id}/attempts")
async def list_submissions(batch_id: UUID, request: ApiRequest) -> schemas.SubmissionPage:
    """The carrier log: every submission with the carrier's response, oldest first."""
    log = await request.doorstep.batches.attempts(batch_id, org_id=request.org_id)
    return whole(schemas.SubmissionPage, shapes(schemas.Submission, log))


@batch_routes.post("/{batch_id}/resubmit", status=202)
async def resubmit_batch(batch_id: UUID, request: ApiRequest, body: ReasonIn = _NO_REASON) -> schemas.Batch:
    """Submit a FAILED batch again immediately, with its retry count reset."""
    return _batch_shown(
        await request.doorstep.batches.resubmit(batch_id, request.actor, body.reason, org_id=request.org_id)
    )


# -- shapes ------------------------------------------------------------------------------------------------------


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


def _inbox_item(view: EventView, *, payload: bool) -> schemas.InboxItem:
    return schemas.InboxItem(
        **_item_fields(view.event),
        **_status_fields(view),
        deliveries=view.deliveries,
        payload_json=as_it_is(view.event.payload) if payload else _NULL,
        metadata_json=as_it_is(view.event.metadata),
    )


def event_shown(view: EventView, deliveries: list[Described]) -> schemas.Event:
    return shape(
        schemas.Event,
        view.event,
        **_status_fields(view),
        refusal=view.refusal,
        metadata_json=as_it_is(view.event.metadata),
        payload_json=as_it_is(view.event.payload),
        deliveries=tuple(delivery_shown(one.delivery, one.held) for one in deliveries),
    )


def _batch_shown(batch: batches.Batch) -> schemas.Batch:
    assert batch.delivery_id is not None, "a stored batch has a delivery"
    return shape(schemas.Batch, batch)
