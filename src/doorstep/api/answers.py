"""What routes answer with: shapes of `doorstep.schemas`, encoded by msgspec, with their times and pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, TypeVar, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec
from starlette.responses import Response

from doorstep.clock import SECOND, Instant
from doorstep.model.listing import Count, Page
from doorstep.schemas.shape import CountedPagination, Pagination
from doorstep.stores import cursor as cursor_text

S = TypeVar("S", bound=msgspec.Struct)
T = TypeVar("T")
A = TypeVar("A")

# -- shapes ------------------------------------------------------------------------------------------------------


def shape(kind: type[S], value: object, /, **worded: Any) -> S:
    """A value of the model as a shape: what is called alike there is taken over, and the rest is given."""
    for name, convert in _taken_over(kind):
        if name not in worded:
            taken = getattr(value, name)
            worded[name] = taken if convert is None or taken is None else convert(taken)
    return kind(**worded)


@cache
def _taken_over(kind: type[msgspec.Struct]) -> list[tuple[str, Callable[[Any], Any] | None]]:
    """The fields of a shape, and what becomes of the model's value: an instant, a whole number or a list there."""
    return [(name, _conversion(hint)) for name, hint in get_type_hints(kind).items()]


def _conversion(hint: Any) -> Callable[[Any], Any] | None:
    forms = {hint, *(one for one in get_args(hint) if get_origin(hint) is not tuple)}
    if datetime in forms:
        return time
    if float in forms:
        return float
    return tuple if get_origin(hint) is tuple else None


# -- times -------------------------------------------------------------------------------------------------------


class _WholeSecond(datetime):
    """msgspec leaves out the microseconds where there are none, and our times always have them.

    It does not know subclasses, and hands them to the hook. That costs a few microseconds, for one time in a million.
    """


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WHOLE_EPOCH = _WholeSecond(1970, 1, 1, tzinfo=UTC)


def time(instant: Instant) -> datetime:
    """An instant, as answers have it. (By position, the difference takes 0.5 µs; by name, 1.)"""
    return (_EPOCH if instant % SECOND else _WHOLE_EPOCH) + timedelta(0, 0, instant)


def time_or_none(instant: Instant | None) -> datetime | None:
    return None if instant is None else time(instant)


def number(value: float | None) -> float | None:
    """As a fraction, although it may have been given as a whole number: 50.0."""
    return None if value is None else float(value)


def _in_full(value: Any) -> str:
    if isinstance(value, _WholeSecond):
        return value.strftime("%Y-%m-%dT%H:%M:%S.000000Z")
    raise NotImplementedError(f"{type(value)} has no place in an answer")


encoded = msgspec.json.Encoder(enc_hook=_in_full).encode


def answer(content: object, status: int = 200) -> Response:
    return Response(encoded(content), status, media_type="application/json")


def as_it_is(content: bytes) -> msgspec.Raw:
    """The very bytes where they are JSON. A library user may send others; those are shown as text."""
    if content == b"{}":
        return _EMPTY
    try:
        content.decode()
        return msgspec.json.decode(content, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return msgspec.Raw(msgspec.json.encode(content.decode("utf-8", "replace")))


_EMPTY = msgspec.Raw(b"{}")

# -- pages -------------------------------------------------------------------------------------------------------


def all_of(shown: Callable[[T], A], items: Iterable[T]) -> tuple[A, ...]:
    return tuple(map(shown, items))


def position(page: Page[Any], limit: int) -> Pagination:
    """Where a page stands in its list."""
    return Pagination(limit, page.next, page.next is not None)


def counted(page: Page[Any], limit: int, count: Count) -> CountedPagination:
    return CountedPagination(limit, page.next, page.next is not None, count.value, not count.exact)


def whole(items: Sequence[object]) -> CountedPagination:
    """For lists that are always given whole."""
    return CountedPagination(len(items), None, False, len(items), False)


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
