"""Places: how many deliveries of each endpoint a bulk retry may have waiting, so that no endpoint holds up another.

Each endpoint has a window. Where deliveries wait, it is twice what ended since the last look, so that the queue lasts
about two looks: fresh events to the same endpoint find a short one, also where the endpoint is slow. While nothing
ends, as behind an open circuit, an endpoint keeps the places it has and gets no more. It may never have more than a
fortieth of what the others leave: 25 if it is alone, and only some 160 dead endpoints together can stop the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from uuid import UUID

from doorstep.model.bulk import UNDER_WAY_MAX, UnderWay
from doorstep.model.delivery import Delivery

WINDOW_MAX = 25
_SHARES = UNDER_WAY_MAX // WINDOW_MAX


class Places:
    """What a bulk retry has under way, and who may have more of it. `before` is the last look of this process."""

    def __init__(self, under_way: Iterable[UnderWay], before: Places | None = None) -> None:
        self._endpoints: dict[UUID, UUID] = {}
        self._waiting: Counter[UUID] = Counter()
        self._held: Counter[UUID] = Counter()
        for one in under_way:
            self._add(one.delivery_id, one.endpoint_id, waiting=one.waiting)
        self._getting_on: set[UUID] = set()
        self._windows: dict[UUID, int] = {}
        if before is not None:
            self._getting_on, self._windows = self._changes(before)

    @property
    def free(self) -> int:
        return UNDER_WAY_MAX - len(self._endpoints)

    def has(self, delivery: Delivery) -> bool:
        """Whether it has been taken and has no result yet."""
        return delivery.delivery_id in self._endpoints

    def take(self, delivery: Delivery) -> bool:
        """Give a delivery a place, if its endpoint may have one more."""
        endpoint_id = delivery.endpoint_id
        if self.free <= 0 or self._waiting[endpoint_id] >= self._room(endpoint_id):
            return False
        self._add(delivery.delivery_id, endpoint_id, waiting=True)
        self._getting_on.add(endpoint_id)
        return True

    def gets_on(self, delivery: Delivery) -> bool:
        """Whether its endpoint has just got a place, or had a result since the last look."""
        return delivery.endpoint_id in self._getting_on

    def _room(self, endpoint_id: UUID) -> int:
        left_by_others = self.free + self._held[endpoint_id]
        return max(1, min(self._windows.get(endpoint_id, WINDOW_MAX), left_by_others // _SHARES))

    def _add(self, delivery_id: UUID, endpoint_id: UUID, *, waiting: bool) -> None:
        self._endpoints[delivery_id] = endpoint_id
        self._held[endpoint_id] += 1
        self._waiting[endpoint_id] += waiting

    def _changes(self, before: Places) -> tuple[set[UUID], dict[UUID, int]]:
        """The endpoints that had results since then, and the windows of those that had anything under way."""
        ended = Counter(endpoint for one, endpoint in before._endpoints.items() if one not in self._endpoints)
        old = {endpoint_id: before._windows.get(endpoint_id, WINDOW_MAX) for endpoint_id in before._held}
        return set(ended), {one: self._window(one, window, ended[one]) for one, window in old.items()}

    def _window(self, endpoint_id: UUID, old: int, ended: int) -> int:
        """One with nothing waiting keeps up, and may have more; while nothing ends there is nothing to tell from."""
        if not ended:
            return old
        return min(2 * ended if self._waiting[endpoint_id] else max(old, 2 * ended), WINDOW_MAX)
