"""Reading bodies and parameters: bounded, strict, and with the field named when something is wrong.

One parser for all routes (msgspec), so that the same rubbish gets the same answer everywhere. It takes no NaN, no
lone surrogates, no trailing commas; Python's own json module takes all of the first two.
"""

from __future__ import annotations

from datetime import datetime
from functools import cache
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec
from starlette.requests import ClientDisconnect, Request

from doorstep.api.problems import Problem, Refusal, invalid
from doorstep.api.wording import TIME, FieldError, from_msgspec
from doorstep.clock import Instant, from_datetime, from_iso
from doorstep.errors import InvalidInput

T = TypeVar("T")
Q = TypeVar("Q", bound=msgspec.Struct)

SMALL_BODY_BYTES_MAX = 256 * 1024
"""For everything that is not an event: endpoints, policies, filters."""
OVERHEAD_BYTES = 64 * 1024
"""What a request may hold besides its payload: names, metadata, endpoint ids."""
_DISCARD_BYTES_MAX = 16 * 1024 * 1024
"""Up to this, an oversize body is let in and thrown away, so that the sender lives to read the answer."""


async def read_body(request: Request, bytes_max: int) -> bytes:
    """The whole body, or a 413 as soon as it is known to be too large, without reading the rest."""
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
    """The value, or the one sentence that says which field is wrong and how."""
    try:
        if not body.isascii():
            body.decode()  # msgspec leaves the bytes of raw values unread
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise invalid(from_msgspec(str(error), decoder.type)) from None
    except RecursionError:
        raise Refusal(Problem.INVALID_JSON, "the body is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise Refusal(Problem.INVALID_JSON, f"the body is not UTF-8: see byte {error.start}") from None
    except msgspec.DecodeError as error:
        raise Refusal(Problem.INVALID_JSON, f"the body is not JSON: {_plain(error)}") from None


async def body_of(request: Request, decoder: msgspec.json.Decoder[T], bytes_max: int) -> T | None:
    """What the body says; None where there is no body."""
    body = await read_body(request, bytes_max)
    return decode(decoder, body) if body else None


def query_of(request: Request, kind: type[Q]) -> Q:
    """What the parameters say. They come as text, but not every text that can be read as a value is meant as one."""
    texts: dict[str, Any] = dict(request.query_params)
    for name in times_in(kind).intersection(texts):
        texts[name] = _time(texts[name], name)
    try:
        asked = msgspec.convert(texts, kind, strict=False)
    except msgspec.ValidationError as error:
        raise invalid(from_msgspec(str(error), kind)) from None
    for name, text in texts.items():
        if getattr(asked, name) is None:  # msgspec takes the text `null` for it, and that would list everything
            raise invalid(FieldError(name, f"must be a value, got {text}; leave it out"))
    return asked


@cache
def times_in(kind: type[msgspec.Struct]) -> frozenset[str]:
    return frozenset(name for name, hint in get_type_hints(kind).items() if datetime in (hint, *get_args(hint)))


def _time(text: str, field: str) -> datetime:
    """Strictly: where `strict=False` lets numbers come as text, it takes 0.5 for a time."""
    try:
        return msgspec.convert(text, datetime)
    except msgspec.ValidationError:
        raise invalid(FieldError(field, TIME)) from None


_LATEST: Instant = from_iso("9000-01-01T00:00:00Z")


def instant_from(value: datetime | None, field: str) -> Instant | None:
    """A time that someone sent; it needs a zone, and must be one that every part of the world can write down."""
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
