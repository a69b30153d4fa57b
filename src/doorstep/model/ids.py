"""Public ids: UUID version 7, so that they sort by creation and cluster in an index."""

from __future__ import annotations

import os
from collections.abc import Callable
from uuid import UUID

from doorstep.clock import MILLISECOND, Instant


def uuid7(now: Instant, entropy: Callable[[int], bytes] = os.urandom) -> UUID:
    """A new id for something created at `now`.

    The 12 bits after the milliseconds carry the microseconds, so ids made in one process come out in order.
    """
    milliseconds, micros = divmod(now, MILLISECOND)
    tail = int.from_bytes(entropy(8)) & 0x3FFF_FFFF_FFFF_FFFF
    return UUID(int=milliseconds << 80 | 0x7000 << 64 | (micros << 2) << 64 | 0x8 << 60 | tail)
