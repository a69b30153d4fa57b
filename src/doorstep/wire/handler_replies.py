"""What a Python handler returned or raised, as a Reply."""

from __future__ import annotations

import traceback
from types import TracebackType

import msgspec

from doorstep.errors import HandlerFailure, Transient
from doorstep.model.outcome import Category, Code, Failure

_DETAIL_CHARS_MAX = 8_000
_MASKED_CHARS_MIN = 4
"""A shorter payload is found in any text by chance."""


def body_of(result: object, bytes_max: int) -> bytes:
    """What a handler returned, for the attempt log. What cannot be written down is left out: it is no failure."""
    if result is None:
        return b""
    if isinstance(result, str):
        result = result.encode("utf-8", "replace")
    if isinstance(result, bytes | bytearray):
        return bytes(result[:bytes_max])
    try:
        return msgspec.json.encode(result)[:bytes_max]
    except Exception:  # noqa: BLE001  whatever a foreign object does when it is encoded
        return b""


def response_of(error: BaseException | None) -> object:
    """What the other side said, where the handler passes it on."""
    return error.response if isinstance(error, HandlerFailure) else None


def failure_of(error: BaseException, payload: bytes) -> Failure:
    """What a handler raised. Only its own words for people (`Transient`, `Permanent`) become the message."""
    if isinstance(error, HandlerFailure):
        category = Category.TRANSIENT if isinstance(error, Transient) else Category.PERMANENT
        message = _masked(error.message, payload)
        return Failure(error.code, message, category, error.retry_after, _detail(error, payload))
    message = f"The handler raised {type(error).__name__}."
    return Failure(Code.HANDLER_ERROR, message, Category.TRANSIENT, detail=_detail(error, payload))


def _detail(error: BaseException, payload: bytes) -> str:
    """The traceback from the handler on, its end if it is long, and without the payload."""
    text = "".join(traceback.format_exception(type(error), error, _below_ours(error.__traceback__)))
    return _masked(text, payload)[-_DETAIL_CHARS_MAX:]


def _below_ours(frames: TracebackType | None) -> TracebackType | None:
    return frames.tb_next if frames is not None else None


def _masked(text: str, payload: bytes) -> str:
    """Tracebacks print source lines, not values; but an exception's own text may quote what it was given."""
    plain = payload.decode("utf-8", "replace")
    for spelling in (plain, repr(payload)[2:-1], repr(plain)[1:-1]):
        if len(spelling) >= _MASKED_CHARS_MIN:
            text = text.replace(spelling, "[payload]")
    return text
