"""One delivery, also of an event that was deleted: its log, each attempt in full, and what can be done about it."""

from __future__ import annotations

from starlette.responses import Response

from doorstep.console.attempts import ShownAttempt
from doorstep.console.confirm import Confirmation, confirmed
from doorstep.console.delivery_details import delivery_details, tries_numbered
from doorstep.console.page import Pages
from doorstep.console.pages.event import as_file
from doorstep.console.request import PageRequest
from doorstep.errors import NotFound
from doorstep.model.action import ActionKind
from doorstep.model.delivery import OPEN_STATES, Delivery
from doorstep.model.event import Event
from doorstep.operations.deliveries import DONE

PAGES = Pages("/deliveries/{delivery_id}")


_QUESTIONS = {
    ActionKind.SKIP: Confirmation(
        "Skip", "It becomes a dead letter, and is not tried again unless you retry it there."
    ),
    ActionKind.CANCEL: Confirmation("Cancel", "It is called off, and is never delivered."),
    ActionKind.RESOLVE: Confirmation(
        "Mark as resolved", "It needs no delivery any more, and leaves the dead letters.", final=False
    ),
    ActionKind.DELETE: Confirmation("Delete", "The dead letter leaves every list. Its attempt log stays."),
}


@PAGES.get()
async def show(visit: PageRequest) -> Response:
    delivery, event = await _found(visit)
    one = await delivery_details(visit, delivery, event)
    seconds = 2 if delivery.state in OPEN_STATES else 15
    return visit.page("event_delivery.html", one=one, event=event, seconds=seconds)


@PAGES.get("/attempts/{number}")
async def attempt(visit: PageRequest) -> Response:
    """In full."""
    delivery, event = await _found(visit)
    tries = await _tries(visit, delivery, event)
    return visit.page("event_attempt.html", delivery=delivery, event=event, tries=tries)


@PAGES.get("/attempts/{number}/body")
async def body(visit: PageRequest) -> Response:
    """As it went out, in its envelope; the command that sends it again reads it from a file of this name."""
    delivery, event = await _found(visit)
    for one in await _tries(visit, delivery, event):
        if one.body is not None and one.attempt.was_sent:
            return as_file(one.body, one.file_name)
    raise NotFound(f"the body of attempt {visit.text('number')} of delivery {delivery.delivery_id} is not kept")


@PAGES.get("/payload")
async def download(visit: PageRequest) -> Response:
    """What goes out for it: the event's payload, or its own."""
    delivery_id = visit.id("delivery_id")
    return as_file(await visit.doorstep.components.store.payload(visit.org_id, delivery_id), f"{delivery_id}.json")


@PAGES.post("/retry")
async def retry(visit: PageRequest) -> Response:
    await visit.doorstep.components.deliveries.act_on(
        ActionKind.RETRY, visit.org_id, visit.id("delivery_id"), visit.actor
    )
    return visit.done("The delivery is tried again.")


async def _asking(visit: PageRequest) -> tuple[str, Confirmation]:
    delivery, _ = await _found(visit)
    question = _QUESTIONS[_kind(visit)]
    return f"{question.act}: the delivery of {delivery.event_type}?", question


@confirmed(PAGES, "/{act}", _asking)
async def answer(visit: PageRequest, reason: str) -> Response:
    kind = _kind(visit)
    await visit.doorstep.components.deliveries.act_on(kind, visit.org_id, visit.id("delivery_id"), visit.actor, reason)
    return visit.done(f"The delivery was {DONE[kind]}.")


async def _tries(visit: PageRequest, delivery: Delivery, event: Event | None) -> list[ShownAttempt]:
    tries = await tries_numbered(visit, delivery, event, visit.text("number"))
    if not tries:
        raise NotFound(f"delivery {delivery.delivery_id} has no attempt {visit.text('number')}")
    return tries


def _kind(visit: PageRequest) -> ActionKind:
    wanted = visit.text("act")
    if wanted not in _QUESTIONS:
        raise NotFound("no such page")
    return ActionKind(wanted)


async def _found(visit: PageRequest) -> tuple[Delivery, Event | None]:
    delivery = await visit.doorstep.components.reader.delivery(visit.org_id, visit.id("delivery_id"))
    try:
        return delivery, (await visit.doorstep.components.reader.event(visit.org_id, delivery.event_id)).event
    except NotFound:
        return delivery, None
