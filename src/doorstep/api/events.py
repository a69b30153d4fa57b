"""Events: as programs poll them (status, lists, the inbox), in full, and acting on all that they owe."""

from __future__ import annotations

from uuid import UUID

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from doorstep.api.answers import all_of, answer, as_it_is, counted, encoded, position, time, time_or_none
from doorstep.api.auth import api_key
from doorstep.api.bodies import instant_from, query_of
from doorstep.api.deliveries import delivery_shown
from doorstep.api.ingest import receipt_shown
from doorstep.api.routing import Caller, Operation, Routes, id_of
from doorstep.app import Doorstep
from doorstep.engine.coalesce import Shared
from doorstep.model.action import ActionKind, ActionResult
from doorstep.model.event import EventStatus as Status
from doorstep.model.event import EventSummary, EventView
from doorstep.model.listing import Count, EventFilter, Page
from doorstep.operations.reader import Described
from doorstep.schemas.events import (
    Acknowledged,
    Cancelled,
    Event,
    EventItem,
    EventPage,
    EventsQuery,
    EventStatus,
    InboxItem,
    InboxPage,
    InboxQuery,
    Receipt,
    Refused,
    ReplayEventIn,
    Retried,
)
from doorstep.schemas.shape import ReasonIn

_NO_REASON = ReasonIn()
_NULL = msgspec.Raw(b"null")


def event_routes(doorstep: Doorstep) -> Routes:
    routes = Routes("/v1/events", "events")
    _add_polling(routes, Polling(doorstep))

    @routes.get("/{event_id}")
    async def read_event(event_id: UUID, caller: Caller) -> Event:
        """An event in full, with its payload and its deliveries."""
        view = await doorstep.components.reader.event(caller.org_id, event_id)
        deliveries = await doorstep.components.reader.deliveries(caller.org_id, event_id)
        return event_shown(view, await doorstep.components.reader.described(caller.org_id, deliveries))

    @routes.delete("/{event_id}")
    async def delete_event(event_id: UUID, caller: Caller) -> None:
        """Erase an event and its payload. What waits is cancelled, dead letters are deleted; the attempt log stays."""
        await doorstep.components.events.delete(caller.org_id, event_id, caller.prefix)

    @routes.post("/{event_id}/ack")
    async def acknowledge_event(event_id: UUID, caller: Caller) -> Acknowledged:
        """Say that you have taken the event from the inbox (role `operator`): it is delivered. Again does no harm."""
        await doorstep.components.events.acknowledge(caller.org_id, event_id, caller.prefix)
        return Acknowledged(event_id, "delivered")

    @routes.post("/{event_id}/retry", status=202)
    async def retry_event(event_id: UUID, caller: Caller, body: ReasonIn = _NO_REASON) -> Retried:
        """Try again now what failed or waits: dead letters with a fresh count, waiting deliveries ahead of the queue."""
        result = await doorstep.components.events.act(
            ActionKind.RETRY, caller.org_id, event_id, caller.prefix, body.reason
        )
        return Retried(event_id, tuple(result.done), refused_shown(result))

    @routes.post("/{event_id}/cancel")
    async def cancel_event(event_id: UUID, caller: Caller, body: ReasonIn = _NO_REASON) -> Cancelled:
        """Call off the deliveries that still wait."""
        result = await doorstep.components.events.act(
            ActionKind.CANCEL, caller.org_id, event_id, caller.prefix, body.reason
        )
        return Cancelled(event_id, tuple(result.done), refused_shown(result))

    @routes.post("/{event_id}/replay", status=202)
    async def replay_event(event_id: UUID, body: ReplayEventIn, caller: Caller) -> Receipt:
        """Send the same type, payload and metadata to one endpoint again, as a new event."""
        return receipt_shown(
            await doorstep.components.events.replay(caller.org_id, event_id, body.endpoint_id, caller.prefix)
        )

    return routes


# -- polling -----------------------------------------------------------------------------------------------------


