"""The base class of all values in the model, and functions for their ids.

Records are msgspec structs rather than dataclasses: creating a frozen struct takes 0.2 µs instead of 1.5 µs, and each
delivery creates about six. They contain no reference cycles, so the garbage collector need not track them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from uuid import UUID

import msgspec

from doorstep.clock import MILLISECOND, Instant


class Record(msgspec.Struct, frozen=True, gc=False):
    """An immutable value, compared by its fields."""


_INSTANT_MAX: Instant = (1 << 48) * MILLISECOND - 1
"""The latest time that fits into an id: its 48 bits for milliseconds last until the year 10889."""


def uuid7(now: Instant, entropy: Callable[[int], bytes] = os.urandom) -> UUID:
    """A new id for something created at `now`.

    The 12 bits after the milliseconds hold the microseconds, so ids sort by creation time, to the microsecond.
    """
    milliseconds, micros = divmod(now, MILLISECOND)
    tail = int.from_bytes(entropy(8)) & 0x3FFF_FFFF_FFFF_FFFF
    return UUID(int=milliseconds << 80 | 0x7000 << 64 | (micros << 2) << 64 | 0x8 << 60 | tail)


def earliest_id(at: Instant) -> UUID:
    """The lower bound of ids created at `at` or later. Ids created earlier are smaller."""
    within = min(max(at, 0), _INSTANT_MAX)
    return UUID(int=uuid7(within, bytes).int & ~0xFFFF_FFFF_FFFF_FFFF)
