"""One delivery, even if its event was deleted: its attempts, waits and history, and the actions on it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from starlette.responses import Response

from doorstep.clock import Instant
from doorstep.console import outcomes
from doorstep.console.attempts import Sending, ShownAttempt, sending_of
from doorstep.console.confirm import Confirmation, confirmed
from doorstep.console.request import PageRequest, Pages
from doorstep.console.timeline import Edge, Key, Timeline, keys_of, timeline
from doorstep.errors import NotFound
from doorstep.model.action import ACTS_ON, ActionKind, AuditEntry
from doorstep.model.attempt import Attempt
from doorstep.model.delivery import OPEN_STATES, Delivery, DeliveryState, HistoryEntry, Hold
from doorstep.model.endpoint import Endpoint
from doorstep.model.event import Event, EventView
from doorstep.operations.reader import Described
from doorstep.operations.waits import Change, changes_of, endpoint_actions, life_of, read_waits
from doorstep.policy.waits import Wait

PAGES = Pages("/deliveries/{delivery_id}")
ATTEMPTS_SHOWN = 30
_HISTORY_SHOWN = 100
_DOWNLOAD = {"Content-Security-Policy": "sandbox; default-src 'none'"}
_QUESTIONS = {
    ActionKind.SKIP: Confirmation("Skip", "It becomes a dead letter, and is not retried unless you retry it there."),
    ActionKind.CANCEL: Confirmation("Cancel", "It is cancelled and never sent."),
    ActionKind.RESOLVE: Confirmation(
        "Mark as resolved", "It no longer needs delivery, and leaves the dead letters.", final=False
    ),
    ActionKind.DELETE: Confirmation("Delete", "The dead letter leaves every list. Its attempt log is kept."),
}


@PAGES.get()
async def show(request: PageRequest) -> Response:
    delivery, event = await _delivery_and_event(request)
    (one,) = await details_of_all(request, [delivery], event)
    seconds = 2 if delivery.state in OPEN_STATES else 15
    return request.page("event_delivery.html", one=one, event=event, seconds=seconds)


@PAGES.get("/attempts/{number}")
async def attempt(request: PageRequest) -> Response:
    """One attempt in full."""
    delivery, event = await _delivery_and_event(request)
    attempts = await _attempts_numbered(request, delivery, event)
    return request.page("event_attempt.html", delivery=delivery, event=event, attempts=attempts)


@PAGES.get("/attempts/{number}/body")
async def body(request: PageRequest) -> Response:
    """Downloads the body as it was sent, in its envelope. The curl command reads the body from a file with the same
    name as this download."""
    delivery, event = await _delivery_and_event(request)
    for one in await _attempts_numbered(request, delivery, event):
        if one.body is not None and one.attempt.was_sent:
            return as_file(one.body, one.file_name)
    raise NotFound(f"the body of attempt {request.text('number')} of delivery {delivery.delivery_id} is not kept")


@PAGES.get("/payload")
async def download(request: PageRequest) -> Response:
    delivery_id = request.id("delivery_id")
    return as_file(await request.reader.payload(request.org_id, delivery_id), f"{delivery_id}.json")


def as_file(content: bytes, name: str) -> Response:
    """A download. Its headers prevent browsers from showing it as a page."""
    headers = _DOWNLOAD | {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(content, headers=headers, media_type="application/json")


@PAGES.post("/retry")
async def retry(request: PageRequest) -> Response:
    return await outcomes.retry(request, request.id("delivery_id"))


async def _ask(request: PageRequest) -> tuple[str, Confirmation]:
    delivery, _ = await _delivery_and_event(request)
    question = _QUESTIONS[_kind(request)]
    return f"{question.action}: the delivery of {delivery.event_type}?", question


@confirmed(PAGES, "/{act}", _ask)
async def answer(request: PageRequest, reason: str) -> Response:
    kind, delivery_id = _kind(request), request.id("delivery_id")
    await request.components.deliveries.act_on(kind, request.org_id, delivery_id, request.actor, reason)
    return request.done(outcomes.done(request, kind))


def _kind(request: PageRequest) -> ActionKind:
    name = request.text("act")
    if name not in _QUESTIONS:
        raise NotFound("no such page")
    return ActionKind(name)


async def _delivery_and_event(request: PageRequest) -> tuple[Delivery, Event | None]:
    """The delivery and its event. The event is None if it was deleted."""
    delivery = await request.reader.delivery(request.org_id, request.id("delivery_id"))
    view = await kept_event(request, delivery.event_id)
    return delivery, view.event if view else None


async def kept_event(request: PageRequest, event_id: UUID) -> EventView | None:
    """The event; None if it was deleted or never existed."""
    try:
        return await request.reader.event(request.org_id, event_id)
    except NotFound:
        return None


# -- the details of a delivery -----------------------------------------------------------------------------


class DeliveryDetails(NamedTuple):
    delivery: Delivery
    endpoint: Endpoint
    held: Hold | None
    attempts: list[ShownAttempt]
    """The latest attempts, at most ATTEMPTS_SHOWN of them, newest first."""
    older_attempts: int
    """The number of older attempts, which are not shown."""
    history: list[Change]
    timeline: Timeline
    actions: frozenset[ActionKind]
    """The actions that the state of the delivery allows."""

    @property
    def phase_keys(self) -> list[Key]:
        return keys_of(bar for one in self.attempts for bar in one.parts)


async def details_of_all(
    request: PageRequest, deliveries: Sequence[Delivery], event: Event | None
) -> list[DeliveryDetails]:
    """The details of these deliveries. `event` is None if the event was deleted; its deliveries can still be shown."""
    described = await request.reader.described(request.org_id, deliveries)
    return await asyncio.gather(*(_details(request, one, event) for one in described))


async def _details(request: PageRequest, one: Described, event: Event | None) -> DeliveryDetails:
    delivery, endpoint = one.delivery, one.endpoint
    log = await _log_of(request, delivery, endpoint, event)
    shown = log.attempts[-ATTEMPTS_SHOWN:]
    life = life_of(
        delivery,
        endpoint,
        event,
        log.history,
        log.attempts,
        log.endpoint_actions,
        request.components.tuning.revive_after_seconds,
    )
    waits = await read_waits(request.reader, life, request.now)
    return DeliveryDetails(
        delivery=delivery,
        endpoint=endpoint,
        held=one.held,
        attempts=log.sending.shown(shown)[::-1],
        older_attempts=len(log.attempts) - len(shown),
        history=list(changes_of(log.history, waits))[-_HISTORY_SHOWN:],
        timeline=_timeline(delivery, waits, Edge.of(delivery.created_at, log.attempts, shown), shown, request.now),
        actions=frozenset() if delivery.deleted else actions_in(delivery.state),
    )


async def _attempts_numbered(request: PageRequest, delivery: Delivery, event: Event | None) -> list[ShownAttempt]:
    """The attempts with the number that is given in the path. There may be two of them, because a late attempt has the
    same number as its successor."""
    endpoint = await request.reader.endpoint(request.org_id, delivery.endpoint_id)
    log = await _log_of(request, delivery, endpoint, event)
    found = log.sending.shown([one for one in log.attempts if str(one.number) == request.text("number")])
    if not found:
        raise NotFound(f"delivery {delivery.delivery_id} has no attempt {request.text('number')}")
    return found


def actions_in(state: DeliveryState) -> frozenset[ActionKind]:
    return frozenset(kind for kind, states in ACTS_ON.items() if state in states)


class _Log(NamedTuple):
    attempts: list[Attempt]
    history: list[HistoryEntry]
    endpoint_actions: Sequence[AuditEntry]
    """The newest actions on the delivery's endpoint, newest first."""
    sending: Sending


async def _log_of(request: PageRequest, delivery: Delivery, endpoint: Endpoint, event: Event | None) -> _Log:
    reader, org_id = request.reader, request.org_id
    attempts = await reader.attempts(org_id, delivery.delivery_id)
    history = await reader.history(org_id, delivery.delivery_id)
    actions = await endpoint_actions(reader, delivery, endpoint)
    return _Log(attempts, history, actions, await sending_of(request, delivery, endpoint, event, history, actions))


def _timeline(
    delivery: Delivery, waits: Sequence[Wait], edge: Edge, shown: Sequence[Attempt], now: Instant
) -> Timeline:
    running = delivery.claimed_at if delivery.state is DeliveryState.IN_PROGRESS else None
    return timeline(edge, waits, shown, running, now)
