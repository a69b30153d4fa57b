"""A bulk operation: one act on many deliveries, or the replay of many events, done bit by bit by a service."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import Instant
from doorstep.model.claim import Moved
from doorstep.model.delivery import DEAD_STATES, WAITING_STATES, DeliveryState, States
from doorstep.model.listing import DeadLetterFilter, EventFilter, RetryQueueFilter
from doorstep.model.record import Record

UNDER_WAY_MAX = 1_000
"""How many deliveries of one operation may be taken and without result, and so how many results a step looks for."""
IDS_MAX = UNDER_WAY_MAX
"""How many deliveries can be named one by one: so few that all of them can be under way at once."""


class BulkKind(StrEnum):
    RETRY = "retry"
    SKIP = "skip"
    RESOLVE = "resolve"
    DELETE = "delete"
    REPLAY = "replay"
    """Send events of the past to an endpoint again."""


class BulkState(StrEnum):
    RUNNING = "running"
    PAUSED = "paused"
    CANCELLED = "cancelled"
    """What was done stays done; what was not begun is not; and what comes of what was taken is not waited for."""
    FINISHED = "finished"


class Selection(Record, frozen=True, kw_only=True):
    """What a bulk operation is about: exactly one of the first four."""

    delivery_ids: tuple[UUID, ...] | None = None
    letters: DeadLetterFilter | None = None
    queue: RetryQueueFilter | None = None
    events: EventFilter | None = None
    """REPLAY only."""
    states: States | None = None
    """Of `delivery_ids`: the states of the list that they were chosen in."""

    @property
    def only_in(self) -> States | None:
        """The states of the list that it was chosen in: what has left them meanwhile is not what was meant."""
        if self.letters is not None:
            return DEAD_STATES
        return WAITING_STATES if self.queue is not None else self.states


class Canary(Record, frozen=True, kw_only=True):
    """One letter of each cause goes first; the rest of its cause follows only if it is delivered."""

    cause: int
    delivery_id: UUID
    attempt: int
    """The delivery's latest attempt when it was sent ahead."""
    succeeded: bool | None = None
    """None while it is under way."""


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
    """With a rate: when the next one may be taken. Kept here, because the rate is of all processes together."""
    endpoint_id: UUID | None = None
    """REPLAY: where to."""
    canary: bool = False
    canaries: tuple[Canary, ...] | None = None
    """None until they have been chosen."""
    total: int = 0
    """How many it was about when it began."""
    total_exact: bool = True
    cursor: str | None = None
    """How far the selection has been gone through."""
    causes_done: int = 0
    """With canaries the selection is gone through cause by cause."""
    passed_over: bool = False
    """RETRY: on this walk through the selection something was left for the next one, because its endpoint had enough."""
    all_taken: bool = False
    """The selection has been gone through; what is left is to wait for results."""
    taken: int = 0
    """Acted upon so far."""
    refused: int = 0
    """Could not be acted upon, because their state had changed meanwhile."""
    succeeded: int = 0
    """RETRY: delivered since. Other kinds: the same as taken."""
    failed: int = 0
    """RETRY: tried since, and failed."""
    note: str = ""
    """Why it stands as it does, for people."""
    updated_at: Instant = 0
    finished_at: Instant | None = None
    version: int = 0
    """Grows with every write; a write names the version it was computed from."""

    def after(self, *, taken: int, refused: int, succeeded: int, failed: int, version: int) -> Bulk:
        """The operation after a step that did so much more. What is not retried has ended well once it is taken."""
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
        """Taken, and not known yet how it ended."""
        return self.taken - self.succeeded - self.failed

    @property
    def ended(self) -> int:
        """How many of those that it was about have come to their end."""
        return min(self.total, self.succeeded + self.failed + self.refused)

    @property
    def good_causes(self) -> tuple[int, ...] | None:
        """The causes that are still to be gone through, because their canary was delivered; None without canaries."""
        if self.canaries is None:
            return None
        return tuple(one.cause for one in self.canaries if one.succeeded)[self.causes_done :]

    @property
    def live(self) -> bool:
        """A service must look at it: it goes on, or results are still to come, or its end is still to be written."""
        return self.finished_at is None and (self.state is not BulkState.PAUSED or self.in_flight > 0)

    @property
    def progress(self) -> str:
        """`3/5 succeeded, 2 failed`."""
        return f"{self.succeeded}/{self.total} succeeded, {self.failed} failed"


def retried_well(state: DeliveryState | None, attempt: int, attempt_before: int) -> bool | None:
    """How the retry of a delivery ended that had `attempt_before` attempts; None while it is under way.

    One that is not there any more was delivered so long ago that it has been cleaned away. One that someone
    else ended without a try counts as failed.
    """
    if state is None or state is DeliveryState.DELIVERED:
        return True
    if state is DeliveryState.IN_PROGRESS or (state is DeliveryState.PENDING and attempt == attempt_before):
        return None
    return False


class UnderWay(Record, frozen=True):
    """A delivery that a bulk retry has taken and whose result is not there yet."""

    delivery_id: UUID
    endpoint_id: UUID
    waiting: bool
    """It is not being tried yet."""


class BulkStep(Record, frozen=True):
    """What one write of a bulk operation did: the operation as it stands now, and the deliveries it moved."""

    bulk: Bulk
    moved: Moved = Moved()
