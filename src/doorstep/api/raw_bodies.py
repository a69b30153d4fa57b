"""Bodies that carry a payload: its bytes must stay as they came, so msgspec reads them instead of pydantic."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import Depends
from starlette.requests import Request

from doorstep.api.bodies import OVERHEAD_BYTES, decode, read_body
from doorstep.api.limits import EventType
from doorstep.api.plain_operations import body_of

_NOTHING = msgspec.Raw(b"")


class TestIn(msgspec.Struct, forbid_unknown_fields=True):
    """What a test sends; without it, a short greeting of the type `doorstep.test`."""

    event_type: EventType | None = None
    payload: msgspec.Raw = msgspec.field(default_factory=lambda: _NOTHING)


class LetterRetryIn(msgspec.Struct, forbid_unknown_fields=True):
    """With a payload, that is delivered from now on instead of the event's."""

    reason: Annotated[str, msgspec.Meta(max_length=500)] = ""
    payload: msgspec.Raw = msgspec.field(default_factory=lambda: _NOTHING)


def given(payload: msgspec.Raw) -> bytes | None:
    """The bytes, or None where there was no such field. (A payload of null is a payload.)"""
    return bytes(payload) or None


async def _test_in(request: Request) -> TestIn:
    return decode(_test_decoder, await _body(request) or b"{}")


async def _letter_retry_in(request: Request) -> LetterRetryIn:
    return decode(_letter_retry_decoder, await _body(request) or b"{}")


async def _body(request: Request) -> bytes:
    """A payload may be as large here as in an event."""
    return await read_body(request, request.app.state.payload_bytes_max + OVERHEAD_BYTES)


_test_decoder = msgspec.json.Decoder(TestIn)
_letter_retry_decoder = msgspec.json.Decoder(LetterRetryIn)

TestBody = Annotated[TestIn, Depends(_test_in)]
LetterRetryBody = Annotated[LetterRetryIn, Depends(_letter_retry_in)]
TEST_OPERATION: dict[str, Any] = body_of(TestIn)
LETTER_RETRY_OPERATION: dict[str, Any] = body_of(LetterRetryIn)
"""For the OpenAPI document: `openapi_extra` of the route."""
