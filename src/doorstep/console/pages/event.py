"""One event: what was sent, what became of it at every endpoint, and what can be done about it."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple
from uuid import UUID

from starlette.responses import Response

from doorstep.console.confirm import Confirmation, confirmed
from doorstep.console.delivery_details import acts_in, deliveries_details
from doorstep.console.formatting import plural, pretty
from doorstep.console.page import ACT, Pages
from doorstep.console.request import PageRequest
from doorstep.console.selection import endpoints_of
from doorstep.errors import InvalidInput, NotFound
from doorstep.model.action import ActionKind, AuditEntry
from doorstep.model.delivery import DONE_STATES, OPEN_STATES, Delivery
from doorstep.model.endpoint import Endpoint
from doorstep.model.event import Event, EventStatus, EventView
from doorstep.model.listing import Page
from doorstep.policy.routing import matches

PAGES = Pages("/events/{event_id}")
DOSSIERS_MAX = 10
"""Deliveries that are shown in full; of more, those that were not delivered come first."""
_OTHERS_MAX = 500
_PASSED_OVER_MAX = 100
_TRAIL_MAX = 50
_TEXT_CHARACTERS_MAX = 64 * 1024
"""A longer payload is cut here; it can be downloaded as a whole."""
_RETRY = Confirmation("Retry", "What waits is due at once, dead letters in a few seconds.", final=False)
_CANCEL = Confirmation("Cancel", "What still waits is called off, and is never delivered.")
_DOWNLOAD = {"Content-Security-Policy": "sandbox; default-src 'none'"}


@PAGES.get()
async def show(visit: PageRequest) -> Response:
    event_id = visit.id("event_id")
    view = await _view(visit, event_id)
    deliveries = await visit.doorstep.components.reader.deliveries(visit.org_id, event_id)
    if view is None and not deliveries:
        raise NotFound(f"no event {event_id}")
    event = view.event if view else None
    shown, others = _divided(deliveries)
    trail = await _trail(visit, event_id, shown)
    return visit.page(
        "event.html",
        event_id=event_id,
        event_type=event.event_type if event else deliveries[0].event_type,
        view=view,
        payload=Text.of(event.payload, raw=visit.query.text("payload") == "raw") if event else None,
        dossiers=await deliveries_details(visit, shown, event),
        others=await visit.doorstep.components.reader.described(visit.org_id, others[:_OTHERS_MAX]),
        others_hidden=max(0, len(others) - _OTHERS_MAX),
        passed_over=_passed_over(visit, event, deliveries) if event and view and not view.in_outbox else [],
        trail=trail,
        people=await visit.doorstep.components.reader.key_names(visit.org_id, (line.actor for line in trail.items)),
        acts=_acts(view, deliveries),
        seconds=2 if any(one.state in OPEN_STATES for one in deliveries) else 15,
    )


@PAGES.get("/payload")
async def download(visit: PageRequest) -> Response:
    event = await _event(visit)
    return as_file(event.payload, f"{event.event_id}.json")


async def _asking_to_retry(visit: PageRequest) -> tuple[str, Confirmation]:
    return await _about(visit, ActionKind.RETRY, _RETRY)


@confirmed(PAGES, "/retry", _asking_to_retry)
async def retry(visit: PageRequest, reason: str) -> Response:
    steward, event_id = visit.doorstep.components.events, visit.id("event_id")
    result = await steward.act(ActionKind.RETRY, visit.org_id, event_id, visit.actor, reason)
    return visit.done(f"{plural(len(result.done), 'delivery is', 'deliveries are')} tried again.")


@PAGES.post("/acknowledge")
async def acknowledge(visit: PageRequest) -> Response:
    await visit.doorstep.components.events.acknowledge(visit.org_id, visit.id("event_id"), visit.actor)
    return visit.done("The event was acknowledged.")


async def _asking_to_cancel(visit: PageRequest) -> tuple[str, Confirmation]:
    return await _about(visit, ActionKind.CANCEL, _CANCEL)


@confirmed(PAGES, "/cancel", _asking_to_cancel)
async def cancel(visit: PageRequest, reason: str) -> Response:
    steward, event_id = visit.doorstep.components.events, visit.id("event_id")
    result = await steward.act(ActionKind.CANCEL, visit.org_id, event_id, visit.actor, reason)
    return visit.done(f"{plural(len(result.done), 'delivery was', 'deliveries were')} cancelled.")


async def _asking_to_delete(visit: PageRequest) -> tuple[str, Confirmation]:
    event, possible = await _event(visit), await _possible(visit)
    erased = ["Its payload is erased"]
    if waiting := possible[ActionKind.CANCEL]:
        erased.append(f"{plural(waiting, 'waiting delivery is', 'waiting deliveries are')} cancelled")
    if letters := possible[ActionKind.DELETE]:
        erased.append(f"{plural(letters, 'dead letter is', 'dead letters are')} deleted")
    question = Confirmation("Delete", f"{', '.join(erased)}. The attempt log stays.")
    return f"Delete the event {event.event_type}?", question


@confirmed(PAGES, "/delete", _asking_to_delete)
async def delete(visit: PageRequest, reason: str) -> Response:
    org_id, event_id = visit.org_id, visit.id("event_id")
    await visit.doorstep.components.events.delete(org_id, event_id, visit.actor, reason)
    still_shown = await visit.doorstep.components.reader.deliveries(org_id, event_id)
    return visit.done("The event was deleted.", None if still_shown else "/console/events")


@PAGES.get("/replay", ACT)
async def ask_replay(visit: PageRequest) -> Response:
    return await _replaying(visit)


@PAGES.post("/replay")
async def replay(visit: PageRequest) -> Response:
    try:
        endpoint_id = visit.form.id("endpoint_id")
        if endpoint_id is None:
            raise InvalidInput("endpoint_id", "choose the endpoint that it goes to")
        receipt = await visit.doorstep.components.events.replay(
            visit.org_id, visit.id("event_id"), endpoint_id, visit.actor
        )
    except InvalidInput as error:
        return await _replaying(visit, error)
    return visit.done("It was sent again, as this new event.", f"/console/events/{receipt.event_id}")


async def _replaying(visit: PageRequest, error: InvalidInput | None = None) -> Response:
    event, endpoints = await _event(visit), await endpoints_of(visit)
    return visit.filled("event_replay.html", visit.form, error, event=event, endpoints=endpoints)


async def _about(visit: PageRequest, kind: ActionKind, question: Confirmation) -> tuple[str, Confirmation]:
    """With how many deliveries it is about: those whose state allows it."""
    event = await _event(visit)
    concerned = plural((await _possible(visit))[kind], "delivery", "deliveries")
    return f"{question.act} {concerned} of {event.event_type}?", question


async def _possible(visit: PageRequest) -> Counter[ActionKind]:
    return _counted(await visit.doorstep.components.reader.deliveries(visit.org_id, visit.id("event_id")))


async def _event(visit: PageRequest) -> Event:
    return (await visit.doorstep.components.reader.event(visit.org_id, visit.id("event_id"))).event


# -- what the page is made of ------------------------------------------------------------------------------


class Text(NamedTuple):
    """A payload to be read."""

    text: str
    size: int
    raw: bool
    cut: bool

    @classmethod
    def of(cls, content: bytes, *, raw: bool) -> Text:
        text = content.decode("utf-8", "replace") if raw else pretty(content)
        return cls(text[:_TEXT_CHARACTERS_MAX], len(content), raw, len(text) > _TEXT_CHARACTERS_MAX)


def as_file(content: bytes, name: str) -> Response:
    """To be kept, never to be shown as a page."""
    headers = _DOWNLOAD | {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(content, headers=headers, media_type="application/json")


async def _view(visit: PageRequest, event_id: UUID) -> EventView | None:
    """None for an event that was deleted, or never was."""
    try:
        return await visit.doorstep.components.reader.event(visit.org_id, event_id)
    except NotFound:
        return None


def _divided(deliveries: list[Delivery]) -> tuple[list[Delivery], list[Delivery]]:
    """What is shown in full, and the rest."""
    if len(deliveries) > DOSSIERS_MAX:
        deliveries = sorted(deliveries, key=lambda one: one.state in DONE_STATES)
    return deliveries[:DOSSIERS_MAX], deliveries[DOSSIERS_MAX:]


def _acts(view: EventView | None, deliveries: list[Delivery]) -> frozenset[str]:
    """What can be done to the event as a whole."""
    if view is None or view.in_outbox:
        return frozenset()
    possible = _counted(deliveries)
    acts = {"replay", "delete"} | {kind.value for kind in (ActionKind.RETRY, ActionKind.CANCEL) if possible[kind]}
    if not deliveries and view.status is EventStatus.RECEIVED:
        acts.add("acknowledge")
    return frozenset(acts)


def _counted(deliveries: list[Delivery]) -> Counter[ActionKind]:
    """How many of them each act is possible for."""
    return Counter(kind for one in deliveries if not one.deleted for kind in acts_in(one.state))


class PassedOver(NamedTuple):
    endpoint: Endpoint
    why: str


def _passed_over(visit: PageRequest, event: Event, deliveries: list[Delivery]) -> list[PassedOver]:
    """The endpoints that did not get the event, as they are now; of very many only the first."""
    got = {one.endpoint_id for one in deliveries}
    left = [one for one in visit.doorstep.components.directory.endpoints if one.org_id == event.org_id]
    found = [PassedOver(one, why_not(one, event)) for one in left if one.endpoint_id not in got]
    return sorted(found, key=lambda one: one.endpoint.name.casefold())[:_PASSED_OVER_MAX]


def why_not(endpoint: Endpoint, event: Event) -> str:
    if endpoint.created_at > event.created_at:
        return "It was created after the event."
    if not any(matches(pattern, event.event_type) for pattern in endpoint.event_types):
        return f"It takes other event types now: {', '.join(endpoint.event_types)}."
    return "The sender chose other endpoints, or its event types were changed since."


async def _trail(visit: PageRequest, event_id: UUID, deliveries: list[Delivery]) -> Page[AuditEntry]:
    about = [event_id, *(one.delivery_id for one in deliveries)]
    return await visit.doorstep.components.reader.audit(visit.org_id, None, None, None, _TRAIL_MAX, about)
