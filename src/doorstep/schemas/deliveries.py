"""Deliveries, their attempts and history, the retry queue, dead letters and their causes."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from doorstep.schemas.shape import (
    Answer,
    CountedListing,
    Cursor,
    EventTypePattern,
    Limit,
    Listing,
    ListQuery,
    OlderName,
    Reason,
    Request,
    Time,
    choice,
    stated,
)

DeliveryStateName: TypeAlias = Annotated[
    str, choice("pending", "in_progress", "delivered", "dead", "resolved", "archived", "cancelled")
]
Cause: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[0-7][0-9a-f]{15}$")]
"""The id of a cause of dead letters, in hexadecimal. The first digit is at most 7, to fit into a database column."""
DeliveryStateFilter: TypeAlias = Literal[
    "pending", "in_progress", "delivered", "dead", "resolved", "archived", "cancelled"
]
AttemptResult: TypeAlias = Literal["succeeded", "failed"]
ErrorCode: TypeAlias = Annotated[str, msgspec.Meta(max_length=200)]
QueueStatus: TypeAlias = Literal["pending", "in_progress"]
DeadStatus: TypeAlias = Literal["dead", "archived"]
Age: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=10**9)]

# -- requests ----------------------------------------------------------------------------------------------------


class DeliveriesQuery(ListQuery, frozen=True, kw_only=True):
    """Filters of the deliveries."""

    endpoint_id: UUID | None = None
    state: DeliveryStateFilter | None = None
    event_type: EventTypePattern | None = None
    error_code: ErrorCode | None = None
    """The error code of the last attempt."""
    since: Time | None = None
    """Only deliveries created at this time or later."""
    until: Time | None = None
    """Only deliveries created before this time."""


class AttemptsQuery(ListQuery, frozen=True, kw_only=True):
    """Filters of the attempts."""

    endpoint_id: UUID | None = None
    state: AttemptResult | None = None
    event_type: EventTypePattern | None = None
    error_code: ErrorCode | None = None
    since: Time | None = None
    """Only attempts that started at this time or later."""
    until: Time | None = None
    """Only attempts that started before this time."""


class QueueFilter(Request, frozen=True, kw_only=True):
    """Filters of the retry queue."""

    status: QueueStatus | None = None
    event_type: EventTypePattern | None = None
    endpoint_id: UUID | None = None
    older_than_seconds: Age | None = None
    """Only deliveries whose first failure is longer ago than this."""


class LettersFilter(Request, frozen=True, kw_only=True):
    """Filters of the dead letters."""

    status: Annotated[DeadStatus, stated(default="dead")] | UnsetType = UNSET
    """The default is unset, not `dead`, because bulk operations also use this filter and reject an empty one."""
    event_type: EventTypePattern | None = None
    endpoint_id: UUID | None = None
    cause: Cause | None = None
    since: Time | None = None
    """Only deliveries that became dead letters at this time or later."""
    until: Time | None = None
    """Only deliveries that became dead letters before this time."""
    died_from: OlderName | None = None
    """An older name of `since`."""
    died_before: OlderName | None = None
    """An older name of `until`."""


class QueueQuery(QueueFilter, frozen=True, kw_only=True):
    """The filters and paging parameters of the retry queue."""

    limit: Limit = 50
    cursor: Cursor | None = None


class LettersQuery(LettersFilter, frozen=True, kw_only=True):
    """The filters and paging parameters of the dead letters."""

    limit: Limit = 50
    cursor: Cursor | None = None


class LetterRetryIn(Request, frozen=True):
    """A retry of a dead letter. If a payload is given, this delivery uses it from now on instead of the event's
    payload."""

    reason: Reason = ""
    payload: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b""))


# -- answers -----------------------------------------------------------------------------------------------------


class Held(Answer, frozen=True):
    """Why something is not attempted although it is due or will be, and until when."""

    reason: str
    """A sentence, such as `The endpoint is paused: maintenance`."""
    until: Time | None
    """The time of the next probe if the circuit is open. Null if the end is unknown: the endpoint is paused or disabled,
    the policy is `manual`, or an earlier event has the same ordering key."""


class Delivery(Answer, frozen=True):
    """The delivery of one event to one endpoint."""

    delivery_id: UUID
    event_id: UUID
    endpoint_id: UUID
    event_type: str
    state: DeliveryStateName
    attempts: int
    retry_attempts: int
    retries_max: int
    created_at: Time
    due_at: Time | None
    next_retry_at: Time | None
    """When it will really be retried: later while the circuit is open, null while it is held without an end."""
    last_attempt_at: Time | None
    settled_at: Time | None
    response_code: int | None
    error_category: str | None
    error_code: str | None
    edited: bool
    """Whether an operator edited the payload. The edited payload is delivered instead of the event's."""
    remark: str | None
    """A sentence about the delivery's state, or about how it ended."""
    held: Held | None
    """Why the delivery is not attempted although it may be due; null if it is not held."""


