"""Cursors: the position at which a page of a list ended, encoded as text that only the store interprets."""

from __future__ import annotations

import re
from uuid import UUID

from doorstep.errors import InvalidInput
from doorstep.model.listing import UNKNOWN_CURSOR

KEY_MAX = 2**63 - 1
"""The largest integer that fits in a database column."""
ID_MAX = 2**128 - 1
"""The largest id, as a number."""
_SHAPE = re.compile(r"[0-9a-f]{1,32}(?:\.[0-9a-f]{1,32})*")


def write(*values: int) -> str:
    """Encode the sort values of the last examined row as a cursor."""
    return ".".join(f"{value:x}" for value in values)


def read(cursor: str | None, *maxima: int) -> tuple[int, ...] | None:
    """The sort values in a cursor; None without a cursor. `maxima` has the largest allowed value of each sort value."""
    if cursor is None:
        return None
    values = tuple(int(part, 16) for part in cursor.split(".")) if _SHAPE.fullmatch(cursor) else ()
    if len(values) != len(maxima) or any(value > limit for value, limit in zip(values, maxima, strict=True)):
        raise unknown()
    return values


def unknown() -> InvalidInput:
    return InvalidInput("cursor", UNKNOWN_CURSOR)


def read_instant(cursor: str | None) -> tuple[int, UUID] | None:
    """The position in a list that is sorted by an instant, then by id."""
    values = read(cursor, KEY_MAX, ID_MAX)
    return None if values is None else (values[0], UUID(int=values[1]))
