"""Events as programs poll them: status, lists, inbox. Encoded by msgspec, because they are asked for all the time."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

import msgspec

from doorstep.api.schemas import iso
from doorstep.clock import to_iso
from doorstep.model.event import EventSummary, EventView
from doorstep.model.listing import Count, Page

Time = Annotated[str, msgspec.Meta(extra_json_schema={"format": "date-time"})]
StatusName = Literal["received", "queued", "delivered", "failed"]


class EventStatusOut(msgspec.Struct, kw_only=True, gc=False):
    """Where an event stands. Never the payload."""

    event_id: UUID
    status: StatusName
    retry_attempts: int
    last_retry_at: Time | None
    failed_at: Time | None
    next_retry_at: Time | None


class EventItem(EventStatusOut, kw_only=True, gc=False):
    """An event in a list."""

    event_type: str
    created_at: Time
    correlation_id: str
    deliveries: int


class InboxItem(EventItem, kw_only=True, gc=False):
    """An event in the inbox. The payload is given where it waits to be taken: not for failed ones."""

    payload: msgspec.Raw | None
    """Exactly the bytes that were accepted."""
    metadata: msgspec.Raw


class PageOut(msgspec.Struct, gc=False):
    """`cursor` asks for the next page. A page may be short, even empty, and still have a next one."""

    limit: int
    cursor: str | None
    has_more: bool


class InboxPageOut(PageOut, gc=False):
    """With the number of all there are. Counting stops at 10,000: then it is only a floor, and says so."""

    total_count: int
    total_is_floor: bool


class EventsOut(msgspec.Struct, gc=False):
    events: list[EventItem]
    pagination: PageOut


class InboxOut(msgspec.Struct, gc=False):
    events: list[InboxItem]
    pagination: InboxPageOut


def status_out(summary: EventSummary) -> EventStatusOut:
    return EventStatusOut(
        event_id=summary.event_id,
        status=summary.status.value,
        retry_attempts=summary.retry_attempts,
        last_retry_at=iso(summary.last_retry_at),
        failed_at=iso(summary.failed_at),
        next_retry_at=iso(summary.next_retry_at),
    )


def events_out(page: Page[EventSummary], limit: int) -> EventsOut:
    return EventsOut([_item(summary) for summary in page.items], PageOut(limit, page.next, page.next is not None))


def _item(summary: EventSummary) -> EventItem:
    return EventItem(
        event_id=summary.event_id,
        status=summary.status.value,
        retry_attempts=summary.retry_attempts,
        last_retry_at=iso(summary.last_retry_at),
        failed_at=iso(summary.failed_at),
        next_retry_at=iso(summary.next_retry_at),
        event_type=summary.event_type,
        created_at=to_iso(summary.created_at),
        correlation_id=summary.correlation_id,
        deliveries=summary.deliveries,
    )


def inbox_out(page: Page[EventView], limit: int, count: Count, *, payloads: bool) -> InboxOut:
    pagination = InboxPageOut(limit, page.next, page.next is not None, count.value, not count.exact)
    return InboxOut([_inbox_item(view, payloads) for view in page.items], pagination)


def _inbox_item(view: EventView, payload: bool) -> InboxItem:
    event = view.event
    return InboxItem(
        event_id=event.event_id,
        status=view.status.value,
        retry_attempts=view.retry_attempts,
        last_retry_at=iso(view.last_retry_at),
        failed_at=iso(view.failed_at),
        next_retry_at=iso(view.next_retry_at),
        event_type=event.event_type,
        created_at=to_iso(event.created_at),
        correlation_id=event.correlation_id,
        deliveries=view.deliveries,
        payload=as_it_is(event.payload) if payload else None,
        metadata=as_it_is(event.metadata),
    )


def as_it_is(content: bytes) -> msgspec.Raw:
    """The very bytes where they are JSON. A library user may send others; those are shown as text."""
    if content == b"{}":
        return _EMPTY
    try:
        content.decode()
        return msgspec.json.decode(content, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return msgspec.Raw(msgspec.json.encode(content.decode("utf-8", "replace")))


_EMPTY = msgspec.Raw(b"{}")
