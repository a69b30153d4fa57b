"""An event: an immutable fact, accepted once; and the status that people see."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.delivery import NewDelivery
from doorstep.model.record import Record


class EventStatus(StrEnum):
    RECEIVED = "received"
    """Accepted; nothing has been picked up yet."""
    QUEUED = "queued"
    """At least one delivery has been picked up, and not all are settled."""
    DELIVERED = "delivered"
    """Every delivery is delivered, or the inbox consumer acknowledged the event."""
    FAILED = "failed"
    """Nothing is left to try, and at least one delivery is dead."""


EVENT_TRANSITIONS: frozenset[tuple[EventStatus, EventStatus]] = frozenset(
    {
        (EventStatus.RECEIVED, EventStatus.QUEUED),  # the first delivery was claimed
        (EventStatus.RECEIVED, EventStatus.DELIVERED),  # acknowledged from the inbox
        (EventStatus.RECEIVED, EventStatus.FAILED),  # skipped, cancelled or endpoint deleted before any try
        (EventStatus.QUEUED, EventStatus.DELIVERED),
        (EventStatus.QUEUED, EventStatus.FAILED),
        (EventStatus.FAILED, EventStatus.QUEUED),  # an operator retries a dead letter
        (EventStatus.FAILED, EventStatus.DELIVERED),  # an operator resolves the last dead letter
    }
)


class Event(Record, frozen=True, kw_only=True):
    """What was accepted. `payload` is bytes in and bytes out: it is never re-encoded."""

    event_id: UUID
    org_id: UUID
    event_type: str
    payload: bytes
    created_at: Instant
    correlation_id: str
    deliver_at: Instant | None = None
    expires_at: Instant | None = None
    """Not to be tried after this instant; what is still waiting then becomes a dead letter."""
    metadata: bytes = b"{}"
    """A small JSON object of the sender's own, kept as given."""
    ordering_key: str | None = None
    """Events of one organization that share it are delivered to each endpoint in the order of their acceptance."""
    trace: str | None = None
    """The trace that it is part of, if its sender said so: a W3C `traceparent`, perhaps a blank and a `tracestate`."""


class EventView(Record, frozen=True, kw_only=True):
    """An event as it stands now, with the figures that its deliveries add up to."""

    event: Event
    status: EventStatus
    deliveries: int
    retry_attempts: int = 0
    last_retry_at: Instant | None = None
    failed_at: Instant | None = None
    next_retry_at: Instant | None = None
    in_outbox: bool = False
    """It has not been accepted yet."""
    refusal: str | None = None
    """Why it was set aside there, because it can never be."""


class EventSummary(Record, frozen=True, kw_only=True):
    """An event as lists show it: everything but what the sender gave to be delivered."""

    event_id: UUID
    event_type: str
    created_at: Instant
    correlation_id: str
    status: EventStatus
    deliveries: int
    retry_attempts: int = 0
    last_retry_at: Instant | None = None
    failed_at: Instant | None = None
    next_retry_at: Instant | None = None


def owed_since(created_at: Instant, deliver_at: Instant | None) -> Instant:
    """When an event is to be delivered: as soon as it is accepted, or later, if its sender said so; never before."""
    return created_at if deliver_at is None else max(created_at, deliver_at)


def status_of(*, open_count: int, dead_count: int, done_count: int, picked_up: bool) -> EventStatus:
    """The status that an event's deliveries add up to. Stores repeat this rule in SQL; the contract compares.

    `done` counts delivered and resolved deliveries. An event whose deliveries were all cancelled has nothing
    left to try and was not delivered: it is failed.
    """
    if open_count:
        return EventStatus.QUEUED if picked_up else EventStatus.RECEIVED
    if dead_count or not done_count:
        return EventStatus.FAILED
    return EventStatus.DELIVERED


class Submission(Record, frozen=True):
    """What is accepted as one: an event and its deliveries."""

    event: Event
    deliveries: tuple[NewDelivery, ...]
    """One per matching endpoint; none means that the event waits in the inbox."""
    idempotency_key: str | None = None
    fingerprint: bytes = b""
    """A digest of everything the sender gave: tells a repeated request from another one under the same key."""


class Verdict(StrEnum):
    """Whether an event was stored, and if not, why."""

    ACCEPTED = "accepted"
    REPEATED = "repeated"
    """Same organization, key and body as before: the first receipt again, nothing new."""
    CONFLICT = "conflict"
    """Same key, another body: nothing was stored."""


class Receipt(Record, frozen=True):
    """What a sender is told of an event that it sent."""

    verdict: Verdict
    event_id: UUID
    created_at: Instant
    deliveries: int
    known: bool = False
    """An event with this id had been kept before, so nothing was added."""
