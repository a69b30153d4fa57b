"""Bulk operations: their selection and their progress."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias
from uuid import UUID

import msgspec

from doorstep.schemas.deliveries import LettersFilter, QueueFilter
from doorstep.schemas.events import Status
from doorstep.schemas.shape import Answer, EventTypePattern, Listing, OlderName, Reason, Request, Time, choice, stated

Rate: TypeAlias = Annotated[float, stated(minimum=0.01, maximum=100_000)]

# -- requests ----------------------------------------------------------------------------------------------------


class BulkIn(Request, frozen=True):
    """The selected deliveries: by id, by filter, or explicitly all."""

    delivery_ids: Annotated[tuple[UUID, ...], msgspec.Meta(min_length=1, max_length=1_000)] | None = None
    all: Annotated[bool, stated(const=True)] | None = None
    """Select everything in the list."""
    rate_per_second: Rate | None = None
    reason: Reason = ""
    preview: bool = False
    """Only count what would be selected, and do nothing."""


class BulkQueueIn(BulkIn, frozen=True):
    """Deliveries of the retry queue: by id, by filter, or explicitly all."""

    filter: QueueFilter | None = None


class BulkLettersIn(BulkIn, frozen=True):
    """Dead letters: by id, by filter, or explicitly all."""

    filter: LettersFilter | None = None


class BulkRetryIn(BulkLettersIn, frozen=True):
    """Dead letters to retry: by id, by filter, or explicitly all."""

    canary: bool = False
    """Retry one dead letter of each cause first. The other dead letters of a cause are retried only if the first one is
    delivered."""


class ReplayIn(Request, frozen=True):
    """The past events to send again."""

    since: Time | None = None
    """Events created at this time or later are sent again. Required, as is `until`."""
    until: Time | None = None
    """Only events created before this time."""
    created_from: OlderName | None = None
    """An older name of `since`."""
    created_before: OlderName | None = None
    """An older name of `until`."""
    event_type: EventTypePattern | None = None
    status: Status | None = None
    rate_per_second: Rate | None = None
    reason: Reason = ""
    preview: bool = False
    """Only count what would be selected, and do nothing."""


# -- answers -----------------------------------------------------------------------------------------------------


class Canary(Answer, frozen=True):
    """The dead letter that is retried first, to test whether its cause is resolved."""

    cause: str
    delivery_id: UUID
    succeeded: bool | None


class Bulk(Answer, frozen=True):
    """A bulk operation and its progress."""

    bulk_id: UUID
    kind: Annotated[str, choice("retry", "skip", "resolve", "delete", "replay")]
    state: Literal["running", "paused", "cancelled", "finished"]
    actor: str
    """The name of the key, or of the service or person, that started the operation."""
    actor_id: str
    """The visible prefix of the key; the same as `actor` if it was not a key."""
    reason: str
    created_at: Time
    updated_at: Time
    finished_at: Time | None
    endpoint_id: UUID | None
    """The endpoint to which a replay sends the events."""
    total: int
    total_is_floor: bool
    taken: int
    """The number of deliveries processed so far."""
    refused: int
    """The number of deliveries that were not processed, because their state had changed in the meantime."""
    succeeded: int
    failed: int
    in_flight: int
    rate_per_second: float | None
    canary: bool
    canaries: tuple[Canary, ...] | None
    note: str
    progress: str
    """The progress as text, such as `3/5 succeeded, 2 failed`."""

    @property
    def ended(self) -> bool:
        return self.state in ("cancelled", "finished")


class BulkPage(Listing[Bulk], frozen=True):
    """One page of the bulk operations."""

    bulk: tuple[Bulk, ...]


class EndpointCount(Answer, frozen=True):
    """How many of the selected deliveries go to one endpoint."""

    endpoint_id: UUID
    endpoint_name: str
    count: int


class Preview(Answer, frozen=True):
    """The number of deliveries or events that a bulk operation would process if it started now. Nothing was changed."""

    count: int
    count_is_floor: bool
    endpoints: tuple[EndpointCount, ...]
    """The counts by endpoint. If more than 10,000 deliveries are selected, only the first 10,000 are counted."""
