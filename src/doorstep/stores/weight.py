"""The bound on how much is taken at once where things differ in size, as payloads do; the same in every store."""

from __future__ import annotations

from collections.abc import Iterable


def fitting(sizes: Iterable[int], bytes_max: int | None) -> int:
    """How many of these may be taken, in their order: the last is the one that uses up `bytes_max`.

    So a payload longer than that is taken too, by itself, and nothing is ever too long to be delivered.
    """
    count = total = 0
    for size in sizes:
        if bytes_max is not None and total >= bytes_max:
            break
        count, total = count + 1, total + size
    return count
