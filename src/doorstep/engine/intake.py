"""Claims deliveries for this worker in the transaction that accepts them, while it has free slots.

This saves a transaction, and most of the cost of a single event. Such a claim has a lease and a token like any other,
and its attempt is counted. If the process dies before the attempt has started, the lease ends, and another worker
takes over. Only deliveries that no other rule concerns are claimed here: due now, without an ordering key, to an active
endpoint with a healthy circuit, without limits that all workers share, and without a backlog. All others are claimed
from the store (claim.py), which shares the slots fairly when there is more work than capacity.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import Instant, seconds
from doorstep.engine.buffer import ClaimBuffer
from doorstep.engine.capacity import Capacity
from doorstep.engine.claim import Claimer
from doorstep.engine.directory import Tuning
from doorstep.engine.settle import Settler
from doorstep.model.claim import Claim, Lease
from doorstep.model.delivery import NewDelivery
from doorstep.model.event import Event
from doorstep.policy.fairness import may_grow


class _Slots:
    """The slots of one endpoint, including those that the offer gives it."""

    __slots__ = ("held", "limit")

    def __init__(self, held: int, limit: int) -> None:
        self.held = held
        self.limit = limit


class Offer:
    """The slots that one group of accepted events may take."""

    def __init__(
        self, claimer: Claimer, buffer: ClaimBuffer, lease: Lease, now: Instant, slots: int, size: int
    ) -> None:
        """`slots` is the number of slots of the worker, and `size` how many bytes of payloads it may still take."""
        self.lease = lease
        self.promises: Counter[UUID] = Counter()
        """How many slots each endpoint has been offered; the buffer counts them until the transaction ends."""
        self._claimer = claimer
        self._buffer = buffer
        self._now = now
        self._slots = slots
        self._bytes = size
        self._held = claimer.held_by_orgs()
        self._free = slots - self._held.total()
        self._of_endpoint: dict[UUID, _Slots] = {}

    def mark(self, event: Event, deliveries: tuple[NewDelivery, ...]) -> tuple[NewDelivery, ...]:
        """The deliveries of a new event; those that the store shall claim for this worker are marked."""
        if event.ordering_key is not None or (event.expires_at is not None and event.expires_at <= self._now):
            return deliveries
        return tuple(
            replace(one, claimable=True) if one.due_at <= self._now and self._takes(event, one) else one
            for one in deliveries
        )

    def _takes(self, event: Event, delivery: NewDelivery) -> bool:
        """Whether the delivery gets a slot, by the rule that the claimer shares slots by."""
        endpoint_id, org_id, size = delivery.endpoint_id, event.org_id, len(event.payload)
        slots = self._of_endpoint.get(endpoint_id)
        if slots is None:
            slots = self._of_endpoint[endpoint_id] = _Slots(*self._claimer.slots_of(endpoint_id, self._now))
        if slots.held >= slots.limit or size > self._bytes:
            return False
        if not may_grow(self._held[org_id], slots.held, self._free, self._slots):
            return False
        self.promises[endpoint_id] += 1
        self._buffer.promise({endpoint_id: 1})
        slots.held += 1
        self._held[org_id] += 1
        self._free -= 1
        self._bytes -= size
        return True


class Intake:
    """Offers the free slots of this worker to the events that its process accepts."""

    def __init__(
        self,
        claimer: Claimer,
        buffer: ClaimBuffer,
        tuning: Tuning,
        worker: str,
        start: Callable[[], None],
        settler: Settler,
        capacity: Capacity,
    ) -> None:
        """`start` starts claims that are in the buffer."""
        self._claimer = claimer
        self._buffer = buffer
        self._tuning = tuning
        self._worker = worker
        self._start = start
        self._settler = settler
        self._capacity = capacity
        self._closed = False
        self.offers = 0
        """How many groups are being accepted, whose claims may still arrive."""

    @contextmanager
    def offer(self, now: Instant) -> Iterator[Offer | None]:
        """An offer to a group of events that is accepted at `now`; None if this worker takes nothing."""
        size = self._tuning.buffer_bytes_max // 2 - self._buffer.bytes_of.total()
        if self._closed or self._settler.is_behind or size <= 0 or self._capacity.pause_left(now):
            yield None
            return
        self.offers += 1
        try:
            lease = Lease(now + seconds(self._tuning.lease_seconds), self._worker)
            offer = Offer(self._claimer, self._buffer, lease, now, self._capacity.slots(now), size)
            try:
                yield offer
            finally:
                self._buffer.withdraw(offer.promises)
        finally:
            self.offers -= 1

    def take(self, claims: Sequence[Claim]) -> None:
        """Start the claims that an accepting transaction made. A worker that is stopping releases them."""
        if self._closed:
            self._settler.release(claims)
        else:
            self._buffer.admit(claims)
            self._start()

    def close(self) -> None:
        """Take nothing more. Offers that were made are still kept."""
        self._closed = True
