"""What a Python handler returned or raised, as a Reply."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, overload
from uuid import UUID

import msgspec

from doorstep.clock import Instant
from doorstep.errors import HandlerFailure, Permanent, Transient, seconds_from
from doorstep.model.attempt import Category, Code, Failure
from doorstep.model.claim import Claim
from doorstep.model.record import Record
from doorstep.telemetry.redaction import scrubbed, traceback_of
from doorstep.telemetry.tracing import within
from doorstep.transports.redaction import Redaction

_DETAIL_CHARS_MAX = 8_000
_MESSAGE_CHARS_MAX = 2_000
_CODE_CHARS_MAX = 100
_WORDS_CHARS_MAX = 4_000
"""They are shown in lists, so a whole page of an upstream's HTML must not become either."""
_WORDED = "__doorstep_worded__"


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
    """The same of what is to be awaited. What it raised is worded in a thread: with a large payload that takes long."""
    try:
        with within(given.traceparent, given.tracestate):
            return Ending(body_of(await result, bytes_max))
    except BaseException as error:  # noqa: BLE001  as above; a cancellation is how a timeout ends it
        return await asyncio.to_thread(_raised, error, given, bytes_max)


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
    known = _own(error, _WORDED)
    return known[1] if known and known[0] is payload else _described(error, Redaction(payload))


def worded(error: BaseException, payload: bytes, *data: object) -> Failure:
    """The same, with what this data holds left out of it, too. It is kept on the error for whoever asks next: masking a
    large payload takes long. By its own payload: programs raise the same error again for others."""
    failure = _described(error, Redaction(payload, *map(_as_payload, data)))
    BaseException.__setattr__(error, _WORDED, (payload, failure))  # their class may refuse it
    return failure


def _described(error: BaseException, quoted: Redaction) -> Failure:
    try:
        return _kept(_failure_of(error, quoted))
    except Exception:  # noqa: BLE001  a foreign class whose attributes are not what ours are
        message = f"The handler raised {type(error).__name__}, which cannot be described."
        return Failure(Code.HANDLER_ERROR, message, Category.TRANSIENT)


def _failure_of(error: BaseException, quoted: Redaction) -> Failure:
    unsaid = f"The handler raised {type(error).__name__}."
    detail = traceback_of(error, lambda one: _words(one, quoted), inner=True)[-_DETAIL_CHARS_MAX:]
    if not isinstance(error, HandlerFailure):
        return Failure(Code.HANDLER_ERROR, unsaid, Category.TRANSIENT, detail=detail)
    category = Category.TRANSIENT if isinstance(error, Transient) else Category.PERMANENT
    code = scrubbed(quoted.masked(str(error.code), _CODE_CHARS_MAX))
    message = scrubbed(quoted.masked(str(error.message), _MESSAGE_CHARS_MAX))
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


def _as_payload(data: object) -> bytes:
    try:
        return msgspec.json.encode(data, enc_hook=repr)
    except Exception:  # noqa: BLE001  a failed stage may have put anything there
        return repr(data).encode("utf-8", "replace")


def _words(error: BaseException, quoted: Redaction) -> str:
    """As a traceback ends with them. Python's own for it look at all errors that led to this one, each time."""
    kind = type(error)
    name = (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  whatever a foreign class does
        text = "its words cannot be had"
    said = "\n".join([f"{name}: {text}" if text else name, *map(str, _own(error, "__notes__"))])
    return scrubbed(quoted.masked(said, _WORDS_CHARS_MAX))


def _own(error: BaseException, name: str) -> Sequence[Any]:
    """What was put on an error, whatever its class says of attributes."""
    found = BaseException.__getattribute__(error, "__dict__").get(name, ())
    return found if isinstance(found, list | tuple) else ()


T = TypeVar("T")


class Received(Record, frozen=True, kw_only=True):
    """One delivery of one event, at one attempt. The same event may come again."""

    event_id: UUID
    """The same for all attempts: what to recognise a repetition by."""
    delivery_id: UUID
    event_type: str
    payload: bytes
    attempt: int
    retry_attempts: int
    correlation_id: str
    accepted_at: Instant
    endpoint_id: UUID = UUID(int=0)
    org_id: UUID = UUID(int=0)
    retries_max: int = 0
    metadata_bytes: bytes = b"{}"
    traceparent: str | None = None
    """The W3C trace context of this attempt, to be passed on with whatever the handler asks of others. Programs that use
    OpenTelemetry need not: the handler runs within it."""
    tracestate: str | None = None

    @overload
    def json(self) -> Any: ...
    @overload
    def json(self, type: type[T]) -> T: ...
    def json(self, type: Any = Any) -> Any:
        """The payload, decoded; into a dataclass or msgspec type if one is given.

        A payload that is no such thing is `Permanent("INVALID_FORMAT", …)`: it will be none at the next attempt either.
        """
        try:
            return msgspec.json.decode(self.payload, type=type)
        except msgspec.ValidationError as error:
            raise Permanent(Code.INVALID_FORMAT, _mismatch(type, str(error))) from None

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the sender said about the event beside its payload."""
        decoded: dict[str, Any] = msgspec.json.decode(self.metadata_bytes)
        return decoded


Handler = Callable[[Received], object] | Callable[[Received], Awaitable[object]]
"""A plain or async function of one argument. To return is success; see `Transient` and `Permanent` for the rest."""


def received(claim: Claim, headers: Sequence[str] = ()) -> Received:
    """What the handler is given of a claim, and of the headers that a receiver would be sent."""
    said = dict(line.split(": ", 1) for line in headers) if len(headers) > 1 else {}
    return Received(
        event_id=claim.event_id,
        delivery_id=claim.delivery_id,
        event_type=claim.event_type,
        payload=claim.payload,
        attempt=claim.attempt,
        retry_attempts=claim.retry_attempts,
        correlation_id=claim.correlation_id,
        accepted_at=claim.accepted_at,
        endpoint_id=claim.endpoint_id,
        org_id=claim.org_id,
        retries_max=claim.retries_max,
        metadata_bytes=claim.metadata,
        traceparent=said.get("traceparent"),
        tracestate=said.get("tracestate"),
    )


_QUOTED = re.compile(r"(Invalid [a-z ]*value) (?:.*(?= - at `)|.*)", re.DOTALL)
"""Where msgspec quotes what it found: payloads do not belong into reasons."""


def _mismatch(type: Any, complaint: str) -> str:
    name = getattr(type, "__name__", str(type))
    return f"The payload is no {name}: " + _QUOTED.sub(r"\1", complaint)
