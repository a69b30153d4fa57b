"""The log beside the database file, as it lies on the disk: how long it is, and whether it has been begun anew."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

_HEADER = struct.Struct(">8xI4x8s8x")
"""The size of a page, and the salt that its frames carry until it is begun anew."""
_FRAME_HEADER_BYTES = 24
_FRAME_SALT_OFFSET = 8


class Log(NamedTuple):
    handle: int
    page_bytes: int
    salt: bytes
    """Empty as long as nothing has been written."""

    def has(self, number: int) -> bool:
        """Whether its n-th page, from 1, belongs to it, or is left over from an earlier, longer one.

        The file's size does not tell: SQLite begins the log anew without cutting it.
        """
        offset = _HEADER.size + (number - 1) * (_FRAME_HEADER_BYTES + self.page_bytes) + _FRAME_SALT_OFFSET
        return bool(self.salt) and os.pread(self.handle, len(self.salt), offset) == self.salt

    def end(self) -> tuple[bytes, int]:
        """Where it ends, which moves whenever anybody writes."""
        low, high = 0, 1
        while self.has(high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.has(middle) else (low, middle)
        return self.salt, low


@contextmanager
def reading_log(path: str) -> Iterator[Log]:
    """The log of this database. Raises OSError where there is none."""
    handle = os.open(f"{path}-wal", os.O_RDONLY)
    try:
        header = os.pread(handle, _HEADER.size, 0)
        yield Log(handle, *(_HEADER.unpack(header) if len(header) == _HEADER.size else (0, b"")))
    finally:
        os.close(handle)  # no lock is lost by that: SQLite's are on the other two files
