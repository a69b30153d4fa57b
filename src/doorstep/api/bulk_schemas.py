"""The shapes of bulk operations: what they are about, and how far they have come."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from pydantic import Field

from doorstep.api.delivery_items import LettersFilter, QueueFilter, hexadecimal
from doorstep.api.event_items import StatusName
from doorstep.api.limits import BulkRate
from doorstep.api.schemas import Id, Moment, Pagination, Reason, Shape, Timestamp, iso
from doorstep.clock import Clock, to_iso
from doorstep.errors import InvalidInput
from doorstep.model.bulk import Bulk, Canary, Selection
from doorstep.model.delivery import DEAD_STATES, WAITING_STATES
from doorstep.model.event import EventStatus
from doorstep.model.listing import EventFilter, Letters, Queue
from doorstep.path.bulk import Preview

EXPLICIT = 'name what it is about: "delivery_ids", a "filter" with at least one field, or "all": true; exactly one'


class _BulkIn(Shape):
    delivery_ids: list[Id] | None = Field(None, min_length=1, max_length=1_000)
    all: Literal[True] | None = None
    """Everything in the list."""
    rate_per_second: BulkRate | None = None
    reason: Reason = ""
    preview: bool = False
    """Only count what it would be about, and do nothing."""

    def _chosen(self, filter_given: bool) -> tuple[UUID, ...] | None:
        """The ids, where there are ids. Emptiness is dangerous: nobody retries everything by leaving something out."""
        ways = (self.delivery_ids is not None, filter_given, self.all is not None)
        if sum(ways) != 1:
            raise InvalidInput("body", EXPLICIT)
        return None if self.delivery_ids is None else tuple(self.delivery_ids)


class BulkQueueIn(_BulkIn):
    """Some of the retry queue: those named, those that match, or explicitly all."""

    filter: QueueFilter | None = None

    def selection(self, clock: Clock) -> Selection:
        chosen = self._chosen(_says_something(self.filter))
        if chosen is not None:
            return Selection(delivery_ids=chosen, states=WAITING_STATES)
        return Selection(queue=Queue() if self.filter is None else self.filter.queue(clock))


class BulkLettersIn(_BulkIn):
    """Some of the dead letters: those named, those that match, or explicitly all."""

    filter: LettersFilter | None = None

    def selection(self) -> Selection:
        chosen = self._chosen(_says_something(self.filter))
        if chosen is not None:
            return Selection(delivery_ids=chosen, states=DEAD_STATES)
        return Selection(letters=Letters() if self.filter is None else self.filter.letters())


class BulkRetryIn(BulkLettersIn):
    canary: bool = False
    """Try one of each cause first, and go on with a cause only if its first one is delivered."""


class ReplayIn(Shape):
    """Which events of the past are to be sent again."""

    created_from: Moment
    created_before: Moment
    event_type: str | None = Field(None, max_length=200)
    status: StatusName | None = None
    rate_per_second: BulkRate | None = None
    reason: Reason = ""
    preview: bool = False
    """Only count what it would be about, and do nothing."""

    def selection(self) -> Selection:
        if self.created_before <= self.created_from:
            raise InvalidInput("created_before", "must be later than created_from")
        return Selection(
            events=EventFilter(
                status=None if self.status is None else EventStatus(self.status),
                event_type=self.event_type,
                created_from=self.created_from,
                created_before=self.created_before,
            )
        )


class CanaryOut(Shape):
    cause: str
    delivery_id: UUID
    succeeded: bool | None

    @classmethod
    def of(cls, canary: Canary) -> CanaryOut:
        return cls(cause=hexadecimal(canary.cause), delivery_id=canary.delivery_id, succeeded=canary.succeeded)


class BulkOut(Shape):
    """A bulk operation and how far it has come."""

    bulk_id: UUID
    kind: Literal["retry", "skip", "resolve", "delete", "replay"]
    state: Literal["running", "paused", "cancelled", "finished"]
    actor: str
    reason: str
    created_at: Timestamp
    updated_at: Timestamp
    finished_at: Timestamp | None
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
    canaries: list[CanaryOut] | None
    note: str
    progress: str

    @classmethod
    def of(cls, bulk: Bulk) -> BulkOut:
        return cls(
            bulk_id=bulk.bulk_id,
            kind=bulk.kind.value,
            state=bulk.state.value,
            actor=bulk.actor,
            reason=bulk.reason,
            created_at=to_iso(bulk.created_at),
            updated_at=to_iso(bulk.updated_at),
            finished_at=iso(bulk.finished_at),
            endpoint_id=bulk.endpoint_id,
            total=bulk.total,
            total_is_floor=not bulk.total_exact,
            taken=bulk.taken,
            refused=bulk.refused,
            succeeded=bulk.succeeded,
            failed=bulk.failed,
            in_flight=bulk.in_flight,
            rate_per_second=bulk.rate_per_second,
            canary=bulk.canary,
            canaries=None if bulk.canaries is None else [CanaryOut.of(one) for one in bulk.canaries],
            note=bulk.note,
            progress=bulk.progress,
        )


class BulksOut(Shape):
    bulk: list[BulkOut]
    pagination: Pagination


class EndpointShare(Shape):
    endpoint_id: UUID
    endpoint_name: str
    count: int


class PreviewOut(Shape):
    """What it would be about, were it started now; nothing was done."""

    count: int
    count_is_floor: bool
    endpoints: list[EndpointShare]
    """Of the first 10,000 alone, if it is about more."""

    @classmethod
    def of(cls, preview: Preview, names: dict[UUID, str]) -> PreviewOut:
        shares = [
            EndpointShare(endpoint_id=endpoint_id, endpoint_name=names[endpoint_id], count=count)
            for endpoint_id, count in preview.by_endpoint.items()
        ]
        return cls(count=preview.count.value, count_is_floor=not preview.count.exact, endpoints=shares)


def _says_something(chosen: Shape | None) -> bool:
    return chosen is not None and bool(chosen.model_fields_set)
