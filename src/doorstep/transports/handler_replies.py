"""Turns the result or exception of a Python handler into a reply that does not quote the payload."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, TypeVar, overload
from uuid import UUID

import msgspec

from doorstep.clock import to_datetime
from doorstep.errors import HandlerFailure, Transient, seconds_from
from doorstep.model.attempt import Category, Code, Failure
from doorstep.model.claim import Claim
from doorstep.model.record import Record
from doorstep.payloads import decoded, json_of
from doorstep.telemetry.redaction import identifiers_in, is_own_report, scrubbed, traceback_of
from doorstep.telemetry.tracing import within
from doorstep.transports.call_errors import judged
from doorstep.transports.transport import BODY_BYTES_MAX

_DETAIL_CHARS_MAX = 8_000
_MESSAGE_CHARS_MAX = 2_000
_CODE_CHARS_MAX = 100
_WORDS_CHARS_MAX = 4_000
"""The maximum lengths. Codes and messages are shown in lists, so they must not contain, for example, a page of HTML."""
_WORDED = "__doorstep_worded__"


class Ending(Record, frozen=True):
    """The result of an attempt, for the attempt log."""

    body: bytes = b""
    failure: Failure | None = None
    started: bool = True
    """False if the handler was not called."""


def ending_of(function: Callable[[Received], object], given: Received) -> Ending | Awaitable[object]:
    """Call the handler and return its result. If the handler returns an awaitable, return that instead.

    This function never raises, because the attempt would then never end.
    """
    try:
        with within(given.traceparent, given.tracestate):
            result = function(given)
    except BaseException as error:  # noqa: BLE001  SystemExit too: it must end only the attempt, not the process
        return ending_of_error(error, given)
    return result if inspect.isawaitable(result) else Ending(body_of(result))


async def awaited(result: Awaitable[object], given: Received) -> Ending:
    """Wait for an awaitable and return its result. An exception is described in a thread, because that takes long if
    the payload is large."""
    try:
        with within(given.traceparent, given.tracestate):
            return Ending(body_of(await result))
    except BaseException as error:  # noqa: BLE001  as above; CancelledError too, because a timeout cancels the task
        return await asyncio.to_thread(ending_of_error, error, given)


def ending_of_error(error: BaseException, given: Received) -> Ending:
    """The result of an attempt whose handler raised this exception."""
    return Ending(body_of(_response_of(error)), failure_of(error, given.payload))


def body_of(result: object) -> bytes:
    """The return value of a handler as bytes, for the attempt log. A value that cannot be encoded is omitted, and the
    attempt still succeeds."""
    try:
        if result is None:
            return b""
        if isinstance(result, str):
            result = result.encode("utf-8", "replace")
        if isinstance(result, bytes | bytearray):
            return bytes(result[:BODY_BYTES_MAX])
        return json_of(result)[:BODY_BYTES_MAX]
    except Exception:  # noqa: BLE001  encoding the application's object may raise anything
        return b""


def _response_of(error: BaseException) -> object:
    """The response of the service that the handler called, if the handler attached it to its exception."""
    try:
        return error.response if isinstance(error, HandlerFailure) else None
    except Exception:  # noqa: BLE001  the application's class may compute the attribute, and may fail
        return None


def failure_of(error: BaseException, payload: bytes) -> Failure:
    """The failure for an exception. It contains the exception's message only for `Transient` and `Permanent`."""
    known = _own(error, _WORDED)
    return known[1] if known and known[0] is payload else _described(error, Redaction(payload))


def worded(error: BaseException, payload: bytes, *data: object) -> Failure:
    """The failure for an exception, with the values in `data` masked too. The result is cached on the exception,
    because masking a large payload takes long. The cached result is valid for this payload only: an application may
    raise the same exception object again for another payload."""
    failure = _described(error, Redaction(payload, *map(_as_payload, data)))
    BaseException.__setattr__(error, _WORDED, (payload, failure))  # the exception's own class may forbid it
    return failure


def _described(error: BaseException, quoted: Redaction) -> Failure:
    try:
        return _kept(_failure_of(error, quoted))
    except Exception:  # noqa: BLE001  the application's class may have attributes of other types than ours
        message = f"The handler raised {type(error).__name__}, which cannot be described."
        return Failure(Code.HANDLER_ERROR, message, Category.TRANSIENT)


