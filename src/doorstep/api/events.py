"""Events: the routes that programs poll (status, lists), whole events, actions on events, and batches."""

from __future__ import annotations

from uuid import UUID

from starlette.responses import Response

from doorstep.api.access import Access
from doorstep.api.codec import all_of, answer, position, query_of, span_of, whole
from doorstep.api.routing import ApiRequest, Routes, id_of
from doorstep.engine.accept import stored_key
from doorstep.errors import InvalidInput
from doorstep.model import batch as batches
from doorstep.model.action import ActionKind
from doorstep.model.event import EventStatus as Status
from doorstep.model.event import EventSummary
from doorstep.model.listing import EventFilter
from doorstep.model.org import Permission
from doorstep.operations import shapes as shapes_of
from doorstep.operations.search import fields_named
from doorstep.operations.shapes import (
    item_fields,
    receipt_shown,
    shape,
    shapes,
    status_fields,
    time,
)
from doorstep.schemas import events as schemas
from doorstep.schemas.deliveries import Held
from doorstep.schemas.shape import ReasonIn

_NO_REASON = ReasonIn()

event_routes = Routes("/v1/events", "events")
batch_routes = Routes("/v1/batches", "batches")


@event_routes.get("/{event_id}", Permission.LOOK, own=True)
async def read_event(event_id: UUID, request: ApiRequest) -> schemas.Event:
    """An event in full, with its payload and its deliveries."""
    return await shapes_of.read_event(request.reader, request.org_id, event_id, request.user_id)


@event_routes.delete("/{event_id}", Permission.ACT, conflict=True)
async def delete_event(event_id: UUID, request: ApiRequest) -> None:
    """Delete an event and its payload. Its waiting deliveries are cancelled and its dead letters deleted; the
    attempt log is kept."""
    await request.components.events.delete(request.org_id, event_id, request.actor)


@event_routes.post("/{event_id}/retry", Permission.ACT, conflict=True, status=202)
async def retry_event(event_id: UUID, request: ApiRequest, body: ReasonIn = _NO_REASON) -> schemas.Retried:
    """Retry the event's dead letters and waiting deliveries now. The retry count of dead letters is reset; waiting
    deliveries move to the front of the queue."""
    return schemas.Retried(event_id, *await _act(ActionKind.RETRY, event_id, request, body.reason))


@event_routes.post("/{event_id}/cancel", Permission.ACT, conflict=True)
async def cancel_event(event_id: UUID, request: ApiRequest, body: ReasonIn = _NO_REASON) -> schemas.Cancelled:
    """Cancel the event's waiting deliveries."""
    return schemas.Cancelled(event_id, *await _act(ActionKind.CANCEL, event_id, request, body.reason))


@event_routes.post("/{event_id}/replay", Permission.ACT, conflict=True, status=202)
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


@event_routes.plain(
    "GET",
    "/v1/events/{event_id}/status",
    Access(Permission.STATUS, own=True),
    schemas.EventStatus,
    ids={"event_id": UUID},
)
async def read_status(request: ApiRequest) -> Response:
    """The status of an event, without its payload."""
    event_id = id_of(request.http.path_params["event_id"])
    summary = await request.reader.summary(request.org_id, event_id, request.user_id)
    return answer(schemas.EventStatus(event_id=event_id, **status_fields(summary)))


@event_routes.plain(
    "GET", "/v1/events", Access(Permission.LOOK, own=True), schemas.EventPage, query=schemas.EventsQuery
)
async def list_events(request: ApiRequest) -> Response:
    """Events, newest first, without their payloads. They can be searched by their keys, their endpoint, and values in
    their payload and metadata."""
    query = query_of(request.http, schemas.EventsQuery)
    since, until = span_of(query)
    user_id = _user_of(request, query.user_id)
    search = request.components.search
    filter = EventFilter(
        status=None if query.status is None else Status(query.status),
        event_type=query.event_type,
        created_from=since,
        created_before=until,
        endpoint_id=None if query.endpoint is None else await search.endpoint_id(request.org_id, query.endpoint),
        correlation_id=query.correlation_id,
        ordering_key=query.ordering_key,
        idempotency_key=stored_key(query.idempotency_key, user_id),
        user_id=user_id,
    )
    fields = fields_named(query.payload or {}, query.metadata or {})
    found = await search.events(request.org_id, filter, fields, query.cursor, query.limit)
    searched, page = found.searched_until, found.page
    place = (
        query.limit,
        page.next,
        page.next is not None,
        found.examined,
        None if searched is None else time(searched),
    )
    return answer(schemas.EventPage(all_of(item_shown, page.items), pagination=schemas.SearchPagination(*place)))


def _user_of(request: ApiRequest, user_id: str | None) -> str | None:
    """The user whose events are listed: that of the key, or the given one."""
    if request.user_id is not None and user_id not in (None, request.user_id):
        raise InvalidInput("user_id", "must be the user of the key, or be left out")
    return request.user_id or user_id


# -- batches -----------------------------------------------------------------------------------------------------


@batch_routes.get("", Permission.LOOK)
async def list_batches(query: schemas.BatchesQuery, request: ApiRequest) -> schemas.BatchPage:
    """Batches, newest first, optionally only batches with a given status."""
    status = None if query.status is None else batches.BatchStatus(query.status)
    page = await request.doorstep.batches.list(
        status, query.event_type, cursor=query.cursor, limit=query.limit, org_id=request.org_id
    )
    return schemas.BatchPage(all_of(_batch_shown, page.items), pagination=position(page, query.limit))


@batch_routes.get("/{batch_id}", Permission.LOOK)
async def read_batch(batch_id: UUID, request: ApiRequest) -> schemas.Batch:
    """A batch and its status."""
    return _batch_shown(await request.doorstep.batches.batch(batch_id, org_id=request.org_id))


@batch_routes.get("/{batch_id}/attempts", Permission.LOOK)
async def list_submissions(batch_id: UUID, request: ApiRequest) -> schemas.SubmissionPage:
    """The carrier log: every submission with the carrier's response, oldest first."""
    log = await request.doorstep.batches.attempts(batch_id, org_id=request.org_id)
    return whole(schemas.SubmissionPage, shapes(schemas.Submission, log))


@batch_routes.post("/{batch_id}/resubmit", Permission.ACT, conflict=True, status=202)
async def resubmit_batch(batch_id: UUID, request: ApiRequest, body: ReasonIn = _NO_REASON) -> schemas.Batch:
    """Submit a FAILED batch again immediately, with its retry count reset."""
    return _batch_shown(
        await request.doorstep.batches.resubmit(batch_id, request.actor, body.reason, org_id=request.org_id)
    )


# -- shapes ------------------------------------------------------------------------------------------------------


def item_shown(summary: EventSummary) -> schemas.EventItem:
    return schemas.EventItem(**item_fields(summary), **status_fields(summary), deliveries=summary.deliveries)


def _batch_shown(batch: batches.Batch) -> schemas.Batch:
    assert batch.delivery_id is not None, "a stored batch has a delivery"
    held = None if batch.held is None else Held(batch.held.reason, batch.held.until)
    return shape(schemas.Batch, batch, held=held)
