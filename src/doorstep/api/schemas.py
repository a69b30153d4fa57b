"""What all shapes of the API share: strictness, times, ids, lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Any, TypeVar
from uuid import UUID

import msgspec
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Strict, WithJsonSchema
from pydantic_core import PydanticCustomError

from doorstep.api.wording import TIME
from doorstep.clock import Instant, from_datetime, from_iso, to_iso
from doorstep.errors import InvalidInput
from doorstep.model.act import REASON_CHARACTERS_MAX
from doorstep.model.listing import Count, Page
from doorstep.stores import cursor as cursor_text

T = TypeVar("T")

_LATEST: Instant = from_iso("9000-01-01T00:00:00Z")


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


def _instant(value: object) -> object:
    """Text to an instant, by the parser that reads the times of events too."""
    if not isinstance(value, str):
        raise PydanticCustomError("time", TIME)
    try:
        return instant_from(msgspec.convert(value, datetime), "time")
    except msgspec.ValidationError:
        raise PydanticCustomError("time", TIME) from None
    except InvalidInput as error:
        raise PydanticCustomError("time", "{message}", {"message": error.message}) from None


Timestamp = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
"""In answers: ISO 8601 in UTC, with microseconds and a Z."""
Moment = Annotated[Instant, BeforeValidator(_instant), WithJsonSchema({"type": "string", "format": "date-time"})]
"""In requests: a time with a zone."""
Id = Annotated[UUID, Strict(False)]
Reason = Annotated[str, Field(max_length=REASON_CHARACTERS_MAX)]
"""Why someone does something, in their own words; kept in the audit log."""


class Shape(BaseModel):
    """Numbers must be finite, and what is not known is refused rather than ignored."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, strict=True)


class Asked(BaseModel):
    """The query of a list; its values come as text."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    limit: int = Field(50, ge=1, le=200)
    cursor: str | None = Field(None, max_length=500)
    """Where the last page ended, as its answer said."""


class Pagination(Shape):
    """`cursor` asks for the next page. A page may be short, even empty, and still have a next one."""

    limit: int
    cursor: str | None
    has_more: bool

    @classmethod
    def of(cls, page: Page[Any], limit: int) -> Pagination:
        return cls(limit=limit, cursor=page.next, has_more=page.next is not None)


class CountedPagination(Pagination):
    """With the number of all there are. Counting stops at 10,000: then it is only a floor, and says so."""

    total_count: int
    total_is_floor: bool

    @classmethod
    def counted(cls, page: Page[Any], limit: int, count: Count) -> CountedPagination:
        return cls(
            limit=limit,
            cursor=page.next,
            has_more=page.next is not None,
            total_count=count.value,
            total_is_floor=not count.exact,
        )

    @classmethod
    def whole(cls, items: Sequence[object]) -> CountedPagination:
        """For lists that are always given whole."""
        return cls(limit=len(items), cursor=None, has_more=False, total_count=len(items), total_is_floor=False)


def page_of(items: Sequence[T], id_of: Callable[[T], UUID], cursor: str | None, limit: int) -> Page[T]:
    """A page of a list that is at hand as a whole, and from which nothing is ever removed."""
    start = 0 if cursor is None else _position(items, id_of, cursor) + 1
    page = tuple(items[start : start + limit])
    return Page(page, str(id_of(page[-1])) if start + limit < len(items) else None)


def _position(items: Sequence[T], id_of: Callable[[T], UUID], cursor: str) -> int:
    for position, item in enumerate(items):
        if str(id_of(item)) == cursor:
            return position
    raise cursor_text.unknown()
