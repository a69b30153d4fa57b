"""Bulk operations: which deliveries or events they are about, and how far they have come."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias
from uuid import UUID

import msgspec

from doorstep.schemas.deliveries import LettersFilter, QueueFilter
from doorstep.schemas.events import Status
from doorstep.schemas.shape import Answer, EventTypePattern, Listing, Pagination, Reason, Request, Time, choice, told

Rate: TypeAlias = Annotated[float, told(minimum=0.01, maximum=100_000)]

# -- requests ----------------------------------------------------------------------------------------------------


class BulkIn(Request, frozen=True):
    """Which deliveries: those named, those that match a filter, or explicitly all."""

    delivery_ids: Annotated[tuple[UUID, ...], msgspec.Meta(min_length=1, max_length=1_000)] | None = None
    all: Annotated[bool, told(const=True)] | None = None
    """Everything in the list."""
    rate_per_second: Rate | None = None
    reason: Reason = ""
    preview: bool = False
    """Only count what it would be about, and do nothing."""


class BulkQueueIn(BulkIn, frozen=True):
    """Some of the retry queue: those named, those that match, or explicitly all."""

    filter: QueueFilter | None = None


class BulkLettersIn(BulkIn, frozen=True):
    """Some of the dead letters: those named, those that match, or explicitly all."""

    filter: LettersFilter | None = None


class BulkRetryIn(BulkLettersIn, frozen=True):
    """The same, for a retry."""

    canary: bool = False
    """Try one of each cause first, and go on with a cause only if its first one is delivered."""


class ReplayIn(Request, frozen=True):
    """Which events of the past are to be sent again."""

    created_from: Time
    created_before: Time
    event_type: EventTypePattern | None = None
    status: Status | None = None
    rate_per_second: Rate | None = None
    reason: Reason = ""
    preview: bool = False
    """Only count what it would be about, and do nothing."""


# -- answers -----------------------------------------------------------------------------------------------------


class Canary(Answer, frozen=True):
    """The delivery of a cause that is tried first."""

    cause: str
    delivery_id: UUID
    succeeded: bool | None


class Bulk(Answer, frozen=True):
    """A bulk operation and how far it has come."""

    bulk_id: UUID
    kind: Annotated[str, choice("retry", "skip", "resolve", "delete", "replay")]
    state: Literal["running", "paused", "cancelled", "finished"]
    actor: str
    reason: str
    created_at: Time
    updated_at: Time
    finished_at: Time | None
    endpoint_id: UUID | None
    """Of a replay: where to."""
    total: int
    total_is_floor: bool
    taken: int
    """Acted upon so far."""
    refused: int
    """Could not be acted upon, because their state had changed meanwhile."""
    succeeded: int
    failed: int
    in_flight: int
    rate_per_second: float | None
    canary: bool
    canaries: tuple[Canary, ...] | None
    note: str
    progress: str
    """`3/5 succeeded, 2 failed`."""

    @property
    def ended(self) -> bool:
        return self.state in ("cancelled", "finished")


class BulkPage(Listing[Bulk], frozen=True):
    """One page of the bulk operations."""

    bulk: tuple[Bulk, ...]
    pagination: Pagination


class EndpointCount(Answer, frozen=True):
    """How many of the selected deliveries go to one endpoint."""

    endpoint_id: UUID
    endpoint_name: str
    count: int


class Preview(Answer, frozen=True):
    """What a bulk operation would be about, were it started now; nothing was done."""

    count: int
    count_is_floor: bool
    endpoints: tuple[EndpointCount, ...]
    """Of the first 10,000 alone, if it is about more."""
