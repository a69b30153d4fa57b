"""Outbox messages: events that a program posted in its own transaction and that have not been accepted yet."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.event import Event, EventStatus, EventSummary, EventView
from doorstep.model.record import Record


class OutboxOptions(Record, frozen=True, kw_only=True, omit_defaults=True):
    """The sender's options for the event, apart from its type and payload. They are stored in one JSON column of the
    outbox."""

    correlation_id: str = ""
    endpoint_ids: tuple[UUID, ...] | None = None
    deliver_at: Instant | None = None
    expires_at: Instant | None = None
    metadata: str | None = None
    """JSON text, so that it is kept byte for byte. None means an empty object."""
    ordering_key: str | None = None
    trace: str | None = None
    user_id: str | None = None


class OutboxMessage(Record, frozen=True, kw_only=True):
    """A row of the outbox. Nothing in it has been checked yet, not even that the organization exists."""

    event_id: UUID
    org_id: UUID
    event_type: str
    payload: bytes
    created_at: Instant
    options: OutboxOptions = OutboxOptions()
    refused_at: Instant | None = None
    """When the message was rejected; None if it was not."""
    refusal: str | None = None
    """Why it was rejected."""
    flaw: str | None = None
    """Why the options cannot be read, for a row that was not written by `send`. The options are then empty."""


class Posted(Record, frozen=True):
    """The result of posting. The event exists only if the transaction commits."""

    event_id: UUID
    created_at: datetime
    """When it was posted. Once the event is accepted, its `created_at` is the time of acceptance."""


def event_of(message: OutboxMessage) -> Event:
    """The event that a message becomes."""
    return Event(created_at=message.created_at, **event_fields(message))


def event_fields(message: OutboxMessage) -> dict[str, Any]:
    """The fields that the sender set, by their names in events and drafts."""
    options = message.options
    return {
        "event_id": message.event_id,
        "org_id": message.org_id,
        "event_type": message.event_type,
        "payload": message.payload,
        "correlation_id": options.correlation_id,
        "deliver_at": options.deliver_at,
        "expires_at": options.expires_at,
        "metadata": b"{}" if options.metadata is None else options.metadata.encode(),
        "ordering_key": options.ordering_key,
        "trace": options.trace,
        "user_id": options.user_id,
    }


def view_of_message(message: OutboxMessage) -> EventView:
    """The event as shown before it is accepted."""
    return EventView(event=event_of(message), in_outbox=True, refusal=message.refusal, **_totals(message))


def summary_of_message(message: OutboxMessage) -> EventSummary:
    return EventSummary(
        event_id=message.event_id,
        event_type=message.event_type,
        created_at=message.created_at,
        correlation_id=message.options.correlation_id,
        user_id=message.options.user_id,
        **_totals(message),
    )


def _totals(message: OutboxMessage) -> dict[str, Any]:
    """The fields of EventTotals. The event has no deliveries, and its status is RECEIVED, or FAILED if the message was
    rejected."""
    status = EventStatus.RECEIVED if message.refused_at is None else EventStatus.FAILED
    return {"status": status, "deliveries": 0, "failed_at": message.refused_at}
