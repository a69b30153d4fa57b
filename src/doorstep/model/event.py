"""Events: immutable facts, accepted once, with a status derived from their deliveries."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.delivery import NewDelivery
from doorstep.model.record import Record

if TYPE_CHECKING:
    from doorstep.model.claim import Claim  # which describes claims by means of this module


class EventStatus(StrEnum):
    RECEIVED = "received"
    """Accepted; no delivery has been claimed yet."""
    QUEUED = "queued"
    """At least one delivery has been claimed, and not all are settled."""
    DELIVERED = "delivered"
    """All deliveries succeeded, or an inbox consumer acknowledged the event."""
    FAILED = "failed"
    """No delivery is open, and either at least one is dead or all were cancelled."""


EVENT_TRANSITIONS: frozenset[tuple[EventStatus, EventStatus]] = frozenset(
    {
        (EventStatus.RECEIVED, EventStatus.QUEUED),  # the first delivery was claimed
        (EventStatus.RECEIVED, EventStatus.DELIVERED),  # acknowledged from the inbox
        (EventStatus.RECEIVED, EventStatus.FAILED),  # skipped, cancelled or endpoint deleted before any attempt
        (EventStatus.QUEUED, EventStatus.DELIVERED),
        (EventStatus.QUEUED, EventStatus.FAILED),
        (EventStatus.FAILED, EventStatus.QUEUED),  # an operator retries a dead letter
        (EventStatus.FAILED, EventStatus.DELIVERED),  # an operator resolves the last dead letter
    }
)


class EventContent(Record, frozen=True, kw_only=True):
    """The fields that the sender of an event determines."""

    org_id: UUID
    event_type: str
    payload: bytes
    """Never re-encoded: receivers get the same bytes."""
    correlation_id: str = ""
    deliver_at: Instant | None = None
    expires_at: Instant | None = None
    """No attempt starts after this time. Deliveries that are still waiting at this time become dead letters."""
    metadata: bytes = b"{}"
    """A small JSON object from the sender, stored unchanged."""
    ordering_key: str | None = None
    """Events of one organization with the same key are delivered to each endpoint in the order of acceptance."""
    trace: str | None = None
    """The trace of the event, if it has one: a W3C `traceparent`, optionally followed by a space and a `tracestate`."""
    user_id: str | None = None
    """The user of the key that sent the event. Only this user's keys, and keys without a user, can access the event."""


class Event(EventContent, frozen=True, kw_only=True):
    """An accepted event."""

    event_id: UUID
    created_at: Instant

    def belongs_to(self, user_id: str | None) -> bool:
        """Whether a key of this user may access the event; None is for keys without a user, which may access all."""
        return user_id in (None, self.user_id)


class EventTotals(Record, frozen=True, kw_only=True):
    """The current status of an event and the totals of its deliveries."""

    status: EventStatus
    deliveries: int
    retry_attempts: int = 0
    last_retry_at: Instant | None = None
    failed_at: Instant | None = None
    next_retry_at: Instant | None = None


class EventView(EventTotals, frozen=True, kw_only=True):
    """An event with its payload, as people see it."""

    event: Event
    in_outbox: bool = False
    """It is in the outbox and has not been accepted yet."""
    refusal: str | None = None
    """Why the forwarder rejected the event permanently; None if it did not."""
    receive_count: int = 0
    """How many times a consumer of the inbox leased the event. It is also the token of the newest lease."""
    leased_by: str | None = None
    """Who leased the event last, unless they gave it back."""
    visible_at: Instant | None = None
    """When the newest lease ends, or the delay after which the event was given back. Until then, it cannot be leased."""


class EventSummary(EventTotals, frozen=True, kw_only=True):
    """An event in a list: without its payload and metadata."""

    event_id: UUID
    event_type: str
    created_at: Instant
    correlation_id: str
    user_id: str | None = None


class EventBody(Record, frozen=True, kw_only=True):
    """The content of an event, for a search in it."""

    event_id: UUID
    metadata: bytes
    payload: bytes


def owed_since(created_at: Instant, deliver_at: Instant | None) -> Instant:
    """The time from which an event should be delivered: its acceptance, or `deliver_at` if that is later."""
    return created_at if deliver_at is None else max(created_at, deliver_at)


def status_of(*, open_count: int, dead_count: int, done_count: int, picked_up: bool) -> EventStatus:
    """The status of an event, derived from its deliveries. Stores repeat this rule in SQL; contract tests compare the
    two.

    `done_count` includes delivered and resolved deliveries. If all deliveries were cancelled, the event was not
    delivered, so it counts as failed.
    """
    if open_count:
        return EventStatus.QUEUED if picked_up else EventStatus.RECEIVED
    if dead_count or not done_count:
        return EventStatus.FAILED
    return EventStatus.DELIVERED


class Submission(Record, frozen=True):
    """An event and its deliveries, which are accepted together."""

    event: Event
    deliveries: tuple[NewDelivery, ...]
    """One delivery for each matching endpoint. Without any, the event waits in the inbox."""
    idempotency_key: str | None = None
    fingerprint: bytes = b""
    """A digest of the whole request, which distinguishes a repeated request from a different one with the same key."""
    search_keys: tuple[int, ...] = ()
    """The values in the fields that the organization has declared searchable (policy/search.py)."""


def any_left(submissions: Sequence[Submission], receipts: Sequence[Receipt]) -> bool:
    """Whether an accepting transaction left deliveries to be claimed later."""
    pairs = zip(submissions, receipts, strict=True)
    return any(len(one.deliveries) > len(receipt.claims) for one, receipt in pairs)


class Verdict(StrEnum):
    """Whether an event was stored, and if not, why."""

    ACCEPTED = "accepted"
    REPEATED = "repeated"
    """The organization, key and body are the same as before. The first receipt is returned, and nothing is stored."""
    CONFLICT = "conflict"
    """The key is the same as before but the body differs. Nothing is stored."""


class Receipt(Record, frozen=True):
    """The confirmation that a sender receives for an event."""

    verdict: Verdict
    event_id: UUID
    created_at: Instant
    deliveries: int
    known: bool = False
    """An event with this id already existed, so nothing was added."""
    claims: tuple[Claim, ...] = ()
    """The deliveries that the accepting transaction claimed for the caller, in the order of the submission."""
