"""What programs ask for all the time: the status of an event, the list of events, the inbox.

Plain Starlette and msgspec, as sending is: a FastAPI route costs three times as much.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, TypeVar
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from doorstep.api.auth import api_key
from doorstep.api.event_items import StatusName, Time, events_out, inbox_out, status_out
from doorstep.api.problems import Problem, Refusal, invalid
from doorstep.api.schemas import instant_from
from doorstep.api.wording import TIME, FieldError, from_msgspec, one_of
from doorstep.app import Doorstep
from doorstep.clock import Instant
from doorstep.model.event import EventStatus
from doorstep.model.listing import EventFilter
from doorstep.path.shared import Shared

Q = TypeVar("Q", bound=msgspec.Struct)
Limit = Annotated[int, msgspec.Meta(ge=1, le=1_000)]
Cursor = Annotated[str, msgspec.Meta(max_length=500)]


class EventsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which events. (Unset rather than None: msgspec would take the text `null` for it, and list everything.)"""

    status: StatusName | UnsetType = UNSET
    event_type: Annotated[str, msgspec.Meta(max_length=200)] | None = None
    """Exact, or a pattern whose final `*` stands for any rest."""
    created_from: Time | None = None
    created_before: Time | None = None
    limit: Limit = 50
    cursor: Cursor | None = None
    """Where the last page ended, as its answer said."""


class InboxQuery(msgspec.Struct, forbid_unknown_fields=True):
    status: Literal["received", "failed"] = "received"
    limit: Limit = 50
    cursor: Cursor | None = None
    """Where the last page ended, as its answer said."""


class Polling:
    """The routes, bound to the engine that knows the answers."""

    def __init__(self, doorstep: Doorstep) -> None:
        self._doorstep = doorstep
        self._inboxes = Shared()

    async def status(self, request: Request) -> Response:
        """GET /v1/events/{event_id}/status"""
        event_id = _id(request.path_params["event_id"])
        return _answer(status_out(await self._doorstep.components.reader.summary(api_key(request).org_id, event_id)))

    async def events(self, request: Request) -> Response:
        """GET /v1/events"""
        asked = _asked(request, EventsQuery)
        wanted = EventFilter(
            status=None if asked.status is UNSET else EventStatus(asked.status),
            event_type=asked.event_type,
            created_from=_instant(asked.created_from, "created_from"),
            created_before=_instant(asked.created_before, "created_before"),
        )
        page = await self._doorstep.components.reader.events(api_key(request).org_id, wanted, asked.cursor, asked.limit)
        return _answer(events_out(page, asked.limit))

    async def inbox(self, request: Request) -> Response:
        """GET /v1/inbox"""
        asked = _asked(request, InboxQuery)
        org_id = api_key(request).org_id
        question = (org_id, asked.status, asked.cursor, asked.limit)
        # Consumers of one inbox all ask for its first page: read and encoded once for those who ask together.
        body = await self._inboxes.ask(question, lambda: self._inbox(org_id, asked))
        return Response(body, media_type="application/json")

    async def _inbox(self, org_id: UUID, asked: InboxQuery) -> bytes:
        status = EventStatus(asked.status)
        page, count = await self._doorstep.components.reader.inbox(org_id, status, asked.cursor, asked.limit)
        return _encoder.encode(inbox_out(page, asked.limit, count, payloads=status is EventStatus.RECEIVED))


_encoder = msgspec.json.Encoder()


def _answer(content: msgspec.Struct) -> Response:
    return Response(_encoder.encode(content), media_type="application/json")


def _id(text: str) -> UUID:
    """An id that is no id cannot name anything: that is the same 404 as an unknown one."""
    try:
        return msgspec.convert(text, UUID)
    except msgspec.ValidationError:
        raise Refusal(Problem.NOT_FOUND) from None


def _asked(request: Request, kind: type[Q]) -> Q:
    try:
        return msgspec.convert(dict(request.query_params), kind, strict=False)
    except msgspec.ValidationError as error:
        raise invalid(_named(from_msgspec(str(error)), kind)) from None


def _instant(text: str | None, field: str) -> Instant | None:
    """Strictly: where `strict=False` lets numbers come as text, it takes 0.5 for a time."""
    try:
        return None if text is None else instant_from(msgspec.convert(text, datetime), field)
    except msgspec.ValidationError:
        raise invalid(FieldError(field, TIME)) from None


def _named(error: FieldError, kind: type[msgspec.Struct]) -> FieldError:
    """A choice names its values."""
    if error.field == "status":
        return FieldError("status", one_of(STATUSES[kind]))
    return error


STATUSES: dict[type[msgspec.Struct], tuple[str, ...]] = {
    EventsQuery: tuple(EventStatus),
    InboxQuery: (EventStatus.RECEIVED, EventStatus.FAILED),
}
