"""What has changed between two looks at the lists: the lines of `doorstep tail`."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from doorstep.schemas.deliveries import DeadLetter, QueuedDelivery
    from doorstep.schemas.events import EventItem

_REMEMBERED_MAX = 20_000
"""Things whose last state is kept in mind; those seen longest ago are forgotten first."""


class Change(NamedTuple):
    """Something that is not as it was at the last look."""

    what: str
    """`event`, `retry` or `dead_letter`."""
    thing: EventItem | QueuedDelivery | DeadLetter


class Memory:
    """The last state of what has been seen, bounded."""

    def __init__(self, remembered_max: int = _REMEMBERED_MAX) -> None:
        self._states: OrderedDict[object, object] = OrderedDict()
        self._remembered_max = remembered_max

    def knows(self, key: object) -> bool:
        return key in self._states

    def is_news(self, key: object, state: object) -> bool:
        """Whether this is another state than the last one seen of it; it is remembered from now on."""
        before = self._states.pop(key, None)
        self._states[key] = state
        if len(self._states) > self._remembered_max:
            self._states.popitem(last=False)
        return before != state


class Watcher:
    """Compares each look with the ones before."""

    def __init__(self) -> None:
        self._memory = Memory()

    def knows(self, event: EventItem) -> bool:
        """Whether an earlier look has had this event."""
        return self._memory.knows(event.event_id)

    def events(self, seen: Iterable[EventItem]) -> Iterator[Change]:
        """Events that are new, or stand elsewhere than before."""
        for event in seen:
            if self._memory.is_news(event.event_id, event.status):
                yield Change("event", event)

    def queue(self, seen: Iterable[QueuedDelivery]) -> Iterator[Change]:
        """Deliveries that have failed once more and will be tried again."""
        for delivery in seen:
            if delivery.state == "pending" and self._memory.is_news(("retry", delivery.delivery_id), delivery.attempts):
                yield Change("retry", delivery)

    def letters(self, seen: Iterable[DeadLetter]) -> Iterator[Change]:
        """Deliveries that have been given up."""
        for letter in seen:
            if self._memory.is_news(("dead", letter.delivery_id), letter.settled_at):
                yield Change("dead_letter", letter)
