"""What a Python handler returned or raised, as a Reply."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import NamedTuple

import msgspec

from doorstep.errors import HandlerFailure, Transient, seconds_from
from doorstep.model.outcome import Category, Code, Failure
from doorstep.wire.received import Received

_DETAIL_CHARS_MAX = 8_000
_MASKED_CHARS_MIN = 4
"""A shorter payload is found in any text by chance."""
_HIDDEN = "__doorstep_hidden__"


class Ending(NamedTuple):
    """How a call ended, as it is written down."""

    body: bytes = b""
    failure: Failure | None = None


def ending_of(function: Callable[[Received], object], given: Received, bytes_max: int) -> Ending | Awaitable[object]:
    """Call the handler and say how that ended; an awaitable that it returned has only begun, and is given back.

    It never raises: whoever waits for the ending of an attempt would wait for ever.
    """
    try:
        result = function(given)
    except BaseException as error:  # noqa: BLE001  SystemExit too: it costs the attempt, not the process
        return _raised(error, given, bytes_max)
    return result if inspect.isawaitable(result) else Ending(body_of(result, bytes_max))


async def awaited(result: Awaitable[object], given: Received, bytes_max: int) -> Ending:
    """The same of what is to be awaited."""
    try:
        return Ending(body_of(await result, bytes_max))
    except BaseException as error:  # noqa: BLE001  as above; a cancellation is how a timeout ends it
        return _raised(error, given, bytes_max)


def _raised(error: BaseException, given: Received, bytes_max: int) -> Ending:
    return Ending(body_of(response_of(error), bytes_max), failure_of(error, given.payload))


def body_of(result: object, bytes_max: int) -> bytes:
    """What a handler returned, for the attempt log. What cannot be written down is left out: it is no failure."""
    try:
        if result is None:
            return b""
        if isinstance(result, str):
            result = result.encode("utf-8", "replace")
        if isinstance(result, bytes | bytearray):
            return bytes(result[:bytes_max])
        return msgspec.json.encode(result)[:bytes_max]
    except Exception:  # noqa: BLE001  whatever a foreign object does when it is encoded
        return b""


def response_of(error: BaseException | None) -> object:
    """What the other side said, where the handler passes it on."""
    try:
        return error.response if isinstance(error, HandlerFailure) else None
    except Exception:  # noqa: BLE001  a foreign class may compute it
        return None


def failure_of(error: BaseException, payload: bytes) -> Failure:
    """What a handler raised. Only its own words for people (`Transient`, `Permanent`) become the message."""
    try:
        return _failure_of(error, payload)
    except Exception:  # noqa: BLE001  a foreign class whose attributes are not what ours are
        message = f"The handler raised {type(error).__name__}, which cannot be described."
        return Failure(Code.HANDLER_ERROR, message, Category.TRANSIENT)


def _failure_of(error: BaseException, payload: bytes) -> Failure:
    unsaid = f"The handler raised {type(error).__name__}."
    if not isinstance(error, HandlerFailure):
        return Failure(Code.HANDLER_ERROR, unsaid, Category.TRANSIENT, detail=_detail(error, payload))
    category = Category.TRANSIENT if isinstance(error, Transient) else Category.PERMANENT
    code, message = str(error.code), _masked(str(error.message), payload, error)
    if not message and code == Code.HANDLER_ERROR:
        message = unsaid
    return Failure(code, message, category, seconds_from(error.retry_after), _detail(error, payload))


def hide(error: BaseException, quotations: Sequence[str]) -> None:
    """Have these texts left out of what is kept of an error, as the payload is."""
    with suppress(Exception):  # a foreign class may refuse attributes
        setattr(error, _HIDDEN, quotations)


def _detail(error: BaseException, payload: bytes) -> str:
    """The traceback from the handler on, its end if it is long, and without the payload."""
    text = "".join(traceback.format_exception(type(error), error, _below_ours(error.__traceback__)))
    return _masked(text, payload, error)[-_DETAIL_CHARS_MAX:]


def _below_ours(frames: TracebackType | None) -> TracebackType | None:
    return frames.tb_next if frames is not None else None


def _masked(text: str, payload: bytes, error: BaseException) -> str:
    """Tracebacks print source lines, not values; but an exception's own text may quote what it was given."""
    plain = payload.decode("utf-8", "replace")
    for spelling in (plain, repr(payload)[2:-1], repr(plain)[1:-1], *getattr(error, _HIDDEN, ())):
        if len(spelling) >= _MASKED_CHARS_MIN:
            text = text.replace(spelling, "[payload]")
    return text
