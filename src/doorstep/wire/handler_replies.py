"""What a Python handler returned or raised, as a Reply."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import NamedTuple

import msgspec

from doorstep.errors import HandlerFailure, Transient, seconds_from
from doorstep.model.outcome import Category, Code, Failure
from doorstep.telemetry.scrubbing import scrubbed
from doorstep.telemetry.tracing.program import within
from doorstep.wire.quotations import spellings
from doorstep.wire.received import Received

_DETAIL_CHARS_MAX = 8_000
_MESSAGE_CHARS_MAX = 2_000
_CODE_CHARS_MAX = 100
"""They are shown in lists, so a whole page of an upstream's HTML must not become either."""
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
        with within(given.traceparent, given.tracestate):
            result = function(given)
    except BaseException as error:  # noqa: BLE001  SystemExit too: it costs the attempt, not the process
        return _raised(error, given, bytes_max)
    return result if inspect.isawaitable(result) else Ending(body_of(result, bytes_max))


async def awaited(result: Awaitable[object], given: Received, bytes_max: int) -> Ending:
    """The same of what is to be awaited."""
    try:
        with within(given.traceparent, given.tracestate):
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
        return _kept(_failure_of(error, payload))
    except Exception:  # noqa: BLE001  a foreign class whose attributes are not what ours are
        message = f"The handler raised {type(error).__name__}, which cannot be described."
        return Failure(Code.HANDLER_ERROR, message, Category.TRANSIENT)


def _failure_of(error: BaseException, payload: bytes) -> Failure:
    unsaid = f"The handler raised {type(error).__name__}."
    unspeakable = (*getattr(error, _HIDDEN, ()), *spellings(payload))
    detail = _detail(error, unspeakable)
    if not isinstance(error, HandlerFailure):
        return Failure(Code.HANDLER_ERROR, unsaid, Category.TRANSIENT, detail=detail)
    category = Category.TRANSIENT if isinstance(error, Transient) else Category.PERMANENT
    code, message = (_masked(str(one), unspeakable) for one in (error.code, error.message))
    if not message and code == Code.HANDLER_ERROR:
        message = unsaid
    return Failure(code, message, category, seconds_from(error.retry_after), detail)


def _kept(failure: Failure) -> Failure:
    """As much of it as is kept, in text that can be written: names of files have lone surrogates in them."""
    return msgspec.structs.replace(
        failure,
        code=_written(failure.code[:_CODE_CHARS_MAX]),
        message=_written(failure.message[:_MESSAGE_CHARS_MAX]),
        detail=_written(failure.detail),
    )


def _written(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def hide(error: BaseException, quotations: Sequence[str]) -> None:
    """Have these texts left out of what is kept of an error and of what led to it, as the payload is."""
    with suppress(Exception):  # a foreign class may refuse attributes
        setattr(error, _HIDDEN, quotations)


def _detail(error: BaseException, unspeakable: Sequence[str]) -> str:
    """The traceback from the handler on, its end if it is long: lines of the program, and what the errors say of it."""
    return "".join(_told(error, _below_ours(error.__traceback__), unspeakable, set()))[-_DETAIL_CHARS_MAX:]


def _told(
    error: BaseException, frames: TracebackType | None, unspeakable: Sequence[str], seen: set[int]
) -> Iterator[str]:
    """Of an error and what led to it. Its frames show source lines, never values; its own words may quote anything."""
    seen.add(id(error))
    earlier = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if earlier is not None and id(earlier) not in seen:
        yield from _told(earlier, earlier.__traceback__, unspeakable, seen)
        yield "\nwhich led to:\n\n"
    if frames is not None:
        yield "Traceback (most recent call last):\n"
        yield from traceback.format_tb(frames)
    yield _masked("".join(traceback.format_exception_only(error)), unspeakable)
    for one in error.exceptions if isinstance(error, BaseExceptionGroup) else ():
        if id(one) not in seen:
            yield "\nin it:\n\n"
            yield from _told(one, one.__traceback__, unspeakable, seen)


def _below_ours(frames: TracebackType | None) -> TracebackType | None:
    return frames.tb_next if frames is not None else None


def _masked(text: str, unspeakable: Sequence[str]) -> str:
    """An error's words without the payload and without whatever the payload holds, as far as they quote it unchanged."""
    for spelling in unspeakable:
        if spelling in text:
            text = text.replace(spelling, "[payload]")
    return scrubbed(text)
