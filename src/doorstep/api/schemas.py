"""What all shapes of the API share: strictness, times, lists."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from doorstep.clock import Instant, from_datetime, to_iso
from doorstep.errors import InvalidInput

Timestamp = Annotated[str, Field(json_schema_extra={"format": "date-time"}, examples=["2026-01-31T12:00:00.000000Z"])]
"""ISO 8601 in UTC, with microseconds and a Z."""

_LATEST: Instant = from_datetime(datetime.fromisoformat("9000-01-01T00:00:00Z"))


def iso(instant: Instant | None) -> str | None:
    return None if instant is None else to_iso(instant)


def instant_from(value: datetime | None, field: str) -> Instant | None:
    """A time that someone sent; it needs a zone, and must be one that every part of the world can write down."""
    if value is None:
        return None
    try:
        instant = from_datetime(value)
    except ValueError as error:
        raise InvalidInput(field, str(error)) from None
    if not 0 <= instant <= _LATEST:
        raise InvalidInput(field, f"must be between the years 1970 and 9000, got {value.isoformat()}")
    return instant


class Shape(BaseModel):
    """Numbers must be finite, and what is not known is refused rather than ignored."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, strict=True)


class Pagination(Shape):
    limit: int
    cursor: str | None
    has_more: bool
    total_count: int

    @classmethod
    def whole(cls, items: Sequence[object]) -> Pagination:
        """For lists that are always given whole."""
        return cls(limit=len(items), cursor=None, has_more=False, total_count=len(items))
