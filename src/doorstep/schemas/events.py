"""Events: requests, receipts, statuses, lists and details; and batches, each of which is an event."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, TypeAlias
from uuid import UUID

import msgspec

from doorstep.schemas.deliveries import Delivery, DeliveryStateName
from doorstep.schemas.shape import (
    Answer,
    CountedListing,
    EventTypePattern,
    Listing,
    ListQuery,
    Request,
    Time,
    stated,
)

Status: TypeAlias = Literal["received", "queued", "delivered", "failed"]
InboxStatus: TypeAlias = Literal["received", "failed"]
BatchStatus: TypeAlias = Literal["PENDING", "CONFIRMED", "FAILED"]

TYPE_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.:/\-]{0,127}$"
KEY_RULES = {"minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"}
"""The rules for idempotency keys and ordering keys."""
BATCH_MAX = 1_000

EventType: TypeAlias = Annotated[str, stated(pattern=TYPE_PATTERN)]
Key: TypeAlias = Annotated[str, stated(**KEY_RULES)]
RawObject: TypeAlias = Annotated[msgspec.Raw, stated(type="object", additionalProperties=True)]

NOT_GIVEN = msgspec.Raw(b"")
_NO_METADATA = msgspec.Raw(b"{}")

# -- requests ----------------------------------------------------------------------------------------------------


class EventIn(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """An event as it is sent."""

    event_type: EventType
    payload: msgspec.Raw
    endpoint_ids: Annotated[tuple[UUID, ...], stated(minItems=1)] | None = None
    """Deliver only to these endpoints; if omitted, to all endpoints whose event types match."""
    deliver_at: Time | None = None
    """Do not deliver before this time."""
    expires_at: Time | None = None
    """Do not deliver after this time. Deliveries that are still waiting then become dead letters."""
    metadata: RawObject = msgspec.field(default_factory=lambda: _NO_METADATA)
    """A small JSON object of your own. It is stored and returned unchanged."""
    ordering_key: Key | None = None
    """Events with the same key reach each endpoint in the order of their acceptance."""
    idempotency_key: Key | None = None
    """An event that is sent again with the same key is not stored again. For a single event, you can use the header
    Idempotency-Key instead."""


Events: TypeAlias = Annotated[list[EventIn], stated(minItems=1, maxItems=BATCH_MAX)]


class BatchIn(msgspec.Struct, forbid_unknown_fields=True):
    """Events that are stored in one transaction."""

    events: Events


class TestIn(Request, frozen=True):
    """The test event; by default a short greeting of the type `doorstep.test`."""

    event_type: EventType | None = None
    payload: msgspec.Raw = msgspec.field(default_factory=lambda: NOT_GIVEN)


class ReplayEventIn(Request, frozen=True):
    """The target of a replay."""

    endpoint_id: UUID


class EventsQuery(ListQuery, frozen=True, kw_only=True):
    """Filters of the events."""

    status: Status | None = None
    event_type: EventTypePattern | None = None
    created_from: Time | None = None
    created_before: Time | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 50


class InboxQuery(ListQuery, frozen=True, kw_only=True):
    """Filters of the inbox."""

    status: InboxStatus = "received"
    limit: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 50


# -- answers -----------------------------------------------------------------------------------------------------


class Receipt(Answer, frozen=True):
    """Confirms that the event is stored durably. `deliveries` is the number of endpoints that will receive it."""

    event_id: UUID
    status: Literal["received"]
    created_at: Time
    deliveries: int
    verdict: Literal["accepted", "repeated", "conflict"]
    """`repeated`: the idempotency key was used before for the same event, so nothing new was stored. `conflict`: the
    key was used before for another event, so this event was not stored. `conflict` occurs only if several events are
    sent in one request; the other events were stored."""


class Receipts(Answer, frozen=True):
    """One receipt for each event, in the order sent."""

    events: tuple[Receipt, ...]


class EventStatus(Answer, frozen=True):
    """The status of an event, without the payload."""

    event_id: UUID
    status: Status
    retry_attempts: int
    last_retry_at: Time | None
    failed_at: Time | None
    next_retry_at: Time | None


class EventItem(EventStatus, frozen=True):
    """An event in a list, without its payload."""

    event_type: str
    created_at: Time
    correlation_id: str
    deliveries: int


class EventPage(Listing[EventItem], frozen=True):
    """One page of the events."""

    events: tuple[EventItem, ...]


class InboxItem(EventItem, frozen=True):
    """An event in the inbox. The payload is null for failed events."""

    payload_json: msgspec.Raw = msgspec.field(name="payload")
    """The bytes of the payload, exactly as accepted."""
    metadata_json: msgspec.Raw = msgspec.field(name="metadata")

    @property
    def payload(self) -> Any:
        return _parsed(self.payload_json)

    @property
    def metadata(self) -> Any:
        return _parsed(self.metadata_json)


class InboxPage(CountedListing[InboxItem], frozen=True):
    """One page of the inbox."""

    events: tuple[InboxItem, ...]


class Event(EventStatus, frozen=True):
    """An event in full, with its status and deliveries."""

    refusal: str | None
    """Why the event was rejected in the outbox; null if it was not rejected."""
    event_type: str
    created_at: Time
    correlation_id: str
    deliver_at: Time | None
    expires_at: Time | None
    ordering_key: str | None
    metadata_json: RawObject = msgspec.field(name="metadata")
    payload_json: msgspec.Raw = msgspec.field(name="payload")
    """The bytes of the payload, exactly as accepted."""
    deliveries: tuple[Delivery, ...]

    @property
    def payload(self) -> Any:
        return _parsed(self.payload_json)

    @property
    def metadata(self) -> Any:
        return _parsed(self.metadata_json)


class Acknowledged(Answer, frozen=True):
    """The event was acknowledged by the consumer of the inbox."""

    event_id: UUID
    status: Literal["delivered"]


class Refused(Answer, frozen=True):
    """A delivery that was not changed. Its state is null if the delivery no longer exists."""

    delivery_id: UUID
    state: DeliveryStateName | None


class Retried(Answer, frozen=True):
    """The deliveries of an event that are due again, and those that could not be retried."""

    event_id: UUID
    retried: tuple[UUID, ...]
    refused: tuple[Refused, ...]


class Cancelled(Answer, frozen=True):
    """The deliveries of an event that were cancelled, and those that could not be cancelled."""

    event_id: UUID
    cancelled: tuple[UUID, ...]
    refused: tuple[Refused, ...]


def _parsed(content: msgspec.Raw) -> Any:
    """The payload, decoded by the standard library, which supports integers of any size."""
    return json.loads(bytes(content))


# -- batches -----------------------------------------------------------------------------------------------------


class BatchesQuery(ListQuery, frozen=True, kw_only=True):
    """Filters of the batches."""

    status: BatchStatus | None = None
    event_type: EventTypePattern | None = None


class Batch(Answer, frozen=True):
    """A batch. Its status is PENDING, then CONFIRMED or FAILED. Its id is the id of its event."""

    batch_id: UUID
    event_type: str
    endpoint_id: UUID
    delivery_id: UUID
    status: BatchStatus
    created_at: Time
    attempts: int
    """All submissions, including those before a resubmission."""
    retry_attempts: int
    """Retries used since the last (re)submission."""
    retries_max: int
    last_attempt_at: Time | None
    next_retry_at: Time | None
    settled_at: Time | None
    """When the batch was confirmed or failed."""
    error_code: str | None
    error_reason: str | None


class BatchPage(Listing[Batch], frozen=True):
    """One page of the batches."""

    batches: tuple[Batch, ...]


class Submission(Answer, frozen=True):
    """One submission of a batch. If there is no error code, the carrier accepted it."""

    number: int
    at: Time
    error_code: str | None
    error_reason: str | None
    carrier_response: str
    """The stored part of the carrier's response."""
    next_retry_at: Time | None
    late: bool
    """Whether the result arrived after the lease had ended. A late result changes nothing, but the carrier may have
    received the batch."""


class SubmissionPage(CountedListing[Submission], frozen=True):
    """The carrier log of a batch."""

    attempts: tuple[Submission, ...]
