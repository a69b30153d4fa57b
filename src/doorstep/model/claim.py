"""Claims, their settlements, state changes made by operators and services, and the entries of workers."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from doorstep.clock import DAY, SECOND, Instant
from doorstep.model.attempt import Outcome
from doorstep.model.delivery import DeliveryState, NewDelivery
from doorstep.model.endpoint import Circuit, CircuitState
from doorstep.model.event import Event, EventStatus, owed_since
from doorstep.model.record import Record


class Lane(Record, frozen=True):
    """The queue of one endpoint's waiting deliveries: when the first one is due, and the endpoint's circuit."""

    endpoint_id: UUID
    org_id: UUID
    due_at: Instant
    circuit: Circuit | None = None
    """None if the circuit is closed without failures. This is the usual case, for which no row is stored."""
    recoverable_at: Instant | None = None
    """Of the deliveries that wait for a recovery (`Settlement.on_recovery`), the time of the least recent last attempt.
    It is read only if the circuit has ever opened."""

    @property
    def is_barred(self) -> bool:
        """Whether the endpoint's circuit allows at most a probe. If so, the waiting deliveries do not count as late."""
        return self.circuit is not None and self.circuit.state is not CircuitState.CLOSED


class Quota(Record, frozen=True):
    """How many deliveries of one endpoint a worker may claim now.

    `concurrency_max` and `rate_per_second` are the limits of the endpoint across all workers. The store applies them
    inside the claim; otherwise, two workers could both take the last free slot. `bytes_max` limits the total size of
    the payloads. The delivery that reaches this limit is still claimed, as the last one, so that a large payload never
    gets stuck. The last three fields select the deliveries.
    """

    endpoint_id: UUID
    count: int
    concurrency_max: int | None = None
    rate_per_second: float | None = None
    bytes_max: int | None = None
    due_after: Instant = -1
    """Only deliveries due after this instant."""
    due_until: Instant | None = None
    """Only deliveries due until this instant. The default is the time of the claim; a later instant means the same."""
    attempted_before: Instant | None = None
    """Instead of due deliveries, those that wait for a recovery, due or not, whose last attempt was before this instant.
    The one with the least recent attempt comes first."""


class Lease(NamedTuple):
    """Who claims deliveries, and until when."""

    until: Instant
    worker: str


class Claim(NamedTuple):
    """A delivery that one worker may attempt, under a lease. It is a named tuple because stores create it directly from
    a row."""

    key: object
    """The store's own reference to the row."""
    event_key: object
    token: int
    """Increases with every claim of the delivery; only the newest claim can settle it."""
    delivery_id: UUID
    event_id: UUID
    endpoint_id: UUID
    org_id: UUID
    event_type: str
    payload: bytes
    correlation_id: str
    accepted_at: Instant
    expires_at: Instant | None
    attempt: int
    retry_attempts: int
    retries_max: int
    first_failed_at: Instant | None
    claimed_at: Instant
    lease_until: Instant
    worker: str
    picked_up: bool
    """This claim changed the status of the event from received to queued."""
    ordering_key: str | None = None
    """Later deliveries of this ordering group wait for this one."""
    metadata: bytes = b"{}"
    """The metadata of the event as JSON, for handlers."""
    trace: str | None = None
    """The trace of the event; see Event."""
    deliver_at: Instant | None = None
    """The earliest time of the first attempt, if the sender set one."""
    last_code: str | None = None
    """The code of the previous failure. It is read only for claims whose lease has expired."""
    was_due_at: Instant | None = None
    """When it was due. None for forced claims and for claims whose lease has expired."""
    uncounted: int = 0
    """How many attempts of the current round used up no retry."""
    user_id: str | None = None
    """The user who owns the event; see EventContent."""
    probe: bool = False
    """Whether the attempt is the probe of an open circuit. Stores do not set this."""

    @property
    def early(self) -> bool:
        """Whether it was claimed before it was due."""
        return self.was_due_at is not None and self.was_due_at > self.claimed_at

    @property
    def correlation_line(self) -> str:
        """The header that links an attempt to the request that sent the event. Every row of the attempt log has it."""
        return f"x-correlation-id: {self.correlation_id}"

    @property
    def revived(self) -> bool:
        """Whether an operator retried it after it had become a dead letter: it then has earlier attempts that do not
        belong to its current round."""
        return self.attempt - 1 > self.retry_attempts + self.uncounted

    @property
    def owed_at(self) -> Instant:
        """The time from which it should be delivered; see `owed_since`."""
        return owed_since(self.accepted_at, self.deliver_at)


