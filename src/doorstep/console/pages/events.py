"""The events, the newest first; finding one by its id; sending one by hand."""

from __future__ import annotations

from uuid import UUID, uuid5

from starlette.responses import RedirectResponse, Response

from doorstep.console.confirm import one_time_id
from doorstep.console.fields import events_of
from doorstep.console.page import Pages
from doorstep.console.request import PageRequest
from doorstep.console.selection import endpoints_of
from doorstep.errors import InvalidInput, NotFound
from doorstep.model.event import EventStatus, Receipt
from doorstep.model.org import Permission

PAGES = Pages("/events")
_LIMIT = 50
_LIST, _FORM = "/console/events", "events_send.html"


@PAGES.get()
async def show(visit: PageRequest) -> Response:
    wanted = events_of(visit.query)
    page = await visit.doorstep.components.reader.events(visit.org_id, wanted, visit.query.text("cursor"), _LIMIT)
    return visit.page("events.html", rows=page.items, next=page.next, wanted=wanted, statuses=EventStatus)


@PAGES.get("/find")
async def find(visit: PageRequest) -> Response:
    """To the event or the delivery that has this id."""
    try:
        wanted = visit.query.id("id")
    except InvalidInput as error:
        return visit.refused(str(error), _LIST)
    place = None if wanted is None else await _place(visit, wanted)
    if place is None:
        return visit.refused("There is no event and no delivery with this id.", _LIST)
    return RedirectResponse(place, 303)


async def _place(visit: PageRequest, wanted: UUID) -> str | None:
    if await visit.doorstep.components.store.summaries(visit.org_id, [wanted]):
        return f"{_LIST}/{wanted}"
    try:
        found = await visit.doorstep.components.reader.delivery(visit.org_id, wanted)
    except NotFound:
        known = await visit.doorstep.components.reader.deliveries(visit.org_id, wanted)  # of an event that was deleted
        return f"{_LIST}/{wanted}" if known else None
    return f"{_LIST}/{found.event_id}#delivery-{wanted}"


@PAGES.get("/send", Permission.SEND)
async def ask_send(visit: PageRequest) -> Response:
    known = await endpoints_of(visit)
    return visit.page(_FORM, error=None, entered=visit.query, endpoints=known, once=one_time_id(visit))


@PAGES.post("/send", Permission.SEND)
async def send(visit: PageRequest) -> Response:
    try:
        receipt = await _sent(visit)
    except InvalidInput as error:
        return visit.again(_FORM, error, endpoints=await endpoints_of(visit), once=one_time_id(visit))
    return visit.done("The event was accepted.", f"{_LIST}/{receipt.event_id}")


async def _sent(visit: PageRequest) -> Receipt:
    form = visit.form
    endpoint_id = form.id("endpoint_id")
    return await visit.doorstep.send(
        form.text("event_type") or "",
        (form.raw("payload") or "").replace("\r\n", "\n").encode(),
        org_id=visit.org_id,
        endpoint_ids=None if endpoint_id is None else [endpoint_id],
        ordering_key=form.text("ordering_key"),
        idempotency_key=_key(visit),
        correlation_id=visit.correlation_id,
    )


def _key(visit: PageRequest) -> str:
    """Of what was sent with this form: the same again is the same event, and something else another."""
    said = visit.form.without("csrf", "back")
    return str(uuid5(one_time_id(visit), said.where()))
