"""Reading request bodies: bounded, strict, and with the field named when something is wrong.

One parser for all routes (msgspec), so that the same rubbish gets the same answer everywhere. It takes no NaN, no
lone surrogates, no trailing commas; Python's own json module takes all of the first two.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from doorstep.api.problems import Problem, Refusal, invalid
from doorstep.api.wording import from_msgspec

T = TypeVar("T")

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
        raise invalid(from_msgspec(str(error))) from None
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


def _plain(error: msgspec.DecodeError) -> str:
    text = str(error).removeprefix("JSON is malformed: ")
    return text[:1].lower() + text[1:]


def _too_large(bytes_max: int, *, hang_up: bool) -> Refusal:
    headers = {"Connection": "close"} if hang_up else {}
    return Refusal(Problem.TOO_LARGE, f"the body may have at most {bytes_max} bytes", headers=headers)