def _failure_of(error: BaseException, quoted: Redaction) -> Failure:
    unsaid = f"The handler raised {type(error).__name__}."
    known = identifiers_in(error)
    detail = traceback_of(error, lambda one: _words(one, quoted, known), inner=True)[-_DETAIL_CHARS_MAX:]
    if not isinstance(error, HandlerFailure):
        code, sentence = judged(error) or (Code.HANDLER_ERROR, unsaid)
        return Failure(code, sentence, Category.TRANSIENT, detail=detail)
    category = Category.TRANSIENT if isinstance(error, Transient) else Category.PERMANENT
    code = scrubbed(quoted.masked(str(error.code), _CODE_CHARS_MAX))
    message = scrubbed(quoted.masked(str(error.message), _MESSAGE_CHARS_MAX))
    if is_own_report(error):
        detail = ""  # a traceback in the log would look like a bug in Doorstep
    if not message and code == Code.HANDLER_ERROR:
        message = unsaid
    return Failure(code, message, category, seconds_from(error.retry_after), detail)


def _kept(failure: Failure) -> Failure:
    """Cut texts to the maximum lengths and make them storable. For example, file names in a traceback may contain lone
    surrogates."""
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
    except Exception:  # noqa: BLE001  a failed pipeline stage may have put any object there
        return repr(data).encode("utf-8", "replace")


def _words(error: BaseException, quoted: Redaction, known: Collection[str]) -> str:
    """The last lines of a traceback, with the exception's type, message and notes. Python's own function is not used,
    because for each exception of a chain it visits the whole chain again."""
    kind = type(error)
    home = "" if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}."
    name = home + kind.__qualname__
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  the application's class may raise anything
        text = "its message cannot be read"
    notes = "".join(f"\n{note}" for note in _own(error, "__notes__"))
    said = quoted.masked((f": {text}" if text else "") + notes, _WORDS_CHARS_MAX, known)
    shown = scrubbed(name + said)  # with the name: what follows `InvalidPassword: ` may be a password
    return shown if shown.startswith(name) else name + scrubbed(said)


def _own(error: BaseException, name: str) -> Sequence[Any]:
    """A list or tuple that was set as an attribute of an exception, even if the exception's class overrides attribute
    access."""
    found = BaseException.__getattribute__(error, "__dict__").get(name, ())
    return found if isinstance(found, list | tuple) else ()


T = TypeVar("T")


