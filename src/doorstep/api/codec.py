"""Parses requests and encodes responses with msgspec. Parsing is strict and limited in size; errors name the field.

All routes use one parser, so that the same invalid input gets the same response everywhere. It rejects NaN, lone
surrogates and trailing commas; Python's json module accepts the first two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import cache
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive

from doorstep.api.problems import Problem, Refusal, invalid
from doorstep.clock import Instant, from_datetime, from_iso
from doorstep.errors import InvalidInput
from doorstep.model.listing import Count, Page
from doorstep.operations.shapes import WholeSecond
from doorstep.schemas.shape import OLDER_NAMES, CountedPagination, FieldProblem, Pagination
from doorstep.schemas.wording import TIME, UNKNOWN, from_msgspec

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
    return await receive_body(request.receive, request.headers.get("content-length", ""), bytes_max)


async def receive_body(receive: Receive, declared: str, bytes_max: int) -> bytes:
    """`read_body` for a request that is not wrapped in an object. `declared` is its header Content-Length."""
    _check_declared(declared, bytes_max)
    chunks: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refusal(Problem.INVALID_JSON, "the body ended early")
        chunk, more = message.get("body", b""), message.get("more_body", False)
        size += len(chunk)
        if size > bytes_max:
            raise _too_large(bytes_max, hang_up=True)
        chunks.append(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _check_declared(declared: str, bytes_max: int) -> None:
    if declared.isascii() and declared.isdigit() and int(declared) > bytes_max:
        raise _too_large(bytes_max, hang_up=int(declared) > _DISCARD_BYTES_MAX)


def limited(receive: Receive, declared: str, bytes_max: int) -> Receive:
    """`receive` for code that reads the whole body by itself. It raises a 413 as soon as the body is too large."""
    size = 0

    async def receive_limited() -> Message:
        nonlocal size
        _check_declared(declared, bytes_max)
        message = await receive()
        size += len(message.get("body", b""))
        if size > bytes_max:
            raise _too_large(bytes_max, hang_up=True)
        return message

    return receive_limited


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
    texts = _grouped(request.query_params.multi_items(), kind)
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


def check_parameters(given: QueryParams, known: frozenset[str]) -> None:
    """Reject unknown and repeated parameters, because ignoring a misspelt filter would silently widen the result."""
    seen: set[str] = set()
    for name, _ in given.multi_items():
        if name not in known and not (name.endswith("]") and name.partition("[")[0] in known):
            raise invalid(FieldProblem(name, UNKNOWN))
        if name in seen:
            raise invalid(FieldProblem(name, "must be given once"))
        seen.add(name)


def _grouped(items: Iterable[tuple[str, str]], kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The parameters by name. Those of an object, `payload[order.id]=42`, are joined to one value."""
    texts: dict[str, Any] = {}
    objects = objects_in(kind)
    for name, text in items:
        group, bracket, key = name.partition("[")
        if group not in objects:
            texts[name] = text
        elif bracket and key.removesuffix("]"):
            texts.setdefault(group, {})[key.removesuffix("]")] = text
        else:
            raise invalid(FieldProblem(name, f"is written with the name of a field: {group}[order.id]=42"))
    return texts


@cache
def objects_in(kind: type[msgspec.Struct]) -> frozenset[str]:
    """The parameters that are objects, with one parameter in the URL for each of their fields."""
    hints = get_type_hints(kind).items()
    return frozenset(name for name, hint in hints if any(get_origin(one) is dict for one in (hint, *get_args(hint))))


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


def span_of(request: msgspec.Struct, where: str = "") -> tuple[Instant | None, Instant | None]:
    """The fields `since` and `until` of a request, which may be given under older names."""
    since, until = (name_of(request, name, where) for name in ("since", "until"))
    return instant_from(getattr(request, since), f"{where}{since}"), instant_from(
        getattr(request, until), f"{where}{until}"
    )


def name_of(request: msgspec.Struct, field: str, where: str = "") -> str:
    """The name under which a field is given: its own or an older one."""
    names = (field, *OLDER_NAMES[field])
    given = [name for name in names if getattr(request, name, None) is not None]
    if len(given) > 1:
        raise InvalidInput(f"{where}{given[1]}", f"is an older name of {field}; give only {field}")
    return given[0] if given else field


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


# -- responses ---------------------------------------------------------------------------------------------------


def _in_full(value: Any) -> str:
    if isinstance(value, WholeSecond):
        return value.strftime("%Y-%m-%dT%H:%M:%S.000000Z")
    raise NotImplementedError(f"{type(value)} cannot be encoded in a response")


encoded = msgspec.json.Encoder(enc_hook=_in_full).encode


def answer(content: object, status: int = 200) -> Response:
    """A JSON response with what msgspec can encode, also `msgspec.Raw`."""
    return Response(encoded(content), status, media_type="application/json")


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
