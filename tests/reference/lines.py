"""Lines: the open deliveries of one endpoint that share an ordering key, in the order of their acceptance."""

from __future__ import annotations

from bisect import bisect_left, insort
from uuid import UUID

Line = tuple[UUID, str]
"""An endpoint and an ordering key."""


class Lines:
    """Only the first of a line may be tried; those behind it are blocked."""

    def __init__(self) -> None:
        self._keys: dict[Line, list[int]] = {}

    def add(self, line: Line, key: int) -> None:
        insort(self._keys.setdefault(line, []), key)

    def remove(self, line: Line, key: int) -> None:
        keys = self._keys[line]
        del keys[bisect_left(keys, key)]
        if not keys:
            del self._keys[line]

    def first(self, line: Line) -> int | None:
        keys = self._keys.get(line)
        return keys[0] if keys else None
