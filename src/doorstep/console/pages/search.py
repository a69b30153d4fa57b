"""The search box: an id leads to its page; any other text is searched for in the keys and fields of events."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from starlette.responses import RedirectResponse, Response

from doorstep.clock import to_datetime
from doorstep.console.formatting import amount
from doorstep.console.request import ADMINISTER, HOME, FormError, PageRequest, Pages
from doorstep.errors import InvalidInput
from doorstep.model.endpoint import Endpoint
from doorstep.model.event import EventSummary
from doorstep.model.listing import EventFilter
from doorstep.operations.search import SHORT_ID, Found, Item
from doorstep.policy.search import FIELDS_MAX

PAGES = Pages("/search")
_ROWS_MAX = 20
_TEXT_MAX = 255
_SCAN_SECONDS = 0.1
_FIELD = re.compile(r"([^\s=]+)\s*=\s*(.+)", re.DOTALL)
_SOURCES = ("payload.", "metadata.")


class Hit(NamedTuple):
    """An event, and what the text is of it."""

    by: str
    event: EventSummary


@PAGES.get()
async def show(request: PageRequest) -> Response:
    text = (request.query.text("q") or "")[:_TEXT_MAX]
    items = await _items(request, text)
    if len(items) == 1:
        return RedirectResponse(_place(items[0]), 303)
    if items:
        words = "Several things have this short id; newest first."
        return request.page("search.html", text=text, items=[(one, _place(one)) for one in items], words=words)
    if field := _FIELD.fullmatch(text):
        return await _show_field(request, text, field[1], field[2].strip())
    if not text:
        return request.page("search.html", text="")
    hits, endpoints = await _hits(request, text), await _endpoints(request, text)
    return request.page("search.html", text=text, hits=hits, endpoints=endpoints, words=_TRIED)


_TRIED = (
    "Searched as an id, a correlation id, an idempotency key (of the last 24 hours), an ordering key, an event type and "
    "part of an endpoint’s name. For a value in payloads or metadata, write its field: order.id=42, metadata.customer=7."
)


async def _items(request: PageRequest, text: str) -> list[Item]:
    """What has this id; nothing if the text is not an id."""
    try:
        item_id = UUID(text) if not SHORT_ID.fullmatch(text.lower()) else None
    except ValueError:
        return []
    found = await request.components.search.by_id(request.org_id, text)
    if not found and item_id and await request.reader.deliveries(request.org_id, item_id):
        return [Item("event", item_id, "deleted")]
    return found


def _place(item: Item) -> str:
    if item.kind == "delivery":
        return f"{HOME}/events/{item.event_id}#delivery-{item.item_id}"
    return f"{HOME}/{'bulk' if item.kind == 'bulk' else item.kind + 's'}/{item.item_id}"


async def _hits(request: PageRequest, text: str) -> list[Hit]:
    """The events with this key or type."""
    filters = {
        "Correlation id": EventFilter(correlation_id=text),
        "Idempotency key": EventFilter(idempotency_key=text),
        "Ordering key": EventFilter(ordering_key=text),
        "Event type": EventFilter(event_type=text),
    }
    hits: dict[UUID, Hit] = {}
    for by, filter in filters.items():
        found = await request.components.search.events(
            request.org_id, filter, {}, None, _ROWS_MAX, searching_seconds=_SCAN_SECONDS
        )
        for event in found.page.items:
            hits.setdefault(event.event_id, Hit(by, event))
    return list(hits.values())


async def _endpoints(request: PageRequest, text: str) -> list[Endpoint]:
    """The endpoints whose names contain the text, sorted by name."""
    own = await request.components.directory.endpoints_of(request.org_id)
    found = [one for one in own if text.casefold() in one.name.casefold()]
    return sorted(found, key=lambda one: one.name.casefold())[:_ROWS_MAX]


async def _show_field(request: PageRequest, text: str, name: str, value: str) -> Response:
    whole = name if name.startswith(_SOURCES) else f"payload.{name}"
    search, cursor = request.components.search, request.query.text("cursor")
    try:
        fields = {whole: value}
        found = await search.events(request.org_id, EventFilter(), fields, cursor, _ROWS_MAX, _SCAN_SECONDS)
    except InvalidInput as error:
        return request.page("search.html", 422, text=text, words=str(error))
    hits = [Hit(whole, one) for one in found.page.items]
    words = _searched(whole, value, found)
    return request.page("search.html", text=text, hits=hits, next=found.page.next, words=words)


def _searched(name: str, value: str, found: Found) -> str:
    """A sentence that says what was searched, and how far."""
    sentence = f"Events with the value {value} in {name}, newest first."
    if found.examined is None:
        return f"{sentence} The field has an index."
    if found.searched_until is None:
        return f"{sentence} Read {amount(found.examined)} events, back to the oldest."
    since = f"{to_datetime(found.searched_until):%Y-%m-%d %H:%M:%S} UTC"
    return f"{sentence} Read the {amount(found.examined)} events since {since}; older ones have not been searched yet."


# -- searchable fields -------------------------------------------------------------------------------------

FIELD_PAGES = Pages("/settings/search")


@FIELD_PAGES.get()
async def show_fields(request: PageRequest) -> Response:
    return await _fields_page(request, None)


@FIELD_PAGES.post(permission=ADMINISTER)
async def change_fields(request: PageRequest) -> Response:
    try:
        names = (request.form.raw("search_fields") or "").split()
        await request.components.search.declare(request.org_id, names, request.actor)
    except InvalidInput as error:
        return await _fields_page(request, error)
    return request.done("The searchable fields were saved.", FIELD_PAGES.path)


async def _fields_page(request: PageRequest, error: FormError | None) -> Response:
    declared: Sequence[str] = tuple((await request.components.search.org(request.org_id)).search_fields)
    return request.form_page("settings_search.html", error, declared="\n".join(declared), most=FIELDS_MAX)
