"""Parses requests and encodes responses with msgspec. Parsing is strict and limited in size; errors name the field.

All routes use one parser, so that the same invalid input gets the same response everywhere. It rejects NaN, lone
surrogates and trailing commas; Python's json module accepts the first two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from doorstep.api.problems import TIME, Problem, Refusal, from_msgspec, invalid
from doorstep.clock import SECOND, Instant, from_datetime, from_iso
from doorstep.errors import InvalidInput
from doorstep.model.listing import Count, Page
from doorstep.schemas.shape import CountedPagination, FieldProblem, Pagination

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)
A = TypeVar("A")

SMALL_BODY_BYTES_MAX = 256 * 1024
"""The limit for bodies without an event: endpoints, policies, filters."""
OVERHEAD_BYTES = 64 * 1024
"""The allowance for everything in a request besides the payload: names, metadata, endpoint ids."""
_DISCARD_BYTES_MAX = 16 * 1024 * 1024
"""If a body is larger than allowed, but not larger than this, it is read and discarded, so that the sender can read the
response."""


async def read_body(request: Request, bytes_max: int) -> bytes:
    """Read the whole body. Raises a 413 as soon as it is too large, without reading the rest."""
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared) > bytes_max:
        raise _too_large(bytes_max, hang_up=int(declared) > _DISCARD_BYTES_MAX)
    chunks: list[bytes] = []
    size = 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > bytes_max:
                raise _too_large(bytes_max, hang_up=True)
            chunks.append(chunk)
    except ClientDisconnect:
        raise Refusal(Problem.INVALID_JSON, "the body ended early") from None
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Decode a body. Raises a Refusal that names the invalid field."""
    try:
        if not body.isascii():
            body.decode()  # msgspec does not check that raw values are UTF-8
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise invalid(from_msgspec(str(error), decoder.type)) from None
    except RecursionError:
        raise Refusal(Problem.INVALID_JSON, "the body is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise Refusal(Problem.INVALID_JSON, f"the body is not UTF-8: byte {error.start}") from None
    except msgspec.DecodeError as error:
        raise Refusal(Problem.INVALID_JSON, f"the body is not JSON: {_plain(error)}") from None


async def body_of(request: Request, decoder: msgspec.json.Decoder[T], bytes_max: int) -> T | None:
    """The decoded body; None if there is no body."""
    body = await read_body(request, bytes_max)
    return decode(decoder, body) if body else None


def query_of(request: Request, kind: type[S]) -> S:
    """The query parameters. They are converted from text, but more strictly than msgspec would convert them."""
    texts: dict[str, Any] = dict(request.query_params)
    for name in times_in(kind).intersection(texts):
        texts[name] = _time(texts[name], name)
    try:
        query = msgspec.convert(texts, kind, strict=False)
    except msgspec.ValidationError as error:
        raise invalid(from_msgspec(str(error), kind)) from None
    for name, text in texts.items():
        if getattr(query, name) is None:  # msgspec reads the text `null` as None, which would list everything
            raise invalid(FieldProblem(name, f"must be a value, got {text}; omit it instead"))
    return query


@cache
def times_in(kind: type[msgspec.Struct]) -> frozenset[str]:
    return frozenset(name for name, hint in get_type_hints(kind).items() if datetime in (hint, *get_args(hint)))


def _time(text: str, field: str) -> datetime:
    """Parse a time strictly. With `strict=False`, which is needed for numbers, msgspec would accept 0.5 as a time."""
    try:
        return msgspec.convert(text, datetime)
    except msgspec.ValidationError:
        raise invalid(FieldProblem(field, TIME)) from None


_LATEST: Instant = from_iso("9000-01-01T00:00:00Z")


def instant_from(value: datetime | None, field: str) -> Instant | None:
    """A time from a request. It must have a time zone, and a year that every database and client can store."""
    return None if value is None else instant(value, field)


def instant(value: datetime, field: str) -> Instant:
    try:
        found = from_datetime(value)
    except ValueError as error:
        raise InvalidInput(field, str(error)) from None
    if not 0 <= found <= _LATEST:
        raise InvalidInput(field, f"must be between the years 1970 and 9000, got {value.isoformat()}")
    return found


def _plain(error: msgspec.DecodeError) -> str:
    text = str(error).removeprefix("JSON is malformed: ")
    return text[:1].lower() + text[1:]


def _too_large(bytes_max: int, *, hang_up: bool) -> Refusal:
    headers = {"Connection": "close"} if hang_up else {}
    return Refusal(Problem.TOO_LARGE, f"the body may have at most {bytes_max} bytes", headers=headers)


# -- shapes ------------------------------------------------------------------------------------------------------


def shape(kind: type[S], value: object, /, **given: Any) -> S:
    """Build a shape from a value of the model. Fields with the same name are copied; the others must be `given`."""
    for name, convert in _fields(kind):
        if name not in given:
            found = getattr(value, name)
            given[name] = found if convert is None or found is None else convert(found)
    return kind(**given)


def shapes(kind: type[S], values: Iterable[object]) -> tuple[S, ...]:
    return tuple(shape(kind, value) for value in values)


@cache
def _fields(kind: type[msgspec.Struct]) -> list[tuple[str, Callable[[Any], Any] | None]]:
    """The fields of a shape, each with the function that converts the model's value, if it needs one."""
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
    """A time without a fraction of a second. msgspec omits zero microseconds, but our times always include them.

    msgspec calls our hook for this class, because it is a subclass of datetime. The hook takes a few microseconds, but
    only one timestamp in a million needs it.
    """


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WHOLE_EPOCH = _WholeSecond(1970, 1, 1, tzinfo=UTC)


def time(instant: Instant) -> datetime:
    """An instant as a datetime for responses. (`timedelta` takes 0.5 µs with positional arguments, otherwise 1 µs.)"""
    return (_EPOCH if instant % SECOND else _WHOLE_EPOCH) + timedelta(0, 0, instant)


def time_or_none(instant: Instant | None) -> datetime | None:
    return None if instant is None else time(instant)


def _in_full(value: Any) -> str:
    if isinstance(value, _WholeSecond):
        return value.strftime("%Y-%m-%dT%H:%M:%S.000000Z")
    raise NotImplementedError(f"{type(value)} cannot be encoded in a response")


encoded = msgspec.json.Encoder(enc_hook=_in_full).encode


def answer(content: object, status: int = 200) -> Response:
    return Response(encoded(content), status, media_type="application/json")


def as_it_is(content: bytes) -> msgspec.Raw:
    """The bytes unchanged if they are JSON. Other bytes, which programs can send through the library, become a JSON
    string."""
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
    """The position of a page in its list."""
    return Pagination(limit, page.next, page.next is not None)


def counted(page: Page[Any], limit: int, count: Count) -> CountedPagination:
    return CountedPagination(limit, page.next, page.next is not None, count.value, not count.exact)


def whole(kind: Callable[..., S], items: tuple[Any, ...]) -> S:
    """The only page of a list that is always returned in full."""
    return kind(items, pagination=CountedPagination(len(items), None, False, len(items), False))
