"""Events: receipts, statuses, items of lists, and in full."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import msgspec

from doorstep.client.answers.answer import Answered
from doorstep.client.answers.deliveries import Delivery

Status = Literal["received", "queued", "delivered", "failed"]


class Receipt(Answered, frozen=True, kw_only=True):
    """The event is on stable storage. `deliveries`: to how many endpoints it goes."""

    event_id: UUID
    status: Status
    created_at: datetime
    deliveries: int
    verdict: str = "accepted"
    """`accepted`; `repeated`: the idempotency key was known, nothing new was stored; `conflict`: known with another
    body (only in a batch, where the others were stored all the same)."""


class Receipts(Answered, frozen=True, kw_only=True):
    """One receipt for each event of a batch, in the order sent."""

    events: tuple[Receipt, ...]


class EventStatus(Answered, frozen=True, kw_only=True):
    """Where an event stands."""

    event_id: UUID
    status: Status
    retry_attempts: int
    last_retry_at: datetime | None
    failed_at: datetime | None
    next_retry_at: datetime | None


class EventItem(EventStatus, frozen=True, kw_only=True):
    """An event in a list, without its payload."""

    event_type: str
    created_at: datetime
    correlation_id: str
    deliveries: int


class InboxItem(EventItem, frozen=True, kw_only=True):
    """An event that waits to be fetched. The payload of failed ones is null."""

    payload_json: msgspec.Raw = msgspec.field(name="payload")
    """The payload's bytes, as they were accepted."""
    metadata: Any

    @property
    def payload(self) -> Any:
        return _parsed(self.payload_json)


class Event(EventStatus, frozen=True, kw_only=True):
    """An event in full."""

    event_type: str
    created_at: datetime
    correlation_id: str
    deliver_at: datetime | None
    expires_at: datetime | None
    ordering_key: str | None = None
    refusal: str | None = None
    """Why it was set aside in the outbox, where it can never be accepted."""
    metadata: Any
    payload_json: msgspec.Raw = msgspec.field(name="payload")
    """The payload's bytes, as they were accepted."""
    deliveries: tuple[Delivery, ...]

    @property
    def payload(self) -> Any:
        return _parsed(self.payload_json)


class Acknowledged(Answered, frozen=True, kw_only=True):
    """The consumer of the inbox has it."""

    event_id: UUID
    status: Status


class Refused(Answered, frozen=True, kw_only=True):
    """A delivery whose state did not allow it; None if it is not there any more."""

    delivery_id: UUID
    state: str | None


class Retried(Answered, frozen=True, kw_only=True):
    """Which deliveries of an event are due again, and which could not be."""

    event_id: UUID
    retried: tuple[UUID, ...]
    refused: tuple[Refused, ...] = ()


class Cancelled(Answered, frozen=True, kw_only=True):
    """Which deliveries of an event were called off, and which could not be."""

    event_id: UUID
    cancelled: tuple[UUID, ...]
    refused: tuple[Refused, ...] = ()


def _parsed(payload: msgspec.Raw) -> Any:
    """By the standard library, which keeps whole numbers of any length."""
    return json.loads(bytes(payload))
