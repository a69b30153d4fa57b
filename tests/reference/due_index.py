"""Keys in the order of an instant, then of the keys themselves: the index behind every "oldest first"."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from doorstep.clock import Instant


class DueIndex:
    """A sorted list: moving its tail is one memmove, which beats cleverer structures up to 100,000 entries."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: list[tuple[Instant, int]] = []

    def __bool__(self) -> bool:
        return bool(self._entries)

    @property
    def first_at(self) -> Instant:
        return self._entries[0][0]

    def add(self, at: Instant, key: int) -> None:
        insort(self._entries, (at, key))

    def remove(self, at: Instant, key: int) -> None:
        del self._entries[bisect_left(self._entries, (at, key))]

    def until(self, at: Instant) -> Iterator[int]:
        """The keys up to and including `at`, oldest first. Take what you need before you change the index."""
        for entry_at, key in self._entries:
            if entry_at > at:
                return
            yield key

    def all(self) -> Iterator[int]:
        return (key for _, key in self._entries)