class Polling:
    """What programs ask for all the time, bound to the engine that knows the answers."""

    def __init__(self, doorstep: Doorstep) -> None:
        self._doorstep = doorstep
        self._inboxes = Shared()

    async def status(self, request: Request) -> Response:
        event_id = id_of(request.path_params["event_id"])
        return answer(status_shown(await self._doorstep.components.reader.summary(api_key(request).org_id, event_id)))

    async def events(self, request: Request) -> Response:
        asked = query_of(request, EventsQuery)
        wanted = EventFilter(
            status=None if asked.status is None else Status(asked.status),
            event_type=asked.event_type,
            created_from=instant_from(asked.created_from, "created_from"),
            created_before=instant_from(asked.created_before, "created_before"),
        )
        page = await self._doorstep.components.reader.events(api_key(request).org_id, wanted, asked.cursor, asked.limit)
        return answer(EventPage(all_of(item_shown, page.items), position(page, asked.limit)))

    async def inbox(self, request: Request) -> Response:
        asked = query_of(request, InboxQuery)
        org_id = api_key(request).org_id
        question = (org_id, asked.status, asked.cursor, asked.limit)
        # Consumers of one inbox all ask for its first page: read and encoded once for those who ask together.
        body = await self._inboxes.ask(question, lambda: self._inbox(org_id, asked))
        return Response(body, media_type="application/json")

    async def _inbox(self, org_id: UUID, asked: InboxQuery) -> bytes:
        status = Status(asked.status)
        page, count = await self._doorstep.components.reader.inbox(org_id, status, asked.cursor, asked.limit)
        return encoded(inbox_shown(page, asked.limit, count, payloads=status is Status.RECEIVED))


def _add_polling(routes: Routes, polling: Polling) -> None:
    """Routes that parse and answer by themselves: the table of parameters costs a third of the time there."""
    about = "Events, newest first, without their payloads."
    routes.plain(
        Operation("GET", "/v1/events", "list_events", about, ("events",), 200, EventPage, query=EventsQuery),
        polling.events,
    )
    about = "Where an event stands, without its payload."
    path = "/v1/events/{event_id}/status"
    routes.plain(
        Operation("GET", path, "read_status", about, ("events",), 200, EventStatus, ids={"event_id": UUID}),
        polling.status,
    )
    about = (
        "Events that no push endpoint takes and that nobody has acknowledged, oldest first, with their payloads; or "
        "the failed ones, without."
    )
    routes.plain(
        Operation("GET", "/v1/inbox", "read_inbox", about, ("events",), 200, InboxPage, query=InboxQuery),
        polling.inbox,
    )


# -- shapes ------------------------------------------------------------------------------------------------------


def status_shown(summary: EventSummary) -> EventStatus:
    return EventStatus(
        summary.event_id,
        summary.status.value,
        summary.retry_attempts,
        time_or_none(summary.last_retry_at),
        time_or_none(summary.failed_at),
        time_or_none(summary.next_retry_at),
    )


def item_shown(summary: EventSummary) -> EventItem:
    return EventItem(
        event_id=summary.event_id,
        status=summary.status.value,
        retry_attempts=summary.retry_attempts,
        last_retry_at=time_or_none(summary.last_retry_at),
        failed_at=time_or_none(summary.failed_at),
        next_retry_at=time_or_none(summary.next_retry_at),
        event_type=summary.event_type,
        created_at=time(summary.created_at),
        correlation_id=summary.correlation_id,
        deliveries=summary.deliveries,
    )


def inbox_shown(page: Page[EventView], limit: int, count: Count, *, payloads: bool) -> InboxPage:
    return InboxPage(tuple(_inbox_item(view, payloads) for view in page.items), counted(page, limit, count))


def _inbox_item(view: EventView, payload: bool) -> InboxItem:
    event = view.event
    return InboxItem(
        event_id=event.event_id,
        status=view.status.value,
        retry_attempts=view.retry_attempts,
        last_retry_at=time_or_none(view.last_retry_at),
        failed_at=time_or_none(view.failed_at),
        next_retry_at=time_or_none(view.next_retry_at),
        event_type=event.event_type,
        created_at=time(event.created_at),
        correlation_id=event.correlation_id,
        deliveries=view.deliveries,
        payload_json=as_it_is(event.payload) if payload else _NULL,
        metadata_json=as_it_is(event.metadata),
    )


def event_shown(view: EventView, deliveries: list[Described]) -> Event:
    event = view.event
    return Event(
        event_id=event.event_id,
        status=view.status.value,
        retry_attempts=view.retry_attempts,
        last_retry_at=time_or_none(view.last_retry_at),
        failed_at=time_or_none(view.failed_at),
        next_retry_at=time_or_none(view.next_retry_at),
        refusal=view.refusal,
        event_type=event.event_type,
        created_at=time(event.created_at),
        correlation_id=event.correlation_id,
        deliver_at=time_or_none(event.deliver_at),
        expires_at=time_or_none(event.expires_at),
        ordering_key=event.ordering_key,
        metadata_json=as_it_is(event.metadata),
        payload_json=as_it_is(event.payload),
        deliveries=tuple(delivery_shown(one.delivery, one.held) for one in deliveries),
    )


def refused_shown(result: ActionResult) -> tuple[Refused, ...]:
    return tuple(
        Refused(delivery_id, None if state is None else state.value) for delivery_id, state in result.refused.items()
    )
