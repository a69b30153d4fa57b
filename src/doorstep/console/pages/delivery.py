"""One delivery, also of an event that was deleted: its log, each attempt in full, and what can be done about it."""

from __future__ import annotations

from starlette.responses import Response

from doorstep.console.confirming import Confirmation, confirmed
from doorstep.console.dossier import dossier_of, tries_numbered
from doorstep.console.page import Pages
from doorstep.console.pages.event import as_file
from doorstep.console.tries import Try
from doorstep.console.visit import Visit
from doorstep.errors import NotFound
from doorstep.model.act import ActKind
from doorstep.model.delivery import OPEN_STATES, Delivery
from doorstep.model.event import Event
from doorstep.path.operate import DONE

PAGES = Pages("/deliveries/{delivery_id}")


_QUESTIONS = {
    ActKind.SKIP: Confirmation("Skip", "It becomes a dead letter, and is not tried again unless you retry it there."),
    ActKind.CANCEL: Confirmation("Cancel", "It is called off, and is never delivered."),
    ActKind.RESOLVE: Confirmation(
        "Mark as resolved", "It needs no delivery any more, and leaves the dead letters.", final=False
    ),
    ActKind.DELETE: Confirmation("Delete", "The dead letter leaves every list. Its attempt log stays."),
}


@PAGES.get()
async def show(visit: Visit) -> Response:
    delivery, event = await _found(visit)
    one = await dossier_of(visit, delivery, event)
    seconds = 2 if delivery.state in OPEN_STATES else 15
    return visit.page("event_delivery.html", one=one, event=event, seconds=seconds)


@PAGES.get("/attempts/{number}")
async def attempt(visit: Visit) -> Response:
    """In full."""
    delivery, event = await _found(visit)
    tries = await _tries(visit, delivery, event)
    return visit.page("event_attempt.html", delivery=delivery, event=event, tries=tries)


@PAGES.get("/attempts/{number}/body")
async def body(visit: Visit) -> Response:
    """As it went out, in its envelope; the command that sends it again reads it from a file of this name."""
    delivery, event = await _found(visit)
    for one in await _tries(visit, delivery, event):
        if one.body is not None and one.attempt.was_sent:
            return as_file(one.body, one.file_name)
    raise NotFound(f"the body of attempt {visit.text('number')} of delivery {delivery.delivery_id} is not kept")


@PAGES.get("/payload")
async def download(visit: Visit) -> Response:
    """What goes out for it: the event's payload, or its own."""
    delivery_id = visit.id("delivery_id")
    return as_file(await visit.doorstep.components.store.payload(visit.org_id, delivery_id), f"{delivery_id}.json")


@PAGES.post("/retry")
async def retry(visit: Visit) -> Response:
    await visit.doorstep.components.deliveries.act_on(ActKind.RETRY, visit.org_id, visit.id("delivery_id"), visit.actor)
    return visit.done("The delivery is tried again.")


async def _asking(visit: Visit) -> tuple[str, Confirmation]:
    delivery, _ = await _found(visit)
    question = _QUESTIONS[_kind(visit)]
    return f"{question.act}: the delivery of {delivery.event_type}?", question


@confirmed(PAGES, "/{act}", _asking)
async def answer(visit: Visit, reason: str) -> Response:
    kind = _kind(visit)
    await visit.doorstep.components.deliveries.act_on(kind, visit.org_id, visit.id("delivery_id"), visit.actor, reason)
    return visit.done(f"The delivery was {DONE[kind]}.")


async def _tries(visit: Visit, delivery: Delivery, event: Event | None) -> list[Try]:
    tries = await tries_numbered(visit, delivery, event, visit.text("number"))
    if not tries:
        raise NotFound(f"delivery {delivery.delivery_id} has no attempt {visit.text('number')}")
    return tries


def _kind(visit: Visit) -> ActKind:
    wanted = visit.text("act")
    if wanted not in _QUESTIONS:
        raise NotFound("no such page")
    return ActKind(wanted)


async def _found(visit: Visit) -> tuple[Delivery, Event | None]:
    delivery = await visit.doorstep.components.reader.delivery(visit.org_id, visit.id("delivery_id"))
    try:
        return delivery, (await visit.doorstep.components.reader.event(visit.org_id, delivery.event_id)).event
    except NotFound:
        return delivery, None
