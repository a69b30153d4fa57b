"""The base of every value in the model.

msgspec structs rather than dataclasses: frozen ones are made in 0.2 µs against 1.5 µs, and each delivery
makes about six of them. Nothing here refers back to itself, so the garbage collector need not look.
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
"""An id has 48 bits for its milliseconds, enough until the year 10889."""


def uuid7(now: Instant, entropy: Callable[[int], bytes] = os.urandom) -> UUID:
    """A new id for something created at `now`.

    The 12 bits after the milliseconds carry the microseconds, so ids made in one process come out in order.
    """
    milliseconds, micros = divmod(now, MILLISECOND)
    tail = int.from_bytes(entropy(8)) & 0x3FFF_FFFF_FFFF_FFFF
    return UUID(int=milliseconds << 80 | 0x7000 << 64 | (micros << 2) << 64 | 0x8 << 60 | tail)


def earliest_id(at: Instant) -> UUID:
    """Smaller than every id made at `at` or later, larger than every one made before: a place in a list of ids."""
    within = min(max(at, 0), _INSTANT_MAX)
    return UUID(int=uuid7(within, bytes).int & ~0xFFFF_FFFF_FFFF_FFFF)
