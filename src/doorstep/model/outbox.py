"""A posting: an event in the outbox, put there by a program's own transaction and not accepted yet."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.event import Event, EventStatus, EventSummary, EventView
from doorstep.model.record import Record


class OutboxOptions(Record, frozen=True, kw_only=True, omit_defaults=True):
    """What the sender said about the event beside its type and payload; one column of JSON in the outbox."""

    correlation_id: str = ""
    endpoint_ids: tuple[UUID, ...] | None = None
    deliver_at: Instant | None = None
    expires_at: Instant | None = None
    metadata: str | None = None
    """As text, so that it is kept to the last blank; None for an empty object."""
    ordering_key: str | None = None
    trace: str | None = None


class OutboxMessage(Record, frozen=True, kw_only=True):
    """What the sender's transaction leaves behind. Nobody has looked yet whether there is such an organization."""

    event_id: UUID
    org_id: UUID
    event_type: str
    payload: bytes
    created_at: Instant
    options: OutboxOptions = OutboxOptions()
    refused_at: Instant | None = None
    """When it was set aside, because it can never be accepted."""
    refusal: str | None = None
    """Why."""
    flaw: str | None = None
    """For a row that was not written by a `send`: why its options cannot be read. Then they are left out."""


class Posted(Record, frozen=True):
    """What the sender is told: the event exists if the transaction commits."""

    event_id: UUID
    created_at: Instant
    """When it was posted. Once it is accepted, the event's own `created_at` is when that was."""


def event_of(posting: OutboxMessage) -> Event:
    """The event that a posting will be."""
    return Event(created_at=posting.created_at, **said_in(posting))


def said_in(posting: OutboxMessage) -> dict[str, Any]:
    """What its sender said of the event, by the names that events and drafts have for it."""
    options = posting.options
    return {
        "event_id": posting.event_id,
        "org_id": posting.org_id,
        "event_type": posting.event_type,
        "payload": posting.payload,
        "correlation_id": options.correlation_id,
        "deliver_at": options.deliver_at,
        "expires_at": options.expires_at,
        "metadata": b"{}" if options.metadata is None else options.metadata.encode(),
        "ordering_key": options.ordering_key,
        "trace": options.trace,
    }


def view_of_posting(posting: OutboxMessage) -> EventView:
    """As readers see it until it is accepted: received, with no delivery yet; failed once it is set aside."""
    return EventView(
        event=event_of(posting),
        status=_status(posting),
        deliveries=0,
        failed_at=posting.refused_at,
        in_outbox=True,
        refusal=posting.refusal,
    )


def summary_of_posting(posting: OutboxMessage) -> EventSummary:
    return EventSummary(
        event_id=posting.event_id,
        event_type=posting.event_type,
        created_at=posting.created_at,
        correlation_id=posting.options.correlation_id,
        status=_status(posting),
        deliveries=0,
        failed_at=posting.refused_at,
    )


def _status(posting: OutboxMessage) -> EventStatus:
    return EventStatus.RECEIVED if posting.refused_at is None else EventStatus.FAILED
