"""Events: the list, the form that sends an event, and the page of one event."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple
from uuid import uuid5

from starlette.responses import Response

from doorstep.console.confirm import Confirmation, confirmed, endpoints_of, one_time_id
from doorstep.console.fields import events_of
from doorstep.console.formatting import plural, pretty
from doorstep.console.pages.delivery import actions_in, as_file, details_of_all, kept_event
from doorstep.console.request import FormError, PageRequest, Pages
from doorstep.errors import InvalidInput, NotFound
from doorstep.model.action import ActionKind
from doorstep.model.delivery import DONE_STATES, OPEN_STATES, Delivery
from doorstep.model.endpoint import Endpoint
from doorstep.model.event import Event, EventStatus, EventView
from doorstep.model.org import Permission
from doorstep.operations.inbox import held_until, holder_of
from doorstep.policy.routing import matches

LIST_PAGES = Pages("/events")
_LIMIT = 50


@LIST_PAGES.get()
async def show_list(request: PageRequest) -> Response:
    filter = events_of(request.query)
    page = await request.reader.events(request.org_id, filter, request.query.text("cursor"), _LIMIT)
    return request.page("events.html", rows=page.items, next=page.next, filter=filter, statuses=EventStatus)


async def _send_form(request: PageRequest, error: FormError | None) -> Response:
    endpoints, once = await endpoints_of(request), one_time_id(request)
    return request.form_page("events_send.html", error, request.query, endpoints=endpoints, once=once)


@LIST_PAGES.form("/send", _send_form, Permission.SEND)
async def send(request: PageRequest) -> Response:
    form = request.form
    endpoint_id = form.id("endpoint_id")
    receipt = await request.doorstep.send(
        form.text("event_type") or "",
        (form.raw("payload") or "").replace("\r\n", "\n").encode(),
        org_id=request.org_id,
        endpoint_ids=None if endpoint_id is None else [endpoint_id],
        ordering_key=form.text("ordering_key"),
        idempotency_key=_idempotency_key(request),
        correlation_id=request.correlation_id,
    )
    return request.done("The event was accepted.", f"{LIST_PAGES.path}/{receipt.event_id}")


def _idempotency_key(request: PageRequest) -> str:
    """The idempotency key for a submitted form. If a user submits the form twice with the same content, only one event
    is created; with different content, two."""
    content = request.form.without("csrf", "back")
    return str(uuid5(one_time_id(request), content.where()))


# -- one event ---------------------------------------------------------------------------------------------

PAGES = Pages("/events/{event_id}")
DETAILED_MAX = 10
"""The maximum number of deliveries that are shown in full. If there are more, those that are not yet done come
first."""
_OTHERS_MAX = 500
_NOT_SENT_MAX = 100
_AUDIT_MAX = 50
_TEXT_CHARACTERS_MAX = 64 * 1024
"""A longer payload is truncated on the page; the download is complete."""
_RETRY = Confirmation("Retry", "Waiting deliveries are due immediately, dead letters in a few seconds.", final=False)
_CANCEL = Confirmation("Cancel", "Waiting deliveries are cancelled and never sent.")


@PAGES.get()
async def show(request: PageRequest) -> Response:
    event_id, reader = request.id("event_id"), request.reader
    view = await kept_event(request, event_id)
    deliveries = await reader.deliveries(request.org_id, event_id)
    if view is None and not deliveries:
        raise NotFound(f"no event {event_id}")
    event = view.event if view else None
    shown, others = _divided(deliveries)
    about = [event_id, *(one.delivery_id for one in shown)]
    audit = await reader.audit(request.org_id, None, None, None, _AUDIT_MAX, about)
    holder = holder_of(view, request.now) if view else None
    return request.page(
        "event.html",
        event_id=event_id,
        event_type=event.event_type if event else deliveries[0].event_type,
        view=view,
        payload=Text.of(event.payload, raw=request.query.text("payload") == "raw") if event else None,
        details=await details_of_all(request, shown, event),
        others=await reader.described(request.org_id, others[:_OTHERS_MAX]),
        others_hidden=max(0, len(others) - _OTHERS_MAX),
        not_sent=await _not_sent(request, event, deliveries) if event and view and not view.in_outbox else [],
        audit=audit,
        people=await reader.key_names(request.org_id, (*(entry.actor for entry in audit.items), holder or "")),
        holder=holder,
        held_until=held_until(view, request.now) if view else None,
        actions=_actions(view, deliveries),
        seconds=2 if any(one.state in OPEN_STATES for one in deliveries) else 15,
    )


@PAGES.get("/payload")
async def download(request: PageRequest) -> Response:
    event = await _event(request)
    return as_file(event.payload, f"{event.event_id}.json")


@confirmed(PAGES, "/retry", lambda request: _counted_question(request, ActionKind.RETRY, _RETRY))
async def retry(request: PageRequest, reason: str) -> Response:
    count = await _act(request, ActionKind.RETRY, reason)
    return request.done(f"{plural(count, 'delivery', 'deliveries')} will be retried.")


PAGES.act("/acknowledge", lambda components: components.inbox.acknowledge, "The event was acknowledged.")


@confirmed(PAGES, "/cancel", lambda request: _counted_question(request, ActionKind.CANCEL, _CANCEL))
async def cancel(request: PageRequest, reason: str) -> Response:
    count = await _act(request, ActionKind.CANCEL, reason)
    return request.done(f"{plural(count, 'delivery was', 'deliveries were')} cancelled.")


async def _act(request: PageRequest, kind: ActionKind, reason: str) -> int:
    events, event_id = request.components.events, request.id("event_id")
    return len((await events.act(kind, request.org_id, event_id, request.actor, reason)).done)


async def _ask_delete(request: PageRequest) -> tuple[str, Confirmation]:
    event, possible = await _event(request), await _possible(request)
    effects = ["The payload is erased"]
    if waiting := possible[ActionKind.CANCEL]:
        effects.append(f"{plural(waiting, 'waiting delivery is', 'waiting deliveries are')} cancelled")
    if letters := possible[ActionKind.DELETE]:
        effects.append(f"{plural(letters, 'dead letter is', 'dead letters are')} deleted")
    question = Confirmation("Delete", f"{', '.join(effects)}. The attempt log is kept.")
    return f"Delete the event {event.event_type}?", question


@confirmed(PAGES, "/delete", _ask_delete)
async def delete(request: PageRequest, reason: str) -> Response:
    org_id, event_id = request.org_id, request.id("event_id")
    await request.components.events.delete(org_id, event_id, request.actor, reason)
    still_shown = await request.reader.deliveries(org_id, event_id)
    return request.done("The event was deleted.", None if still_shown else LIST_PAGES.path)


async def _replay_form(request: PageRequest, error: FormError | None) -> Response:
    event, endpoints = await _event(request), await endpoints_of(request)
    return request.form_page("event_replay.html", error, event=event, endpoints=endpoints)


@PAGES.form("/replay", _replay_form)
async def replay(request: PageRequest) -> Response:
    endpoint_id = request.form.id("endpoint_id")
    if endpoint_id is None:
        raise InvalidInput("endpoint_id", "must be given; choose the endpoint to send the event to")
    receipt = await request.components.events.replay(request.org_id, request.id("event_id"), endpoint_id, request.actor)
    return request.done("The event was sent again, as this new event.", f"{LIST_PAGES.path}/{receipt.event_id}")


async def _counted_question(request: PageRequest, kind: ActionKind, question: Confirmation) -> tuple[str, Confirmation]:
    """A question whose title contains the number of deliveries in a state that allows the action."""
    event = await _event(request)
    count = plural((await _possible(request))[kind], "delivery", "deliveries")
    return f"{question.action} {count} of {event.event_type}?", question


async def _possible(request: PageRequest) -> Counter[ActionKind]:
    return _counted(await request.reader.deliveries(request.org_id, request.id("event_id")))


async def _event(request: PageRequest) -> Event:
    return (await request.reader.event(request.org_id, request.id("event_id"))).event


class Text(NamedTuple):
    """A payload as the page shows it."""

    text: str
    size: int
    raw: bool
    cut: bool

    @classmethod
    def of(cls, content: bytes, *, raw: bool) -> Text:
        text = content.decode("utf-8", "replace") if raw else pretty(content)
        return cls(text[:_TEXT_CHARACTERS_MAX], len(content), raw, len(text) > _TEXT_CHARACTERS_MAX)


def _divided(deliveries: list[Delivery]) -> tuple[list[Delivery], list[Delivery]]:
    """The deliveries that are shown in full, and the rest."""
    if len(deliveries) > DETAILED_MAX:
        deliveries = sorted(deliveries, key=lambda one: one.state in DONE_STATES)
    return deliveries[:DETAILED_MAX], deliveries[DETAILED_MAX:]


def _actions(view: EventView | None, deliveries: list[Delivery]) -> frozenset[str]:
    """The actions that are possible on the event as a whole."""
    if view is None or view.in_outbox:
        return frozenset()
    possible = _counted(deliveries)
    actions = {"replay", "delete"} | {kind.value for kind in (ActionKind.RETRY, ActionKind.CANCEL) if possible[kind]}
    if not deliveries and view.status is EventStatus.RECEIVED:
        actions.add("acknowledge")
    return frozenset(actions)


def _counted(deliveries: list[Delivery]) -> Counter[ActionKind]:
    """For each action, the number of deliveries that allow it."""
    return Counter(kind for one in deliveries if not one.deleted for kind in actions_in(one.state))


class NotSent(NamedTuple):
    endpoint: Endpoint
    why: str


async def _not_sent(request: PageRequest, event: Event, deliveries: list[Delivery]) -> list[NotSent]:
    """The endpoints that did not get the event, each with the reason, sorted by name; at most _NOT_SENT_MAX."""
    got = {one.endpoint_id for one in deliveries}
    endpoints = await request.components.directory.endpoints_of(event.org_id)
    found = [NotSent(one, why_not_sent(one, event)) for one in endpoints if one.endpoint_id not in got]
    return sorted(found, key=lambda one: one.endpoint.name.casefold())[:_NOT_SENT_MAX]


def why_not_sent(endpoint: Endpoint, event: Event) -> str:
    if endpoint.created_at > event.created_at:
        return "It was created after the event."
    if not any(matches(pattern, event.event_type) for pattern in endpoint.event_types):
        return f"It is subscribed to other event types: {', '.join(endpoint.event_types)}."
    return "The sender chose other endpoints, or its event types have changed since."
