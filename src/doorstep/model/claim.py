"""Claims, and what is written when they end: settlements, and moves by operators and services."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.attempt import Outcome
from doorstep.model.circuit import Circuit, CircuitState
from doorstep.model.delivery import DeliveryState
from doorstep.model.event import EventStatus, owed_since
from doorstep.model.record import Record


class Lane(Record, frozen=True):
    """The waiting deliveries of one endpoint, as seen before claiming: when the first is due."""

    endpoint_id: UUID
    due_at: Instant
    circuit: Circuit | None = None
    """None while the circuit is closed and nothing has failed: the usual case, which has no row."""

    @property
    def is_barred(self) -> bool:
        """Its circuit lets nothing through but a probe: nobody is late for what waits behind that."""
        return self.circuit is not None and self.circuit.state is not CircuitState.CLOSED


class Quota(Record, frozen=True):
    """How many deliveries of one endpoint a worker may claim now.

    `concurrency_max` and `rate_per_second` are the endpoint's own limits over all workers; the store applies
    them inside the claim, because only there two workers cannot both see the last free place. `bytes_max` bounds the
    payloads taken by this claim: it ends with the delivery that uses them up, so that a long one is never stuck.
    """

    endpoint_id: UUID
    count: int
    concurrency_max: int | None = None
    rate_per_second: float | None = None
    bytes_max: int | None = None


class Claim(NamedTuple):
    """A named tuple, not a struct: stores make it straight from a row, and dispatch makes one per delivery."""

    key: object
    """The store's own handle for the row."""
    event_key: object
    token: int
    """Grows with every claim of the delivery; only the newest can settle."""
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
    """This claim took the event from received to queued."""
    ordering_key: str | None = None
    """Others may wait for this one to end."""
    metadata: bytes = b"{}"
    """What the sender said about the event, as JSON; handlers are given it."""
    trace: str | None = None
    """The trace that the event is part of; see Event."""
    deliver_at: Instant | None = None
    """When its sender wanted it to be tried first, if not at once."""
    last_code: str | None = None
    """How the try before this one failed; known only of claims whose lease has ended."""

    @property
    def correlation_line(self) -> str:
        """The header that ties a try to the request that sent the event: the row of every attempt has it."""
        return f"x-correlation-id: {self.correlation_id}"

    @property
    def revived(self) -> bool:
        """A person took it up again after its end: more tries were made than those that count against its policy."""
        return self.attempt - 1 > self.retry_attempts

    @property
    def owed_at(self) -> Instant:
        """Since when its receiver has been waiting for it."""
        return owed_since(self.accepted_at, self.deliver_at)


class Settlement(Record, frozen=True):
    """Made only by the named constructors, so that no impossible combination can be written."""

    claim: Claim
    outcome: Outcome
    state: DeliveryState
    due_at: Instant | None
    retries_max: int

    @classmethod
    def delivered(cls, claim: Claim, outcome: Outcome) -> Settlement:
        return cls(claim, outcome, DeliveryState.DELIVERED, None, claim.retries_max)

    @classmethod
    def retry(cls, claim: Claim, outcome: Outcome, due_at: Instant, retries_max: int) -> Settlement:
        return cls(claim, outcome, DeliveryState.PENDING, due_at, retries_max)

    @classmethod
    def dead(cls, claim: Claim, outcome: Outcome) -> Settlement:
        return cls(claim, outcome, DeliveryState.DEAD, None, claim.retries_max)


class StatusChange(Record, frozen=True):
    """An event whose status was changed by a write."""

    event_id: UUID
    org_id: UUID
    correlation_id: str
    old_status: EventStatus | None
    new_status: EventStatus
    retry_attempts: int = 0


class Settled(Record, frozen=True):
    """What a settle call wrote: which claims came too late, and which events changed their status."""

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
    """What one write did to deliveries, and which events changed their status with them."""

    moves: tuple[Move, ...] = ()
    changes: tuple[StatusChange, ...] = ()

    @property
    def delivery_ids(self) -> tuple[UUID, ...]:
        return tuple(move.delivery_id for move in self.moves)
