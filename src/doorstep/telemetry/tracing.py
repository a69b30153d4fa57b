"""Traces: one from the acceptance of an event to its last attempt, in the terms of W3C and OpenTelemetry.

`context` says which ids a span has, `program` asks the surrounding program for its trace, `recording` decides what is
recorded, `environment` reads the OTEL_* variables, and `otlp` writes spans in the format of collectors. The OpenTelemetry
SDK takes 38 µs to encode a span, which is more than a third of what a whole delivery costs; ours takes 3.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple
from uuid import UUID

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_TRACESTATE = re.compile(r"[ -~\t]{1,512}")
_KEPT = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]( [ -~\t]{1,512})?")
_NO_TRACE, _NO_SPAN = "0" * 32, "0" * 16
_SAMPLED = 1
_SPREAD = 0x9E37_79B9_7F4A_7C15
"""An odd number with bits all over: the ids of the attempts of one delivery have nothing in common."""
_64_BITS = 0xFFFF_FFFF_FFFF_FFFF


def incoming(traceparent: str | None, tracestate: str | None = None) -> str | None:
    """A sender's context as it is kept with the event; None for none, and for what the specification says to ignore."""
    found = _TRACEPARENT.fullmatch(traceparent.strip().lower()) if isinstance(traceparent, str) else None
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == "ff" or (version == "00" and more) or trace_id == _NO_TRACE or span_id == _NO_SPAN:
        return None
    kept = f"00-{trace_id}-{span_id}-{int(flags, 16) & _SAMPLED:02x}"
    usable = isinstance(tracestate, str) and _TRACESTATE.fullmatch(tracestate := tracestate.strip())
    return f"{kept} {tracestate}" if usable else kept


def kept(trace: object) -> str | None:
    """What `incoming` once gave, if it still is that: it may have come by a table that others write to."""
    return trace if isinstance(trace, str) and _KEPT.fullmatch(trace) else None


class TraceContext(NamedTuple):
    """Where the spans of an event belong. Ids are numbers, as they are cheapest to make."""

    trace_id: int
    parent_id: int
    """The sender's span; 0 where the trace begins with us."""
    sampled: bool | None
    """Whether it is to be recorded, as the sender decided, or we did where the trace began; None before that."""
    state: str


def context_of(trace: str) -> TraceContext:
    """What is kept with an event, taken apart."""
    return TraceContext(int(trace[3:35], 16), int(trace[36:52], 16), trace[54] == "1", trace[56:])


def beginning(event_id: UUID) -> TraceContext:
    """The trace of an event that came without one: its id is the event's own."""
    return TraceContext(event_id.int, 0, None, "")


def begun(event_id: UUID) -> str:
    """The same, as it is kept with the event once it is decided to record it."""
    return f"00-{event_id.int:032x}-{_NO_SPAN}-01"


def acceptance_span(event_id: UUID) -> int:
    return event_id.int & _64_BITS or 1


def attempt_span(delivery_id: UUID, attempt: int) -> int:
    return (delivery_id.int ^ attempt * _SPREAD) & _64_BITS or 1


def late_span(delivery_id: UUID, token: int) -> int:
    """Of a result that came when its attempt had been settled without it: that has the attempt's own id already."""
    return attempt_span(delivery_id, -token)


def outgoing(context: TraceContext, span_id: int) -> str:
    """What a receiver is told: that its part of the trace comes below this span, which is recorded."""
    return f"00-{context.trace_id:032x}-{span_id:016x}-01"


def passed_on(context: TraceContext, event_id: UUID) -> str:
    """The same where the attempt has no span that anybody will see: its part comes below the sender's, as if we were not
    there, or below the acceptance where the trace began with us."""
    parent = context.parent_id or acceptance_span(event_id)
    return f"00-{context.trace_id:032x}-{parent:016x}-{'01' if context.sampled else '00'}"


_log = logging.getLogger("doorstep.tracing")

Sink = Callable[[Sequence[bytes]], None]
"""Takes spans that are over, as `otlp` writes them."""
Sampler = Callable[[TraceContext], bool]


def always(_: TraceContext) -> bool:
    return True


def never(_: TraceContext) -> bool:
    return False


def ratio(share: float) -> Sampler:
    """This share of all traces. The id of a trace decides, so every process decides alike."""
    bound = round(share * (1 << 56))
    return lambda context: context.trace_id & _56_BITS < bound


_56_BITS = (1 << 56) - 1
"""The part of a trace's id that is random, says the W3C."""


def at_most(traces_per_second: int, clock: Callable[[], float] = time.monotonic) -> Sampler:
    """All traces, until there are so many in one second."""
    second, count = 0, 0

    def sample(_: TraceContext) -> bool:
        nonlocal second, count
        if (now := int(clock())) != second:
            second, count = now, 0
        count += 1
        return count <= traces_per_second

    return sample


def parent_based(root: Sampler) -> Sampler:
    """As the sender decided; for traces that begin here, as `root` does."""
    return lambda context: root(context) if context.sampled is None else context.sampled


USUAL = parent_based(always)


class Tracing:
    """Takes the spans that are wanted."""

    def __init__(self, sink: Sink, sampler: Sampler = USUAL) -> None:
        self._sink = sink
        self.samples = sampler

    def begin(self, event_id: UUID) -> str | None:
        """The trace of an event that came without one; None if it is to have none.

        What is decided here is kept with the event. So all processes agree, and one that is not traced costs nothing.
        """
        return begun(event_id) if self.samples(beginning(event_id)) else None

    def record(self, spans: Iterable[bytes]) -> None:
        """It never raises: what the spans are about has been written, and must not seem to have failed."""
        try:
            batch = tuple(spans)
            if batch:
                self._sink(batch)
        except Exception:  # noqa: BLE001  logged, with what it was
            _log.exception("spans could not be recorded")


_TRACE = "opentelemetry.trace"


def current() -> str | None:
    """The context in which the program is sending right now, as it is kept with an event."""
    if _TRACE not in sys.modules:
        return None
    from opentelemetry.trace import get_current_span

    context = get_current_span().get_span_context()
    if not context.is_valid:
        return None
    traceparent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    return incoming(traceparent, context.trace_state.to_header())


@contextmanager
def within(traceparent: str | None, tracestate: str | None) -> Iterator[None]:
    """Let the spans that a handler makes be children of its attempt."""
    if traceparent is None or _TRACE not in sys.modules:
        yield
        return
    from opentelemetry import context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = {"traceparent": traceparent} | ({"tracestate": tracestate} if tracestate else {})
    token = context.attach(TraceContextTextMapPropagator().extract(carrier))
    try:
        yield
    finally:
        context.detach(token)
