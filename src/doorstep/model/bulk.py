"""Bulk operations: one action on many deliveries, or the replay of many events. A service carries them out in steps."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import Instant
from doorstep.model.claim import Moved
from doorstep.model.delivery import DEAD_STATES, WAITING_STATES, Delivery, DeliveryState, States
from doorstep.model.listing import BoundedQuery, DeadLetterFilter, EventFilter, PagedQuery, RetryQueueFilter
from doorstep.model.record import Record

IN_FLIGHT_MAX = 1_000
"""The maximum number of deliveries that one operation may have in flight. One step therefore never checks more results
than this."""
IDS_MAX = IN_FLIGHT_MAX
"""The maximum number of deliveries that can be selected by id. All of them may be in flight at the same time."""
LIVE_MAX = 100
"""How many live operations one organization may have. The number is limited because each of them takes a step in every
round."""


class BulkKind(StrEnum):
    RETRY = "retry"
    SKIP = "skip"
    RESOLVE = "resolve"
    DELETE = "delete"
    REPLAY = "replay"
    """Send past events to an endpoint again."""


class BulkState(StrEnum):
    RUNNING = "running"
    PAUSED = "paused"
    CANCELLED = "cancelled"
    """Actions already taken are kept, no others are started, and the results of retries in flight are not awaited."""
    FINISHED = "finished"


class Selection(Record, frozen=True, kw_only=True):
    """The deliveries or events of a bulk operation. Exactly one of the first four fields is set."""

    delivery_ids: tuple[UUID, ...] | None = None
    letters: DeadLetterFilter | None = None
    queue: RetryQueueFilter | None = None
    events: EventFilter | None = None
    """REPLAY only."""
    states: States | None = None
    """For `delivery_ids`: the states of the deliveries in the list from which they were selected."""

    @property
    def only_in(self) -> States | None:
        """The states of the deliveries in the list from which the selection was made. Deliveries that have left these
        states are rejected."""
        if self.letters is not None:
            return DEAD_STATES
        return WAITING_STATES if self.queue is not None else self.states


class Canary(Record, frozen=True, kw_only=True):
    """Of all dead letters with the same cause, the one that is retried first. The others follow only if it is
    delivered."""

    cause: int
    delivery_id: UUID
    attempt: int
    """The number of the delivery's latest attempt before this retry."""
    succeeded: bool | None = None
    """None while it is in flight."""


class Bulk(Record, frozen=True, kw_only=True):
    bulk_id: UUID
    org_id: UUID
    kind: BulkKind
    selection: Selection
    actor: str
    reason: str = ""
    created_at: Instant
    state: BulkState = BulkState.RUNNING
    rate_per_second: float | None = None
    ready_at: Instant = 0
    """With a rate limit: when the next delivery may be processed. Stored because all processes share the limit."""
    endpoint_id: UUID | None = None
    """REPLAY: the endpoint to send to."""
    canary: bool = False
    canaries: tuple[Canary, ...] | None = None
    """None until the canaries have been chosen."""
    total: int = 0
    """The size of the selection when the operation began."""
    total_exact: bool = True
    cursor: str | None = None
    """The position in the selection."""
    causes_done: int = 0
    """With canaries, the selection is processed cause by cause. This is the number of causes that are done."""
    passed_over: bool = False
    """RETRY: this pass over the selection skipped some deliveries because their endpoint already had enough deliveries
    in flight. The next pass will process them."""
    all_taken: bool = False
    """The whole selection has been processed, and only results are still awaited."""
    taken: int = 0
    """The number of deliveries or events processed so far."""
    refused: int = 0
    """The number of deliveries that were rejected because their state had changed."""
    succeeded: int = 0
    """RETRY: the number of retried deliveries that succeeded. Other kinds: the same as `taken`."""
    failed: int = 0
    """RETRY: the number of retried deliveries that failed."""
    note: str = ""
    """Why the operation is in its current state, for operators."""
    updated_at: Instant = 0
    finished_at: Instant | None = None
    version: int = 0
    """Incremented by every write; a write names the version it was computed from."""

    def after(self, *, taken: int, refused: int, succeeded: int, failed: int, version: int) -> Bulk:
        """The operation after a step with these results. Actions other than retries succeed when they are taken."""
        return replace(
            self,
            taken=self.taken + taken,
            refused=self.refused + refused,
            succeeded=self.succeeded + (succeeded if self.kind is BulkKind.RETRY else taken),
            failed=self.failed + failed,
            version=version,
        )

    @property
    def in_flight(self) -> int:
        """The number of retried deliveries without a result."""
        return self.taken - self.succeeded - self.failed

    @property
    def ended(self) -> int:
        """How many deliveries of the selection have a result."""
        return min(self.total, self.succeeded + self.failed + self.refused)

    @property
    def remaining_causes(self) -> tuple[int, ...] | None:
        """The causes still to be processed, among those whose canary was delivered; None if the operation has no
        canaries."""
        if self.canaries is None:
            return None
        return tuple(one.cause for one in self.canaries if one.succeeded)[self.causes_done :]

    @property
    def live(self) -> bool:
        """Whether a service still has work to do on it: it is running, is waiting for results, or has ended but its end
        is not recorded yet."""
        return self.finished_at is None and (self.state is not BulkState.PAUSED or self.in_flight > 0)

    @property
    def progress(self) -> str:
        """The progress as text, such as `3/5 succeeded, 2 failed`."""
        return f"{self.succeeded}/{self.total} succeeded, {self.failed} failed"


def retry_succeeded(state: DeliveryState | None, attempt: int, attempt_before: int) -> bool | None:
    """Whether a retry succeeded; None while it is in flight. The delivery had made `attempt_before` attempts before the
    retry.

    If the delivery no longer exists, it was delivered and then removed by retention. If an operator ended it without an
    attempt, it counts as failed.
    """
    if state is None or state is DeliveryState.DELIVERED:
        return True
    if state is DeliveryState.IN_PROGRESS or (state is DeliveryState.PENDING and attempt == attempt_before):
        return None
    return False


class InFlightRetry(Record, frozen=True):
    """A delivery that a bulk operation retried and that has no result yet."""

    delivery_id: UUID
    endpoint_id: UUID
    waiting: bool
    """True while its attempt has not started."""


class BulkStep(Record, frozen=True):
    """The result of one step: the operation as stored, and the deliveries it moved."""

    bulk: Bulk
    moved: Moved = Moved()


class BulkFilter(PagedQuery[Bulk], frozen=True, kw_only=True):
    """Bulk operations, newest first."""


class LiveBulks(BoundedQuery[Bulk], frozen=True, kw_only=True):
    """All bulk operations, in any organization, that are running or await results, oldest first."""


class BulkInFlight(BoundedQuery[InFlightRetry], frozen=True, kw_only=True):
    """The retries of a bulk operation that have no result yet, up to IN_FLIGHT_MAX."""

    bulk_id: UUID


class BulkFailures(PagedQuery[Delivery], frozen=True, kw_only=True):
    """Deliveries that a bulk operation retried without success, oldest first."""

    bulk_id: UUID


class BulkResults(PagedQuery[Delivery], frozen=True, kw_only=True):
    """Retries that ended since the last step, which the next step will add to `succeeded` and `failed`. This query
    can only be counted, not paged."""

    bulk_id: UUID
