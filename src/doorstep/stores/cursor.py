"""Cursors: where a page of a list ended, as text that means something to the store alone."""

from __future__ import annotations

import re
from uuid import UUID

from doorstep.errors import InvalidInput

KEY_MAX = 2**63 - 1
"""The largest integer that a database column holds."""
ID_MAX = 2**128 - 1
"""The largest id, as a number."""
_SHAPE = re.compile(r"[0-9a-f]{1,32}(?:\.[0-9a-f]{1,32})*")


def write(*places: int) -> str:
    """The cursor for the values that a list is sorted by, those of the last row that was looked at."""
    return ".".join(f"{place:x}" for place in places)


def read(cursor: str | None, *most: int) -> tuple[int, ...] | None:
    """Those values again, one for each `most` that it may be; None without a cursor: begin at the beginning."""
    if cursor is None:
        return None
    places = tuple(int(part, 16) for part in cursor.split(".")) if _SHAPE.fullmatch(cursor) else ()
    if len(places) != len(most) or any(place > limit for place, limit in zip(places, most, strict=True)):
        raise unknown()
    return places


def unknown() -> InvalidInput:
    return InvalidInput("cursor", "is not one that this list gave; leave it out to begin at the beginning")


def read_instant(cursor: str | None) -> tuple[int, UUID] | None:
    """The place in a list that is sorted by an instant, and by ids within it."""
    place = read(cursor, KEY_MAX, ID_MAX)
    return None if place is None else (place[0], UUID(int=place[1]))
