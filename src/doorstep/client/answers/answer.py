"""What all answers share."""

from __future__ import annotations

import msgspec


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """A value that cannot be changed, made from an answer. Times are aware datetimes in UTC."""
