"""Reading request bodies: bounded, strict, and with the field named when something is wrong.

One parser for all routes (msgspec), so that the same rubbish gets the same answer everywhere. It takes no NaN, no
lone surrogates, no trailing commas; Python's own json module takes all of the first two.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from doorstep.api.problems import FieldError, Problem, Refusal, invalid

T = TypeVar("T")

SMALL_BODY_BYTES_MAX = 256 * 1024
"""For everything that is not an event: endpoints, policies, filters."""
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
        raise invalid(field_error(str(error))) from None
    except RecursionError:
        raise Refusal(Problem.INVALID_JSON, "the body is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise Refusal(Problem.INVALID_JSON, f"the body is not UTF-8: see byte {error.start}") from None
    except msgspec.DecodeError as error:
        raise Refusal(Problem.INVALID_JSON, f"the body is not JSON: {_plain(error)}") from None


class StrictRequest(Request):
    """The request that FastAPI's routes get: its body is bounded and parsed by `decode`."""

    async def body(self) -> bytes:
        if not hasattr(self, "_body"):
            self._body = await read_body(self, SMALL_BODY_BYTES_MAX)
        return self._body

    async def json(self) -> Any:
        return decode(_any, await self.body())


_any: msgspec.json.Decoder[Any] = msgspec.json.Decoder()

_AT = re.compile(r" - at `(?:key in )?\$\.?(.*?)`$")
_FIELD = re.compile(r"^Object (missing required|contains unknown) field `(.*)`$", re.DOTALL)
_EXPECTED = re.compile(r"^Expected `(.+?)`(?:, got `(.+)`)?$")
_WORDS = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "null",
    "array": "a list",
    "object": "an object",
    "uuid": "a UUID",
    "datetime": "a time such as 2026-01-31T12:00:00Z",
}


def field_error(sentence: str) -> FieldError:
    """msgspec's sentence, taken apart: the path to the field, and a message in the words of JSON."""
    at = _AT.search(sentence)
    path, rest = (at[1], sentence[: at.start()]) if at else ("", sentence)
    if about := _FIELD.match(rest):
        return FieldError(
            f"{path}.{about[2]}".lstrip("."), "is required" if about[1][0] == "m" else "is not known here; remove it"
        )
    if expected := _EXPECTED.match(rest):
        got = f", got {_words(expected[2])}" if expected[2] else ""
        return FieldError(path or "body", f"must be {_words(expected[1])}{got}")
    return FieldError(path or "body", rest[:1].lower() + rest[1:].replace("`", ""))


def _words(types: str) -> str:
    return " or ".join(_WORDS.get(name, name) for name in types.split(" | "))


def _plain(error: msgspec.DecodeError) -> str:
    text = str(error).removeprefix("JSON is malformed: ")
    return text[:1].lower() + text[1:]


def _too_large(bytes_max: int, *, hang_up: bool) -> Refusal:
    headers = {"Connection": "close"} if hang_up else {}
    return Refusal(Problem.TOO_LARGE, f"the body may have at most {bytes_max} bytes", headers=headers)
