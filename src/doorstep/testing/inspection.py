"""What a test asks of a sandbox: what was sent, and what became of it. Failed assertions say what there was instead."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, Protocol, TypeVar
from uuid import UUID

import msgspec

from doorstep.clock import SECOND, Clock
from doorstep.errors import NotFound
from doorstep.model.attempt import Attempt
from doorstep.model.delivery import Delivery, DeliveryState
from doorstep.model.event import Event, EventStatus, EventView
from doorstep.model.outbox import OutboxMessage, event_of
from doorstep.policy.routing import matches
from doorstep.stores.store import Store
from doorstep.telemetry.facts import Fact, StatusTransition

T = TypeVar("T")

_ANYTHING: Any = object()
_SHOWN_MAX = 20
_POSTED_MAX = 100_000
_PAYLOAD_SHOWN_MAX = 200


class Sent(Protocol):
    """What `send` returned, or an event of `sent`."""

    @property
    def event_id(self) -> UUID: ...


class Looking:
    """Remembers every event that was accepted, even if it has been cleaned away since."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._events: dict[UUID, Event] = {}
        self._statuses: dict[UUID, EventStatus] = {}

    def hear(self, facts: Sequence[Fact]) -> None:
        """Note what was sent and what became of it; the engine tells."""
        for fact in facts:
            if isinstance(fact, StatusTransition):
                self._statuses[fact.event_id] = EventStatus(fact.new_status)
                if fact.old_status is None:
                    self._events[fact.event_id] = _at_once(self._store.event(fact.org_id, fact.event_id)).event

    # -- what there is -------------------------------------------------------------------------------------

    def sent(self, event_type: str = "*") -> list[Event]:
        """The events of this type (`order.*` for any rest), in the order they were sent."""
        events = (*self._events.values(), *self._posted())
        return [event for event in events if matches(event_type, event.event_type)]

    def _posted(self) -> list[Event]:
        """What was sent on a connection of the program's own, and is not drained yet or was set aside."""
        return [event_of(posting) for posting in self._postings()]

    def _postings(self) -> list[OutboxMessage]:
        postings = [*_at_once(self._store.outbox(_POSTED_MAX)), *_at_once(self._store.refused(_POSTED_MAX))]
        return [posting for posting in postings if posting.event_id not in self._events]

    def deliveries(self, sent: Sent) -> list[Delivery]:
        """One for each endpoint that takes the event."""
        event = self._known(sent)
        return _at_once(self._store.deliveries(event.org_id, event.event_id))

    def attempts(self, sent: Sent) -> list[Attempt]:
        """The attempt log of all its deliveries, in the order of the attempts."""
        rows = [_at_once(self._store.attempts(one.org_id, one.delivery_id)) for one in self.deliveries(sent)]
        return sorted((row for log in rows for row in log), key=lambda row: (row.started_at, row.number))

    # -- what there should be ------------------------------------------------------------------------------

    def assert_sent(self, event_type: str, payload: Any = _ANYTHING, count: int | None = None) -> list[Event]:
        """Some event of this type was sent (`count`: exactly so many), with this payload if one is given.

        A payload is compared as JSON; given as bytes, byte for byte. `unittest.mock.ANY` stands for what does not
        matter. Returns the events.
        """
        found = [event for event in self.sent(event_type) if _has(event, payload)]
        if len(found) != count if count is not None else not found:
            raise AssertionError(self._missing(event_type, payload, count, len(found)))
        return found

    def assert_nothing_sent(self, event_type: str = "*") -> None:
        """No event was sent; or none of a type."""
        if found := self.sent(event_type):
            raise AssertionError(f"nothing of type {event_type} should have been sent, but was:\n{_listed(found)}")

    def assert_delivered(self, sent: Sent) -> None:
        """Every endpoint that takes the event has it; or had, if it has been cleaned away since."""
        event = self._known(sent)
        if self._status(event) is not EventStatus.DELIVERED:
            raise AssertionError(f"{_named(event)} is not delivered:\n{self._standing(sent)}")

    def assert_dead(self, sent: Sent, code: str | None = None) -> None:
        """At least one of its deliveries is a dead letter; with this code, if one is given."""
        dead = [one for one in self.deliveries(sent) if one.state in (DeliveryState.DEAD, DeliveryState.ARCHIVED)]
        if not any(code in (None, one.code) for one in dead):
            wanted = "no dead letter" if code is None else f"no dead letter with code {code}"
            raise AssertionError(f"{_named(self._known(sent))} has {wanted}:\n{self._standing(sent)}")

    # -- wording -------------------------------------------------------------------------------------------

    def _known(self, sent: Sent) -> Event:
        for event in self.sent():
            if event.event_id == sent.event_id:
                return event
        raise AssertionError(f"event {sent.event_id} was not sent in this sandbox; sent were:\n{self._all()}")

    def _missing(self, event_type: str, payload: Any, count: int | None, found: int) -> str:
        wanted = "at least one event" if count is None else f"{count} events"
        given = "" if payload is _ANYTHING else f" with payload {_shown(_encoded(payload))}"
        return (
            f"{wanted} of type {event_type}{given} should have been sent, but {found} were; sent were:\n{self._all()}"
        )

    def _all(self) -> str:
        return _listed(self.sent())

    def _standing(self, sent: Sent) -> str:
        lines = [self._line(delivery) for delivery in self.deliveries(sent)]
        return "\n".join(lines) or f"  {self._why_nowhere(self._known(sent))}"

    def _why_nowhere(self, event: Event) -> str:
        """Why an event has no deliveries."""
        for posting in self._postings():
            if posting.event_id == event.event_id:
                refused = f"was set aside: {posting.refusal}"
                wait = "waits in the outbox (has it been drained?)" if posting.refused_at is None else refused
                return f"no endpoint has taken it: it {wait}"
        if self._kept(event) is None:
            return f"it was {self._status(event)} when it was deleted, or cleaned away after its retention"
        return "no endpoint has taken it: it waits in the inbox"

    def _status(self, event: Event) -> EventStatus:
        """As it stands; as it was last heard of, if it has been cleaned away."""
        kept = self._kept(event)
        return self._statuses.get(event.event_id, EventStatus.RECEIVED) if kept is None else kept.status

    def _kept(self, event: Event) -> EventView | None:
        try:
            return _at_once(self._store.event(event.org_id, event.event_id))
        except NotFound:
            return None

    def _line(self, delivery: Delivery) -> str:
        endpoint = _at_once(self._store.endpoint(delivery.org_id, delivery.endpoint_id))
        parts = [f"  to {endpoint.name}: {delivery.state} after {_count(delivery.attempt, 'attempt')}"]
        if delivery.state is DeliveryState.PENDING and delivery.due_at is not None:
            wait = (delivery.due_at - self._clock.now()) / SECOND
            parts.append(f"due in {wait:g} s" if wait > 0 else "due now (has it been drained?)")
        if delivery.code:
            parts.append(f"{delivery.code}: {delivery.reason}")
        return ", ".join(parts)


def _at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """The store in memory never waits, so each of its verbs ends in its first step: no event loop is needed to ask."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        value: T = ended.value
        return value
    raise AssertionError("the store in memory waited for something")


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


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
