"""What a worker holds at the moment: claims that wait for a place, and claims that are being tried.

A little more is held than is being tried, so that claims are made by the hundred instead of one by one; how much
more follows the endpoint's own pace, so that nothing waits in a worker's hand for longer than a tenth of a second.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from uuid import UUID

from doorstep.clock import MILLISECOND, Instant
from doorstep.model.claim import Claim

_PACE_WINDOW: Instant = 100 * MILLISECOND
_AHEAD_MAX = 1_000
_UNBEGUN_MAX = 5
"""How often in a row a claim may go back because its try could not even begin. Then it counts as a failure, which has
pauses, is seen, and comes to an end."""
_UNBEGUN_KEPT = 10_000


class EndpointBuffer:
    """The claims of one endpoint in this worker's hand."""

    __slots__ = ("_pace", "_window_at", "_window_count", "busy", "places", "target", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[Claim] = deque()
        self.busy = 0
        self.places = 0
        self.target = 0
        self._window_at: Instant = 0
        self._window_count = 0
        self._pace = 0

    @property
    def held(self) -> int:
        return self.busy + len(self.waiting)

    @property
    def hungry(self) -> bool:
        """So little is left that another claim is worth its while."""
        return 2 * self.held <= self.target

    def deal(self) -> Iterator[Claim]:
        """Claims that may be started now."""
        while self.waiting and self.busy < self.places:
            self.busy += 1
            yield self.waiting.popleft()

    def finished(self, count: int, now: Instant) -> None:
        self.busy -= count
        self._roll(now)
        self._window_count += count

    def ahead(self, now: Instant) -> int:
        """How many claims beyond its places are worth holding: what it gets through in one window."""
        self._roll(now)
        return min(self._pace, _AHEAD_MAX)

    def _roll(self, now: Instant) -> None:
        if now - self._window_at >= _PACE_WINDOW:
            stale = now - self._window_at >= 2 * _PACE_WINDOW
            self._pace = 0 if stale else self._window_count
            self._window_at, self._window_count = now, 0


class ClaimBuffer:
    """All holdings of a worker. Endpoints of which nothing is held are forgotten."""

    def __init__(self) -> None:
        self._holdings: dict[UUID, EndpointBuffer] = {}
        self.busy = 0
        self.bytes_of: Counter[UUID] = Counter()
        """The payloads in hand by organization, those being tried too."""
        self._unbegun: Counter[UUID] = Counter()

    def __getitem__(self, endpoint_id: UUID) -> EndpointBuffer:
        holding = self._holdings.get(endpoint_id)
        if holding is None:
            holding = self._holdings[endpoint_id] = EndpointBuffer()
        return holding

    def busy_of(self, endpoint_id: UUID) -> int:
        holding = self._holdings.get(endpoint_id)
        return holding.busy if holding else 0

    def busy_endpoints(self) -> Iterator[tuple[UUID, int]]:
        """Every endpoint that is being tried, with the number of its tries."""
        return ((key, holding.busy) for key, holding in self._holdings.items() if holding.busy)

    @property
    def waiting(self) -> int:
        return sum(len(holding.waiting) for holding in self._holdings.values())

    def waiting_of(self, endpoint_id: UUID) -> int:
        holding = self._holdings.get(endpoint_id)
        return len(holding.waiting) if holding else 0

    def take(self, claims: Iterable[Claim]) -> None:
        for claim in claims:
            holding = self[claim.endpoint_id]
            holding.waiting.append(claim)
            self.bytes_of[claim.org_id] += len(claim.payload)
            holding.places = max(holding.places, 1)  # an operator's retry comes through an open circuit

    def deal(self) -> list[Claim]:
        """All claims that have a place now; they count as busy from here on."""
        dealt = [claim for holding in self._holdings.values() for claim in holding.deal()]
        self.busy += len(dealt)
        return dealt

    def finished(self, endpoint_id: UUID, count: int, now: Instant) -> None:
        self[endpoint_id].finished(count, now)
        self.busy -= count

    def put_down(self, endpoint_id: UUID) -> None:
        """A claim that was dealt is not tried after all; it says nothing about the endpoint's pace."""
        self[endpoint_id].busy -= 1
        self.busy -= 1

    def may_go_back(self, claim: Claim, begun: bool) -> bool:
        """Whether a claim whose try has ended is to be handed back uncounted, because it never began."""
        if begun:
            if self._unbegun:
                self._unbegun.pop(claim.delivery_id, None)
            return False
        if len(self._unbegun) >= _UNBEGUN_KEPT:  # others may have taken them over long ago
            self._unbegun.clear()
        self._unbegun[claim.delivery_id] += 1
        if self._unbegun[claim.delivery_id] <= _UNBEGUN_MAX:
            return True
        del self._unbegun[claim.delivery_id]
        return False

    def give_up_waiting(self, endpoint_id: UUID | None = None) -> list[Claim]:
        """Take back what has not been started: of one endpoint, or of all."""
        holdings = self._holdings.values() if endpoint_id is None else [self[endpoint_id]]
        taken = [claim for holding in holdings for claim in holding.waiting]
        for holding in holdings:
            holding.waiting.clear()
        self.let_go(taken)
        return taken

    def let_go(self, claims: Iterable[Claim]) -> None:
        """Their payloads are no longer needed: they were tried, or will not be."""
        for claim in claims:
            self.bytes_of[claim.org_id] -= len(claim.payload)
        self.bytes_of = +self.bytes_of  # without those of which nothing is left

    def forget_idle(self, now: Instant) -> None:
        idle = [key for key, holding in self._holdings.items() if not holding.held and not holding.ahead(now)]
        for key in idle:
            del self._holdings[key]
