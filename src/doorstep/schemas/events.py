"""Events: as they are sent, their receipts and statuses, in lists, and in full."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, TypeAlias
from uuid import UUID

import msgspec

from doorstep.schemas.deliveries import Delivery, DeliveryStateName
from doorstep.schemas.shape import Answer, CountedPagination, Listing, ListQuery, Pagination, Request, Time, told

Status: TypeAlias = Literal["received", "queued", "delivered", "failed"]
InboxStatus: TypeAlias = Literal["received", "failed"]

TYPE_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.:/\-]{0,127}$"
KEY_RULES = {"minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"}
"""Of an idempotency key, and of an ordering key."""
BATCH_MAX = 1_000

EventType: TypeAlias = Annotated[str, told(pattern=TYPE_PATTERN)]
Key: TypeAlias = Annotated[str, told(**KEY_RULES)]
RawObject: TypeAlias = Annotated[msgspec.Raw, told(type="object", additionalProperties=True)]

NOT_GIVEN = msgspec.Raw(b"")
_NO_METADATA = msgspec.Raw(b"{}")

# -- requests ----------------------------------------------------------------------------------------------------


class EventIn(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """An event as it is sent."""

    event_type: EventType
    payload: msgspec.Raw
    endpoint_ids: Annotated[tuple[UUID, ...], told(minItems=1)] | None = None
    """Only these endpoints; left out, all whose event types match."""
    deliver_at: Time | None = None
    """Not before this time."""
    expires_at: Time | None = None
    """Not after this time: what is still waiting then becomes a dead letter."""
    metadata: RawObject = msgspec.field(default_factory=lambda: _NO_METADATA)
    """A small object of your own, kept and shown as given."""
    ordering_key: Key | None = None
    """Events that share it are delivered to each endpoint in the order of their acceptance."""
    idempotency_key: Key | None = None
    """In a single request the header Idempotency-Key means the same."""


Events: TypeAlias = Annotated[list[EventIn], told(minItems=1, maxItems=BATCH_MAX)]


class BatchIn(msgspec.Struct, forbid_unknown_fields=True):
    """Events that are stored in one transaction."""

    events: Events


class TestIn(Request, frozen=True):
    """What a test sends; without it, a short greeting of the type `doorstep.test`."""

    event_type: EventType | None = None
    payload: msgspec.Raw = msgspec.field(default_factory=lambda: NOT_GIVEN)


class ReplayEventIn(Request, frozen=True):
    """Where to send an event again."""

    endpoint_id: UUID


class EventsQuery(ListQuery, frozen=True, kw_only=True):
    """Which events."""

    status: Status | None = None
    event_type: Annotated[str, msgspec.Meta(max_length=200)] | None = None
    """Exact, or a pattern whose final `*` stands for any rest."""
    created_from: Time | None = None
    created_before: Time | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 50


class InboxQuery(ListQuery, frozen=True, kw_only=True):
    """Which events of the inbox."""

    status: InboxStatus = "received"
    limit: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 50


# -- answers -----------------------------------------------------------------------------------------------------


class Receipt(Answer, frozen=True):
    """The event is on stable storage. `deliveries`: to how many endpoints it goes."""

    event_id: UUID
    status: Literal["received"]
    created_at: Time
    deliveries: int
    verdict: Literal["accepted", "repeated", "conflict"]
    """`repeated`: the idempotency key was used for the same event before, and nothing new was stored. `conflict`: it was
    used for another one (only in a batch, where the others were stored all the same)."""


class Receipts(Answer, frozen=True):
    """One receipt for each event, in the order sent."""

    events: tuple[Receipt, ...]


class EventStatus(Answer, frozen=True):
    """Where an event stands. Never the payload."""

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
    pagination: Pagination


class InboxItem(EventItem, frozen=True):
    """An event in the inbox. The payload is given where it waits to be taken: for failed ones it is null."""

    payload_json: msgspec.Raw = msgspec.field(name="payload")
    """The payload's bytes, exactly as they were accepted."""
    metadata_json: msgspec.Raw = msgspec.field(name="metadata")

    @property
    def payload(self) -> Any:
        return _parsed(self.payload_json)

    @property
    def metadata(self) -> Any:
        return _parsed(self.metadata_json)


class InboxPage(Listing[InboxItem], frozen=True):
    """One page of the inbox."""

    events: tuple[InboxItem, ...]
    pagination: CountedPagination


class Event(EventStatus, frozen=True):
    """An event in full: what was accepted, where it stands, and what it owes."""

    refusal: str | None
    """Why it was set aside in the outbox, where it can never be accepted; null for every other event."""
    event_type: str
    created_at: Time
    correlation_id: str
    deliver_at: Time | None
    expires_at: Time | None
    ordering_key: str | None
    metadata_json: RawObject = msgspec.field(name="metadata")
    payload_json: msgspec.Raw = msgspec.field(name="payload")
    """The payload's bytes, exactly as they were accepted."""
    deliveries: tuple[Delivery, ...]

    @property
    def payload(self) -> Any:
        return _parsed(self.payload_json)

    @property
    def metadata(self) -> Any:
        return _parsed(self.metadata_json)


class Acknowledged(Answer, frozen=True):
    """The consumer of the inbox has it."""

    event_id: UUID
    status: Literal["delivered"]


class Refused(Answer, frozen=True):
    """A delivery that was left alone, and the state that did not allow it; None if it is not there any more."""

    delivery_id: UUID
    state: DeliveryStateName | None


class Retried(Answer, frozen=True):
    """Which deliveries of an event are due again, and which could not be."""

    event_id: UUID
    retried: tuple[UUID, ...]
    refused: tuple[Refused, ...]


class Cancelled(Answer, frozen=True):
    """Which deliveries of an event were called off, and which could not be."""

    event_id: UUID
    cancelled: tuple[UUID, ...]
    refused: tuple[Refused, ...]


def _parsed(content: msgspec.Raw) -> Any:
    """By the standard library, which keeps whole numbers of any length."""
    return json.loads(bytes(content))
