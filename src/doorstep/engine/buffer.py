"""The claims that a worker holds, both those that wait for a slot and those in flight.

A worker holds slightly more claims than it has attempts in flight, so that it can claim hundreds of deliveries in one
transaction. The number of extra claims follows the rate at which the endpoint finishes attempts: a claim should not
wait here longer than a tenth of a second.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from uuid import UUID

from doorstep.clock import MILLISECOND, Instant
from doorstep.model.claim import Claim

_PACE_WINDOW: Instant = 100 * MILLISECOND
_AHEAD_MAX = 1_000
_UNSTARTED_MAX = 5
"""The number of times in a row that a delivery may be released because its attempt could not start. If the next attempt
cannot start either, it counts as failed. A failed attempt is visible, is retried with backoff, and cannot repeat
forever."""
_UNSTARTED_KEPT = 10_000


class EndpointBuffer:
    """The claims of one endpoint in this worker."""

    __slots__ = (
        "_pace",
        "_window_at",
        "_window_count",
        "busy",
        "fresh_first",
        "promised",
        "slots",
        "target",
        "waiting",
    )

    def __init__(self) -> None:
        self.waiting: deque[Claim] = deque()
        self.busy = 0
        self.promised = 0
        """How many claims the transactions in progress may make. They count whenever slots are shared out."""
        self.slots = 0
        self.target = 0
        self.fresh_first = False
        """While the endpoint recovers: whether the next odd slot is for a fresh delivery."""
        self._window_at: Instant = 0
        self._window_count = 0
        self._pace = 0

    @property
    def held(self) -> int:
        return self.busy + len(self.waiting)

    @property
    def low(self) -> bool:
        """Whether the buffer is at most half full. Otherwise, claiming more is not worth a transaction."""
        return 2 * self.held <= self.target

    def start(self) -> Iterator[Claim]:
        """Take waiting claims as long as there are free slots."""
        while self.waiting and self.busy < self.slots:
            self.busy += 1
            yield self.waiting.popleft()

    def finished(self, count: int, now: Instant) -> None:
        self.busy -= count
        self._advance_window(now)
        self._window_count += count

    def ahead(self, now: Instant) -> int:
        """The number of claims to hold beyond the slots: as many as the attempts that the endpoint finished in the last
        window."""
        self._advance_window(now)
        return min(self._pace, _AHEAD_MAX)

    def _advance_window(self, now: Instant) -> None:
        passed = now - self._window_at
        if not 0 <= passed < _PACE_WINDOW:  # the clock may be set back
            stale = not 0 <= passed < 2 * _PACE_WINDOW
            self._pace = 0 if stale else self._window_count
            self._window_at, self._window_count = now, 0


class ClaimBuffer:
    """The buffers of all endpoints. `forget_idle` drops endpoints without claims."""

    def __init__(self) -> None:
        self._endpoints: dict[UUID, EndpointBuffer] = {}
        self.busy = 0
        self.bytes_of: Counter[UUID] = Counter()
        """The total size of the payloads held for each organization, including those in flight."""
        self._unstarted: Counter[UUID] = Counter()

    def __getitem__(self, endpoint_id: UUID) -> EndpointBuffer:
        buffer = self._endpoints.get(endpoint_id)
        if buffer is None:
            buffer = self._endpoints[endpoint_id] = EndpointBuffer()
        return buffer

    def busy_of(self, endpoint_id: UUID) -> int:
        """The number of attempts in flight, and of promised claims."""
        buffer = self._endpoints.get(endpoint_id)
        return buffer.busy + buffer.promised if buffer else 0

    def busy_endpoints(self) -> Iterator[tuple[UUID, int]]:
        """Every endpoint with attempts in flight or promised claims, and their number."""
        return ((key, busy) for key, buffer in self._endpoints.items() if (busy := buffer.busy + buffer.promised))

    def held_endpoints(self) -> Iterator[tuple[UUID, int]]:
        """Every endpoint with claims, and the number of these claims and of those promised."""
        return ((key, held) for key, buffer in self._endpoints.items() if (held := buffer.held + buffer.promised))

    def promise(self, promises: Mapping[UUID, int]) -> None:
        """Count claims that a transaction in progress may make, until `withdraw`. Rounds and acceptances overlap, and
        must not give the same slots twice."""
        for endpoint_id, count in promises.items():
            self[endpoint_id].promised += count

    def withdraw(self, promises: Mapping[UUID, int]) -> None:
        """Count these claims no longer: those that were made are in the buffer."""
        for endpoint_id, count in promises.items():
            self[endpoint_id].promised -= count

    @property
    def waiting(self) -> int:
        return sum(len(buffer.waiting) for buffer in self._endpoints.values())

    def held_of(self, endpoint_id: UUID) -> int:
        """The number of claims, and of those promised."""
        buffer = self._endpoints.get(endpoint_id)
        return buffer.held + buffer.promised if buffer else 0

    def waiting_of(self, endpoint_id: UUID) -> int:
        buffer = self._endpoints.get(endpoint_id)
        return len(buffer.waiting) if buffer else 0

    def add(self, claims: Iterable[Claim]) -> None:
        for claim in claims:
            buffer = self[claim.endpoint_id]
            buffer.waiting.append(claim)
            self.bytes_of[claim.org_id] += len(claim.payload)
            buffer.slots = max(buffer.slots, 1)  # an operator's retry is made even if the circuit is open

    def admit(self, claims: Sequence[Claim]) -> None:
        """Add claims that were made for free slots, and give them these slots."""
        self.add(claims)
        for endpoint_id, count in Counter(claim.endpoint_id for claim in claims).items():
            buffer = self[endpoint_id]
            buffer.slots = max(buffer.slots, buffer.busy + count)  # claims that already waited get no slots here

    def start(self) -> list[Claim]:
        """Take as many waiting claims as there are free slots; they count as busy from now on."""
        started = [claim for buffer in self._endpoints.values() for claim in buffer.start()]
        self.busy += len(started)
        return started

    def finished(self, endpoint_id: UUID, count: int, now: Instant) -> None:
        self[endpoint_id].finished(count, now)
        self.busy -= count

    def cancel(self, claim: Claim) -> None:
        """Free the slot of a claim that is not attempted after all. This does not count as a finished attempt."""
        self[claim.endpoint_id].busy -= 1
        self.busy -= 1
        self.free_bytes([claim])

    def should_release(self, claim: Claim, started: bool) -> bool:
        """Whether to release the claim instead of counting an attempt, because its attempt never started."""
        if started:
            if self._unstarted:
                self._unstarted.pop(claim.delivery_id, None)
            return False
        if len(self._unstarted) >= _UNSTARTED_KEPT:  # other workers may have claimed these deliveries long ago
            self._unstarted.clear()
        self._unstarted[claim.delivery_id] += 1
        if self._unstarted[claim.delivery_id] <= _UNSTARTED_MAX:
            return True
        del self._unstarted[claim.delivery_id]
        return False

    def take_waiting(self, endpoint_id: UUID | None = None) -> list[Claim]:
        """Remove and return the claims that have not been started, for one endpoint or for all."""
        buffers = self._endpoints.values() if endpoint_id is None else [self[endpoint_id]]
        taken = [claim for buffer in buffers for claim in buffer.waiting]
        for buffer in buffers:
            buffer.waiting.clear()
        self.free_bytes(taken)
        return taken

    def free_bytes(self, claims: Iterable[Claim]) -> None:
        """Stop counting the payloads of these claims, which are no longer needed."""
        for claim in claims:
            self.bytes_of[claim.org_id] -= len(claim.payload)
        self.bytes_of = +self.bytes_of  # drops organizations at zero

    def forget_idle(self, now: Instant) -> None:
        idle = [
            key
            for key, buffer in self._endpoints.items()
            if not buffer.held and not buffer.promised and not buffer.ahead(now)
        ]
        for key in idle:
            del self._endpoints[key]