class QueuedDelivery(Delivery, frozen=True):
    """A delivery in a list, with a summary of its last failure."""

    endpoint_name: str
    error: str | None
    """The code of the last failure."""
    error_reason: str | None
    """The reason for the last failure, as a sentence."""
    retry_count: str
    """The number of retries used and the maximum, such as `1 / 3`."""
    first_failed_at: Time | None


class DeadLetter(QueuedDelivery, frozen=True):
    """A delivery that failed permanently or has no retries left."""

    cause: str | None
    """The id of the cause. Dead letters of one cause have the same endpoint, code and (normalised) message."""


class DeliveryPage(Listing[QueuedDelivery], frozen=True):
    """One page of the deliveries."""

    deliveries: tuple[QueuedDelivery, ...]


class RetryQueuePage(CountedListing[QueuedDelivery], frozen=True):
    """One page of the retry queue."""

    deliveries: tuple[QueuedDelivery, ...]


class FailurePage(Listing[QueuedDelivery], frozen=True):
    """One page of the deliveries that failed again after a bulk retry."""

    deliveries: tuple[QueuedDelivery, ...]


class DeadLetterPage(CountedListing[DeadLetter], frozen=True):
    """One page of the dead letters."""

    dead_letters: tuple[DeadLetter, ...]


class CauseGroup(Answer, frozen=True):
    """Dead letters of one cause: same endpoint, same code, same message except for numbers and names."""

    cause: str
    endpoint_id: UUID
    endpoint_name: str
    error_code: str
    error_reason: str
    count: int
    count_is_floor: bool
    first_died_at: Time
    last_died_at: Time
    sample_delivery_id: UUID


class CauseGroupPage(Listing[CauseGroup], frozen=True):
    """One page of the causes of dead letters."""

    groups: tuple[CauseGroup, ...]


class Attempt(Answer, frozen=True):
    """One attempt. The request body is not stored: it was the payload, in an envelope if the endpoint uses one."""

    delivery_id: UUID
    number: int
    started_at: Time
    finished_at: Time
    duration_ms: float
    dns_ms: float
    connect_ms: float
    tls_ms: float
    first_byte_ms: float
    request_headers: str
    response_code: int | None
    response_headers: str
    response_body: str
    error_category: str | None
    error_code: str | None
    error_reason: str
    error_detail: str
    worker: str
    next_retry_at: Time | None
    late: bool


class AttemptPage(CountedListing[Attempt], frozen=True):
    """The attempt log of a delivery."""

    attempts: tuple[Attempt, ...]


class AttemptItem(Answer, frozen=True):
    """An attempt in a list. The attempt log of its delivery has the request and the response."""

    delivery_id: UUID
    event_id: UUID
    endpoint_id: UUID
    endpoint_name: str
    event_type: str
    number: int
    started_at: Time
    finished_at: Time
    duration_ms: float
    response_code: int | None
    error_category: str | None
    error_code: str | None
    error_reason: str
    worker: str
    next_retry_at: Time | None
    late: bool


class AttemptListPage(Listing[AttemptItem], frozen=True):
    """One page of the attempts."""

    attempts: tuple[AttemptItem, ...]


class PastHold(Answer, frozen=True):
    """A period in which a delivery was due, but held."""

    since: Time
    until: Time
    reason: str
    """A sentence, such as `The endpoint was paused (maintenance).`"""


class Transition(Answer, frozen=True):
    """One change of a delivery's state. The first change is the acceptance of the delivery, which has no old state."""

    at: Time
    old_state: DeliveryStateName | None
    new_state: DeliveryStateName
    attempt: int
    note: str
    holds: tuple[PastHold, ...]
    """What held the delivery back before this change, although it was due."""


class HistoryPage(CountedListing[Transition], frozen=True):
    """Every change of a delivery's state."""

    history: tuple[Transition, ...]
