"""How much a program may ask of a list at once: as much as over HTTP."""

from __future__ import annotations

from doorstep.errors import InvalidInput

LIMIT_MAX = 200


def checked_limit(limit: int) -> int:
    """The limit, if it is one."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= LIMIT_MAX:
        raise InvalidInput("limit", f"must be a whole number from 1 to {LIMIT_MAX}, got {limit!r}")
    return limit