def claim_of_new(
    key: object, event_key: object, event: Event, delivery: NewDelivery, lease: Lease, now: Instant, *, picked_up: bool
) -> Claim:
    """The claim of a delivery that is claimed in the transaction that accepts it."""
    return Claim(
        key=key,
        event_key=event_key,
        token=1,
        delivery_id=delivery.delivery_id,
        event_id=event.event_id,
        endpoint_id=delivery.endpoint_id,
        org_id=event.org_id,
        event_type=event.event_type,
        payload=event.payload,
        correlation_id=event.correlation_id,
        accepted_at=event.created_at,
        expires_at=event.expires_at,
        attempt=1,
        retry_attempts=0,
        retries_max=delivery.retries_max,
        first_failed_at=None,
        claimed_at=now,
        lease_until=lease.until,
        worker=lease.worker,
        picked_up=picked_up,
        metadata=event.metadata,
        trace=event.trace,
        deliver_at=event.deliver_at,
        was_due_at=delivery.due_at,
        user_id=event.user_id,
    )


class Settlement(Record, frozen=True):
    """The result of an attempt, as it is written. Use the named constructors, which prevent invalid combinations."""

    claim: Claim
    outcome: Outcome
    state: DeliveryState
    due_at: Instant | None
    retries_max: int
    on_recovery: bool = False
    """Whether the delivery waits for a recovery: it may then be claimed before it is due (`Quota.attempted_before`)."""
    counted: bool = True
    """Whether the attempt uses up a retry."""

    @classmethod
    def delivered(cls, claim: Claim, outcome: Outcome) -> Settlement:
        return cls(claim, outcome, DeliveryState.DELIVERED, None, claim.retries_max)

    @classmethod
    def retry(
        cls, claim: Claim, outcome: Outcome, due_at: Instant, retries_max: int, on_recovery: bool = False
    ) -> Settlement:
        return cls(claim, outcome, DeliveryState.PENDING, due_at, retries_max, on_recovery)

    @classmethod
    def restored(cls, claim: Claim, outcome: Outcome, due_at: Instant) -> Settlement:
        """The delivery is due again when it was due before, and the attempt uses up no retry."""
        return cls(claim, outcome, DeliveryState.PENDING, due_at, claim.retries_max, on_recovery=True, counted=False)

    @classmethod
    def held(cls, claim: Claim, outcome: Outcome, retries_max: int) -> Settlement:
        """The delivery has no due time until an operator acts."""
        return cls(claim, outcome, DeliveryState.PENDING, None, retries_max)

    @classmethod
    def dead(cls, claim: Claim, outcome: Outcome) -> Settlement:
        return cls(claim, outcome, DeliveryState.DEAD, None, claim.retries_max)


class StatusChange(Record, frozen=True):
    """A change of an event's status, made by a write."""

    event_id: UUID
    org_id: UUID
    correlation_id: str
    old_status: EventStatus | None
    new_status: EventStatus
    retry_attempts: int = 0
    user_id: str | None = None


class Settled(Record, frozen=True):
    """The result of a settle call: claims that were too late, and events whose status changed."""

    late: tuple[Claim, ...] = ()
    changes: tuple[StatusChange, ...] = ()


class Move(Record, frozen=True, kw_only=True):
    delivery_id: UUID
    event_id: UUID
    endpoint_id: UUID
    org_id: UUID
    correlation_id: str
    old_state: DeliveryState
    new_state: DeliveryState
    attempt: int


class Moved(Record, frozen=True):
    """The deliveries that one write moved to another state, and the events whose status changed with them."""

    moves: tuple[Move, ...] = ()
    changes: tuple[StatusChange, ...] = ()

    @property
    def delivery_ids(self) -> tuple[UUID, ...]:
        return tuple(move.delivery_id for move in self.moves)


HEARTBEAT_SECONDS = 10.0
"""The interval of heartbeats."""
LOST_AFTER: Instant = 35 * SECOND
"""A worker that missed three heartbeats counts as lost: it was killed, or cannot reach the store."""
LOST_KEPT: Instant = DAY
"""How long the entry of a lost worker is kept."""


class WorkerEntry(Record, frozen=True, kw_only=True):
    """The entry of a running worker. It is removed when the worker stops, or a day after the worker was lost."""

    name: str
    """The name used in leases, attempts and logs. A process gets a new name each time it starts."""
    host: str
    pid: int
    version: str
    started_at: Instant
    seen_at: Instant
    places: int
    """The maximum number of concurrent attempts."""
    places_in_use: int = 0
    handlers: tuple[str, ...] = ()
    """The Python handlers that the worker can run. URLs are not listed: every worker can deliver to all of them."""
    tasks: tuple[str, ...] = ()
    """Some tasks are run by only one process at a time (`Task` in stores/store.py); these are the ones that this worker
    ran recently."""

    def is_lost(self, now: Instant) -> bool:
        return now - self.seen_at > LOST_AFTER
