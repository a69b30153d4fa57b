"""Events: requests, receipts, statuses, lists and details; and batches, each of which is an event."""

from __future__ import annotations

import json
from typing import Annotated, Any, Generic, Literal, TypeAlias, TypeVar
from uuid import UUID

import msgspec

from doorstep.schemas.accounts import UserId
from doorstep.schemas.deliveries import Delivery, DeliveryStateName, Held
from doorstep.schemas.search import FIELD_PATH_RULES, FieldValue
from doorstep.schemas.shape import (
    Answer,
    CountedListing,
    EventTypePattern,
    Listing,
    ListQuery,
    OlderName,
    Pagination,
    Request,
    Time,
    stated,
)

T = TypeVar("T")
Status: TypeAlias = Literal["received", "queued", "delivered", "failed"]
BatchStatus: TypeAlias = Literal["PENDING", "CONFIRMED", "FAILED"]

TYPE_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.:/\-]{0,127}$"
KEY_RULES = {"minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"}
"""The rules for idempotency keys and ordering keys."""
BATCH_MAX = 1_000

EventType: TypeAlias = Annotated[str, stated(pattern=TYPE_PATTERN)]
Key: TypeAlias = Annotated[str, stated(**KEY_RULES)]
RawObject: TypeAlias = Annotated[msgspec.Raw, stated(type="object", additionalProperties=True)]

KeyText: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
_FIELDS = (
    "Values in the {0}, by path: `{0}[{1}]=42`. A number in a path selects an item of a list. Values are compared as "
    "text. Fields that the organization has declared (`PUT /v1/search-fields`) have an index. For others, the newest "
    "events are searched for a limited time; `pagination.searched_until` says how far, and `cursor` continues."
)


def _fields_of(source: str, example: str) -> Any:
    """A msgspec Meta for the values by which events are searched."""
    rules = {"maxProperties": 8, "propertyNames": FIELD_PATH_RULES}
    return msgspec.Meta(description=_FIELDS.format(source, example), extra_json_schema=rules)


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
    since: Time | None = None
    """Only events created at this time or later."""
    until: Time | None = None
    """Only events created before this time."""
    created_from: OlderName | None = None
    """An older name of `since`."""
    created_before: OlderName | None = None
    """An older name of `until`."""
    endpoint: Annotated[str, msgspec.Meta(min_length=1, max_length=200)] | None = None
    """The id or the name of an endpoint to which the event is delivered."""
    correlation_id: Annotated[str, msgspec.Meta(min_length=1, max_length=128)] | None = None
    ordering_key: KeyText | None = None
    idempotency_key: KeyText | None = None
    """The event that was sent with this key within the last 24 hours. Each user has their own keys: for the event of a
    user, give `user_id` too."""
    user_id: UserId | None = None
    """Only events of this user. A key with a user finds no others anyway."""
    payload: Annotated[dict[str, FieldValue], _fields_of("payload", "order.id")] | None = None
    metadata: Annotated[dict[str, FieldValue], _fields_of("metadata", "customer")] | None = None
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


class RejectedMessage(Answer, frozen=True):
    """An event that a program posted in its own transaction and that cannot be accepted."""

    event_id: UUID
    org_id: UUID | None
    """The organization that it was sent for; None for the default one."""
    event_type: str
    created_at: Time
    """When it was posted."""
    refused_at: Time
    refusal: str
    """Why it was rejected."""


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
    user_id: str | None
    """The user whose key sent the event; null if the key had no user."""
    deliveries: int


class SearchPagination(Pagination, frozen=True):
    """`examined` and `searched_until` are set if events were searched one by one, because no index covers a field:
    `examined` events were read for this page, and all events created at `searched_until` or later have been searched.
    `searched_until` is null if the search has reached the oldest event."""

    examined: int | None
    searched_until: Time | None


class _Searched(Listing[T], Generic[T], frozen=True, kw_only=True):
    pagination: SearchPagination


class EventPage(_Searched[EventItem], frozen=True):
    """One page of the events."""

    events: tuple[EventItem, ...]


class Event(EventStatus, frozen=True):
    """An event in full, with its status and deliveries."""

    refusal: str | None
    """Why the event was rejected in the outbox; null if it was not rejected."""
    event_type: str
    created_at: Time
    correlation_id: str
    user_id: str | None
    deliver_at: Time | None
    expires_at: Time | None
    ordering_key: str | None
    metadata_json: RawObject = msgspec.field(name="metadata")
    payload_json: msgspec.Raw = msgspec.field(name="payload")
    """The bytes of the payload, exactly as accepted."""
    held: Held | None
    """Why none of its waiting deliveries is attempted, and until when; null if one is not held."""
    deliveries: tuple[Delivery, ...]

    @property
    def payload(self) -> Any:
        return parsed(self.payload_json)

    @property
    def metadata(self) -> Any:
        return parsed(self.metadata_json)


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


def parsed(content: msgspec.Raw) -> Any:
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
    held: Held | None
    """Why the batch is not submitted although it may be due; null if it is not held."""
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
