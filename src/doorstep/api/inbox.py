"""The inbox: the list that people read, and the leases and answers of its consumers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from starlette.responses import Response

from doorstep.api.access import Access
from doorstep.api.codec import answer, counted, encoded, query_of
from doorstep.api.problems import invalid
from doorstep.api.routing import ApiRequest, Routes
from doorstep.clock import Instant
from doorstep.coalesce import Shared
from doorstep.model.event import EventStatus, EventView
from doorstep.model.org import Permission
from doorstep.operations.inbox import held_until, holder_of, refusal
from doorstep.operations.shapes import as_it_is, item_fields, status_fields, time_or_none
from doorstep.schemas import inbox as schemas
from doorstep.schemas.shape import FieldProblem

inbox_routes = Routes("/v1", "inbox")
_NO_TOKEN, _NACK_NOW, _USUAL_LEASE = schemas.AckIn(), schemas.NackIn(), schemas.LeaseIn()


@inbox_routes.plain("GET", "/v1/inbox", Access(Permission.INBOX, own=True), schemas.InboxPage, query=schemas.InboxQuery)
async def read_inbox(request: ApiRequest) -> Response:
    """Unacknowledged events that no endpoint receives, oldest first, with their payloads. Leased events are included.
    With `status=failed`, events whose deliveries have failed."""
    query = query_of(request.http, schemas.InboxQuery)
    question = (request.org_id, request.user_id, query.status, query.cursor, query.limit)
    # All consumers of an inbox poll its first page, so concurrent requests share one read and one encoding.
    inboxes: Shared = request.http.app.state.inboxes
    body = await inboxes.ask(question, lambda: _inbox(request, query))
    return Response(body, media_type="application/json")


async def _inbox(request: ApiRequest, query: schemas.InboxQuery) -> bytes:
    status, now = EventStatus(query.status), request.components.clock.now()
    page, count = await request.reader.inbox(request.org_id, status, query.cursor, query.limit, request.user_id)
    names = await request.reader.key_names(request.org_id, (view.leased_by for view in page.items))
    items = tuple(schemas.InboxItem(**_fields(view, now, names)) for view in page.items)
    return encoded(schemas.InboxPage(items, pagination=counted(page, query.limit, count)))


@inbox_routes.post("/inbox/lease", Permission.CONSUME, answers=schemas.Leased, own=True)
async def lease_inbox(request: ApiRequest, body: schemas.LeaseIn = _USUAL_LEASE) -> Response:
    """Lease events of the inbox. Until the lease ends, no other consumer can lease them. Acknowledge each event, or
    give it back, with its `lease_token`. An event whose lease ends is leased again by the next request."""
    views = await request.components.inbox.lease(
        request.org_id, request.actor, body.limit, body.visibility_seconds, body.event_types, request.user_id
    )
    now, names = request.components.clock.now(), {request.actor: request.key.name}
    return answer(
        schemas.Leased(
            tuple(schemas.LeasedEvent(**_fields(one, now, names), lease_token=one.receive_count) for one in views)
        )
    )


@inbox_routes.post("/inbox/ack", Permission.CONSUME, own=True)
async def acknowledge_events(body: schemas.AckManyIn, request: ApiRequest) -> schemas.InboxAnswers:
    """Acknowledge up to 1,000 events of the inbox. Each event has its own result."""
    return await _answer(request, body.events)


@inbox_routes.post("/inbox/nack", Permission.CONSUME, own=True)
async def nack_events(body: schemas.NackManyIn, request: ApiRequest) -> schemas.InboxAnswers:
    """Give up to 1,000 events back to the inbox. They can be leased again, at once or after `delay_seconds`. Each event
    has its own result."""
    return await _answer(request, body.events, body.delay_seconds)


@inbox_routes.post("/events/{event_id}/ack", Permission.CONSUME, conflict=True, own=True)
async def acknowledge_event(
    event_id: UUID, request: ApiRequest, body: schemas.AckIn = _NO_TOKEN
) -> schemas.Acknowledged:
    """Acknowledge an event from the inbox. The event then counts as delivered. Repeating the request is harmless. With
    a `lease_token`, the response is a 409 if the event was leased again after that lease had ended."""
    inbox = request.components.inbox
    await inbox.acknowledge(request.org_id, event_id, request.actor, body.lease_token, request.user_id)
    return schemas.Acknowledged(event_id, "delivered")


@inbox_routes.post("/events/{event_id}/nack", Permission.CONSUME, conflict=True, own=True)
async def nack_event(event_id: UUID, request: ApiRequest, body: schemas.NackIn = _NACK_NOW) -> schemas.Nacked:
    """Give an event back to the inbox. It can be leased again, at once or after `delay_seconds`."""
    inbox = request.components.inbox
    await inbox.nack(request.org_id, event_id, request.actor, body.lease_token, body.delay_seconds, request.user_id)
    return schemas.Nacked(event_id, "received")


async def _answer(
    request: ApiRequest, events: Sequence[schemas.InboxAnswerIn], nack_seconds: float | None = None
) -> schemas.InboxAnswers:
    if len({one.event_id for one in events}) < len(events):
        raise invalid(FieldProblem("events", "must contain each event only once"))
    pairs = [(one.event_id, one.lease_token) for one in events]
    inbox = request.components.inbox
    results = await inbox.answer(request.org_id, pairs, request.actor, nack_seconds, request.user_id)
    return schemas.InboxAnswers(
        tuple(schemas.InboxAnswered(one, result.value, refusal(one, result)) for one, result in results.items())
    )


def _fields(view: EventView, now: Instant, names: dict[str, str]) -> dict[str, Any]:
    holder = holder_of(view, now)
    return {
        **item_fields(view.event),
        **status_fields(view),
        "deliveries": view.deliveries,
        "receive_count": view.receive_count,
        "leased_by": names.get(holder, holder) if holder else None,
        "visible_at": time_or_none(held_until(view, now)),
        "payload_json": as_it_is(view.event.payload),
        "metadata_json": as_it_is(view.event.metadata),
    }