class Received(Record, frozen=True, kw_only=True):
    """One attempt to deliver an event. The same event may be delivered again."""

    event_id: UUID
    """The same for all attempts. Use it to recognise an event that was delivered before."""
    delivery_id: UUID
    event_type: str
    payload: bytes
    attempt: int
    retry_attempts: int
    correlation_id: str
    accepted_at: datetime
    endpoint_id: UUID = UUID(int=0)
    org_id: UUID = UUID(int=0)
    retries_max: int = 0
    metadata_bytes: bytes = b"{}"
    traceparent: str | None = None
    """The W3C trace context of this attempt, for requests that the handler makes. Applications that use OpenTelemetry
    do not need it, because the handler already runs in this context."""
    tracestate: str | None = None

    @overload
    def json(self) -> Any: ...
    @overload
    def json(self, type: type[T]) -> T: ...
    def json(self, type: Any = Any) -> Any:
        """The payload, decoded from JSON. If a pydantic model, dataclass, TypedDict or msgspec struct is given, the
        result is an instance of it.

        A payload that does not match the type raises `Permanent("INVALID_FORMAT", …)`, because a retry would not help.
        A type that nothing can be decoded into raises TypeError.
        """
        return decoded(self.payload, type)

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The metadata that the sender attached to the event."""
        decoded: dict[str, Any] = msgspec.json.decode(self.metadata_bytes)
        return decoded


Handler = Callable[..., object]
"""A plain or async function of the event, of its payload as an annotated parameter, or of both; see
handler_arguments.py. It returns on success, and raises `Transient` or `Permanent` on failure."""


def received(claim: Claim, headers: Sequence[str] = ()) -> Received:
    """The argument of a handler, created from a claim and the headers of the attempt."""
    said = dict(line.split(": ", 1) for line in headers) if len(headers) > 1 else {}
    return Received(
        event_id=claim.event_id,
        delivery_id=claim.delivery_id,
        event_type=claim.event_type,
        payload=claim.payload,
        attempt=claim.attempt,
        retry_attempts=claim.retry_attempts,
        correlation_id=claim.correlation_id,
        accepted_at=to_datetime(claim.accepted_at),
        endpoint_id=claim.endpoint_id,
        org_id=claim.org_id,
        retries_max=claim.retries_max,
        metadata_bytes=claim.metadata,
        traceparent=said.get("traceparent"),
        tracestate=said.get("tracestate"),
    )


MASK = "[payload]"
_CHARS_MIN = 4
"""Shorter values are not masked, because they may occur in any text by chance."""


class Redaction:
    """Masks payload values in texts. The search terms are computed when the first text is masked."""

    def __init__(self, *payloads: bytes) -> None:
        self._payloads = payloads

    def masked(self, text: str, chars_max: int, known: Collection[str] = ()) -> str:
        """The start of a text, in which all payload values of four or more characters are masked, except the `known`
        ones, which the traceback shows anyway."""
        for whole in self._wholes:
            text = text.replace(whole, MASK)
        begun = text[:chars_max]
        spans = [one for one in self._spans(begun) if begun[slice(*one)].strip("'\"\\") not in known]
        if len(begun) < len(text) and (at := self._cut_off(begun)) is not None:
            spans.append((at, len(begun)))
        return _without(begun, sorted(spans))

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        """The positions of values in the text. Nearly all values of a large payload are ruled out by their first and
        last characters, without a search."""
        parts = {text[at : at + _CHARS_MIN] for at in range(len(text) - _CHARS_MIN + 1)}
        for spelling in self._spellings:
            if spelling[:_CHARS_MIN] in parts and spelling[-_CHARS_MIN:] in parts:
                at = text.find(spelling)
                while at >= 0:
                    yield at, at + len(spelling)
                    at = text.find(spelling, at + 1)

    def _cut_off(self, text: str) -> int | None:
        """The position of a value that begins in the text but whose end was cut off."""
        for at in range(len(text) - _CHARS_MIN + 1):
            rest = text[at:]
            nearest = bisect_left(self._in_order, rest)
            if nearest < len(self._in_order) and self._in_order[nearest].startswith(rest):
                return at
        return None

    @cached_property
    def _wholes(self) -> list[str]:
        wholes = {form for payload in self._payloads for form in _wholes(payload) if len(form) >= _CHARS_MIN}
        return sorted(wholes, key=len, reverse=True)

    @cached_property
    def _spellings(self) -> set[str]:
        values: set[str] = set()
        names: set[str] = set()
        for payload in self._payloads:
            _gather(payload, values, names)
        forms = {form for value in values for form in _forms(value)}
        # Names are masked only in quotation marks, because most of them are ordinary words.
        forms |= {f"{mark}{form}{mark}" for name in names for form in _forms(name) for mark in _QUOTATION_MARKS}
        return {form for form in forms if len(form) >= _CHARS_MIN and form not in MASK}

    @cached_property
    def _in_order(self) -> list[str]:
        return sorted({*self._spellings, *self._wholes})


_QUOTATION_MARKS = ("'", '"', "\\'", '\\"')


def _wholes(payload: bytes) -> Iterator[str]:
    """The whole payload as received, and in the forms in which Python and JSON write its content."""
    yield from _forms(payload.decode("utf-8", "replace"))
    yield from _forms(repr(payload)[2:-1])
    value = _decoded(payload)
    if isinstance(value, dict | list):
        compact = msgspec.json.encode(value).decode()
        for form in (repr(value), json.dumps(value), compact):
            yield from _forms(form)


def _gather(payload: bytes, values: set[str], names: set[str]) -> None:
    """Collect all strings and numbers of a payload in `values`, and the names of its members in `names`."""
    waiting = [_decoded(payload)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            names.update(value)
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
        elif isinstance(value, str | int | float) and not isinstance(value, bool):
            values.add(str(value))


def _decoded(payload: bytes) -> object:
    try:
        return msgspec.json.decode(payload)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


_PLAIN = re.compile(r"[ !#-&(-\[\]-~]*")
"""Printable ASCII except quotation marks and backslashes. Such text is the same in Python and in JSON, without escape
sequences."""


def _forms(value: str) -> set[str]:
    """The forms in which Python and JSON write a value, and what these forms become if Python quotes them again, as it
    does in exceptions."""
    if _PLAIN.fullmatch(value):
        return {value}
    forms = {value, repr(value)[1:-1], msgspec.json.encode(value).decode()[1:-1], json.dumps(value)[1:-1]}
    return forms | {repr(f"'\"{form}")[4:-1] for form in forms} | {repr(form)[1:-1] for form in forms}


def _without(text: str, spans: list[tuple[int, int]]) -> str:
    parts, kept_from = [], 0
    for start, end in spans:
        if start >= kept_from:
            parts += [text[kept_from:start], MASK]
        kept_from = max(kept_from, end)
    return "".join([*parts, text[kept_from:]])
