"""The inbox: its list, and the leases and answers of its consumers."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias
from uuid import UUID

import msgspec

from doorstep.schemas.events import BATCH_MAX, EventItem, EventType, parsed
from doorstep.schemas.shape import Answer, CountedListing, ListQuery, Request, Time, choice

InboxStatus: TypeAlias = Literal["received", "failed"]
RESULTS = ("acknowledged", "nacked", "already_acknowledged", "newer_lease", "not_in_inbox", "not_found")
HOLD_SECONDS_MAX = 43_200
TYPES_MAX = 20

LeaseToken: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
Delay: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=HOLD_SECONDS_MAX)]

# -- requests ----------------------------------------------------------------------------------------------------


class InboxQuery(ListQuery, frozen=True, kw_only=True):
    """Filters of the inbox."""

    status: InboxStatus = "received"
    limit: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 50


class LeaseIn(Request, frozen=True):
    """How many events to lease, for how long, and of which types."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 10
    visibility_seconds: Annotated[float, msgspec.Meta(ge=1, le=HOLD_SECONDS_MAX)] = 60
    """How long the events are hidden from other consumers. Choose more time than all events of one request need."""
    event_types: Annotated[tuple[EventType, ...], msgspec.Meta(max_length=TYPES_MAX)] = ()
    """Only events of these types, without patterns; if omitted, of all types."""


class AckIn(Request, frozen=True):
    """The token of your lease. Without it, the event is acknowledged regardless of who holds it."""

    lease_token: LeaseToken | None = None


class NackIn(AckIn, frozen=True):
    """The token of your lease, and when the event may be leased again."""

    delay_seconds: Delay = 0


class InboxAnswerIn(Request, frozen=True):
    """An event, and the token of your lease."""

    event_id: UUID
    lease_token: LeaseToken | None = None


AnswersIn: TypeAlias = Annotated[
    tuple[InboxAnswerIn, ...],
    msgspec.Meta(min_length=1, max_length=BATCH_MAX, extra_json_schema={"uniqueItems": True}),
]


class AckManyIn(Request, frozen=True):
    """Events to acknowledge."""

    events: AnswersIn


class NackManyIn(Request, frozen=True):
    """Events to give back, and when they may be leased again."""

    events: AnswersIn
    delay_seconds: Delay = 0


# -- answers -----------------------------------------------------------------------------------------------------


class InboxItem(EventItem, frozen=True):
    """An event in the inbox."""

    receive_count: int
    """How many times a consumer leased the event."""
    leased_by: str | None
    """The name of the key of the consumer that holds a lease of the event."""
    visible_at: Time | None
    """When the event can be leased: after its lease, the delay of a nack, or its `deliver_at`. Null means now."""
    payload_json: msgspec.Raw = msgspec.field(name="payload")
    """The bytes of the payload, exactly as accepted."""
    metadata_json: msgspec.Raw = msgspec.field(name="metadata")

    @property
    def payload(self) -> Any:
        """The payload, decoded."""
        return parsed(self.payload_json)

    @property
    def metadata(self) -> Any:
        """The metadata, decoded."""
        return parsed(self.metadata_json)


class InboxPage(CountedListing[InboxItem], frozen=True):
    """One page of the inbox."""

    events: tuple[InboxItem, ...]


class LeasedEvent(InboxItem, frozen=True):
    """An event that you hold until `visible_at`."""

    lease_token: int
    """Proves that your answer belongs to this lease."""


class Leased(Answer, frozen=True):
    """The leased events, oldest first; none if the inbox has no event that can be leased."""

    events: tuple[LeasedEvent, ...]


class Acknowledged(Answer, frozen=True):
    """The event was acknowledged by the consumer of the inbox."""

    event_id: UUID
    status: Literal["delivered"]


class Nacked(Answer, frozen=True):
    """The event was given back to the inbox."""

    event_id: UUID
    status: Literal["received"]


class InboxAnswered(Answer, frozen=True):
    """What became of one answer: `acknowledged` or `nacked`, or else why it was refused."""

    event_id: UUID
    result: Annotated[str, choice(*RESULTS)]
    refusal: str | None
    """The reason as a sentence; null if the answer was accepted."""


class InboxAnswers(Answer, frozen=True):
    """What became of each answer, in the order of the request."""

    events: tuple[InboxAnswered, ...]
