"""Inspection of a sandbox: events, deliveries, attempts, and assertions that show the actual state when they fail."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, Protocol, TypeVar
from uuid import UUID

import msgspec

from doorstep.clock import SECOND, Clock
from doorstep.errors import NotFound
from doorstep.model.attempt import Attempt
from doorstep.model.delivery import Delivery, DeliveryState
from doorstep.model.endpoint import Endpoint
from doorstep.model.event import Event, EventStatus, EventView
from doorstep.model.listing import DeliveryAttempts, EventDeliveries, RejectedMessages
from doorstep.model.outbox import OutboxMessage, event_of
from doorstep.policy.routing import matches
from doorstep.stores.store import Store
from doorstep.telemetry.facts import Fact, StatusTransition

T = TypeVar("T")

_ANYTHING: Any = object()
_SHOWN_MAX = 20
_OUTBOX_MAX = 100_000
_PAYLOAD_SHOWN_MAX = 200


class Sent(Protocol):
    """The result of `send`, or an event of `sent`."""

    @property
    def event_id(self) -> UUID: ...


class Inspection:
    """Inspects a sandbox. Accepted events are remembered even after the store has cleaned them up."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._events: dict[UUID, Event] = {}
        self._statuses: dict[UUID, EventStatus] = {}

    def record(self, facts: Sequence[Fact]) -> None:
        """Record events and their statuses from the engine's facts."""
        for fact in facts:
            if isinstance(fact, StatusTransition):
                self._statuses[fact.event_id] = EventStatus(fact.new_status)
                if fact.old_status is None:
                    self._events[fact.event_id] = _at_once(self._store.get(EventView, fact.org_id, fact.event_id)).event

    # -- objects -------------------------------------------------------------------------------------------

    def sent(self, event_type: str = "*") -> list[Event]:
        """The events of this type (`order.*` matches any suffix), in the order in which they were sent."""
        posted = (event_of(message) for message in self._outbox())
        events = (*self._events.values(), *posted)
        return [event for event in events if matches(event_type, event.event_type)]

    def _outbox(self) -> list[OutboxMessage]:
        """Events that were sent on the program's own connection and were rejected or have not been drained yet."""
        rejected = _at_once(self._store.find(None, RejectedMessages(limit=_OUTBOX_MAX)))
        messages = [*_at_once(self._store.outbox(_OUTBOX_MAX)), *rejected]
        return [message for message in messages if message.event_id not in self._events]

    def deliveries(self, sent: Sent) -> list[Delivery]:
        """The deliveries of an event, one for each endpoint that subscribes to it."""
        event = self._known(sent)
        return _at_once(self._store.find(event.org_id, EventDeliveries(event_id=event.event_id)))

    def attempts(self, sent: Sent) -> list[Attempt]:
        """The attempt log of all deliveries of an event, in the order of the attempts."""
        rows = [
            _at_once(self._store.find(one.org_id, DeliveryAttempts(delivery_id=one.delivery_id)))
            for one in self.deliveries(sent)
        ]
        return sorted((row for log in rows for row in log), key=lambda row: (row.started_at, row.number))

    # -- assertions ----------------------------------------------------------------------------------------

    def assert_sent(self, event_type: str, payload: Any = _ANYTHING, count: int | None = None) -> list[Event]:
        """Assert that at least one event of this type (and with this payload, if given) was sent.

        With `count`, assert that exactly that many were sent. Payloads are compared as JSON, or byte for byte if given
        as bytes. `unittest.mock.ANY` matches any value. Returns the events.
        """
        found = [event for event in self.sent(event_type) if _has(event, payload)]
        if len(found) != count if count is not None else not found:
            raise AssertionError(self._missing(event_type, payload, count, len(found)))
        return found

    def assert_nothing_sent(self, event_type: str = "*") -> None:
        """Assert that no event was sent, or none of this type."""
        if found := self.sent(event_type):
            raise AssertionError(f"nothing of type {event_type} should have been sent, but was:\n{_listed(found)}")

    def assert_delivered(self, sent: Sent) -> None:
        """Assert that the event was delivered to every endpoint that subscribes to it.

        This also works after the store has cleaned up the event.
        """
        event = self._known(sent)
        if self._status(event) is not EventStatus.DELIVERED:
            raise AssertionError(f"{_named(event)} is not delivered:\n{self._states(sent)}")

    def assert_dead(self, sent: Sent, code: str | None = None) -> None:
        """Assert that at least one delivery of the event is a dead letter, with this code if given."""
        dead = [one for one in self.deliveries(sent) if one.state in (DeliveryState.DEAD, DeliveryState.ARCHIVED)]
        if not any(code in (None, one.code) for one in dead):
            missing = "no dead letter" if code is None else f"no dead letter with code {code}"
            raise AssertionError(f"{_named(self._known(sent))} has {missing}:\n{self._states(sent)}")

    # -- messages ------------------------------------------------------------------------------------------

    def _known(self, sent: Sent) -> Event:
        for event in self.sent():
            if event.event_id == sent.event_id:
                return event
        raise AssertionError(f"event {sent.event_id} was not sent in this sandbox; sent were:\n{_listed(self.sent())}")

    def _missing(self, event_type: str, payload: Any, count: int | None, found: int) -> str:
        expected = "at least one event" if count is None else f"{count} events"
        given = "" if payload is _ANYTHING else f" with payload {_shown(_encoded(payload))}"
        return f"{expected} of type {event_type}{given} should have been sent, but {found} were; sent were:\n{_listed(self.sent())}"

    def _states(self, sent: Sent) -> str:
        lines = [self._line(delivery) for delivery in self.deliveries(sent)]
        return "\n".join(lines) or f"  {self._why_undelivered(self._known(sent))}"

    def _why_undelivered(self, event: Event) -> str:
        """Why an event has no deliveries."""
        for message in self._outbox():
            if message.event_id == event.event_id:
                rejected = f"was rejected: {message.refusal}"
                state = "waits in the outbox (has it been drained?)" if message.refused_at is None else rejected
                return f"it has no deliveries: it {state}"
        if self._stored(event) is None:
            return f"it was {self._status(event)} when it was deleted, or removed after its retention"
        return "no endpoint subscribes to it: it waits in the inbox"

    def _status(self, event: Event) -> EventStatus:
        """The event's current status, or the last known one if it has been cleaned up."""
        stored = self._stored(event)
        return self._statuses.get(event.event_id, EventStatus.RECEIVED) if stored is None else stored.status

    def _stored(self, event: Event) -> EventView | None:
        try:
            return _at_once(self._store.get(EventView, event.org_id, event.event_id))
        except NotFound:
            return None

    def _line(self, delivery: Delivery) -> str:
        endpoint = _at_once(self._store.get(Endpoint, delivery.org_id, delivery.endpoint_id))
        attempts = "1 attempt" if delivery.attempt == 1 else f"{delivery.attempt} attempts"
        parts = [f"  to {endpoint.name}: {delivery.state} after {attempts}"]
        if delivery.state is DeliveryState.PENDING and delivery.due_at is not None:
            wait = (delivery.due_at - self._clock.now()) / SECOND
            parts.append(f"due in {wait:g} s" if wait > 0 else "due now (has it been drained?)")
        if delivery.code:
            parts.append(f"{delivery.code}: {delivery.reason}")
        return ", ".join(parts)


def _at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine without an event loop. The in-memory store never waits, so its methods finish in one step."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        value: T = ended.value
        return value
    raise AssertionError("the in-memory store waited")


def _has(event: Event, payload: Any) -> bool:
    if payload is _ANYTHING:
        return True
    if isinstance(payload, bytes):
        return event.payload == payload
    return bool(msgspec.json.decode(event.payload) == payload)


def _encoded(payload: Any) -> bytes:
    return payload if isinstance(payload, bytes) else repr(payload).encode()


def _listed(events: Sequence[Event]) -> str:
    lines = [f"  {event.event_type} {_shown(event.payload)}" for event in events[:_SHOWN_MAX]]
    if len(events) > _SHOWN_MAX:
        lines.append(f"  and {len(events) - _SHOWN_MAX} more")
    return "\n".join(lines) or "  nothing"


def _shown(payload: bytes) -> str:
    text = payload.decode("utf-8", "backslashreplace")
    return text if len(text) <= _PAYLOAD_SHOWN_MAX else f"{text[:_PAYLOAD_SHOWN_MAX]}…"


def _named(event: Event) -> str:
    return f"{event.event_type} {event.event_id}"
