"""Traces: one for each event, from its acceptance to its last attempt, following the W3C and OpenTelemetry standards.

This module has the ids of spans, the samplers, and the trace context of the surrounding program. `otlp` encodes spans
and reads the OTEL_* variables. The OpenTelemetry SDK takes 38 µs to encode a span, more than a third of the cost of a
whole delivery; our encoder takes 2 µs.
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
"""An odd number with scattered bits, so that the span ids of one delivery's attempts differ in many bits."""
_64_BITS = 0xFFFF_FFFF_FFFF_FFFF


def incoming(traceparent: str | None, tracestate: str | None = None) -> str | None:
    """A sender's trace context in the form that is stored with the event. None if there is none, or if the
    specification says to ignore it."""
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
    """A stored trace context if it is valid, otherwise None. Other programs may write to the outbox."""
    return trace if isinstance(trace, str) and _KEPT.fullmatch(trace) else None


class TraceContext(NamedTuple):
    """The trace of an event. Ids are integers, because those are the cheapest to create."""

    trace_id: int
    parent_id: int
    """The sender's span; 0 if the trace starts here."""
    sampled: bool | None
    """Whether the trace is recorded, as decided by the sender or by Doorstep; None before the decision."""
    state: str


def context_of(trace: str) -> TraceContext:
    """Parse the context stored with an event."""
    return TraceContext(int(trace[3:35], 16), int(trace[36:52], 16), trace[54] == "1", trace[56:])


def beginning(event_id: UUID) -> TraceContext:
    """The trace of an event that was sent without a trace context. The trace id is the event's id."""
    return TraceContext(event_id.int, 0, None, "")


def begun(event_id: UUID) -> str:
    """The trace context to store with an event that was sent without one, if its trace is recorded."""
    return f"00-{event_id.int:032x}-{_NO_SPAN}-01"


def acceptance_span(event_id: UUID) -> int:
    return event_id.int & _64_BITS or 1


def attempt_span(delivery_id: UUID, attempt: int) -> int:
    return (delivery_id.int ^ attempt * _SPREAD) & _64_BITS or 1


def late_span(delivery_id: UUID, token: int) -> int:
    """The span id of a late result. The attempt had already been settled with another result, and the span of that
    result has the attempt's usual span id."""
    return attempt_span(delivery_id, -token)


def outgoing(context: TraceContext, span_id: int) -> str:
    """The `traceparent` for a receiver. This span is recorded, and the receiver's spans become its children."""
    return f"00-{context.trace_id:032x}-{span_id:016x}-01"


def passed_on(context: TraceContext, event_id: UUID) -> str:
    """The `traceparent` for a receiver if the attempt's own span is not recorded.

    The receiver's spans become children of the sender's span, or of the acceptance span if the trace started here.
    """
    parent = context.parent_id or acceptance_span(event_id)
    return f"00-{context.trace_id:032x}-{parent:016x}-{'01' if context.sampled else '00'}"


_log = logging.getLogger("doorstep.tracing")

Sink = Callable[[Sequence[bytes]], None]
"""A function that receives finished spans, as encoded by `otlp`."""
Sampler = Callable[[TraceContext], bool]


def always(_: TraceContext) -> bool:
    return True


def never(_: TraceContext) -> bool:
    return False


def ratio(share: float) -> Sampler:
    """Sample this share of all traces. The decision depends on the trace id, so all processes agree."""
    bound = round(share * (1 << 56))
    return lambda context: context.trace_id & _56_BITS < bound


_56_BITS = (1 << 56) - 1
"""The bits of a trace id that are random according to the W3C standard."""


def at_most(traces_per_second: int, clock: Callable[[], float] = time.monotonic) -> Sampler:
    """Sample all traces, up to this number per second."""
    second, count = 0, 0

    def sample(_: TraceContext) -> bool:
        nonlocal second, count
        if (now := int(clock())) != second:
            second, count = now, 0
        count += 1
        return count <= traces_per_second

    return sample


def parent_based(root: Sampler) -> Sampler:
    """Follow the sender's decision. For traces that start here, `root` decides."""
    return lambda context: root(context) if context.sampled is None else context.sampled


USUAL = parent_based(always)


class Tracing:
    """Samples traces and records spans."""

    def __init__(self, sink: Sink, sampler: Sampler = USUAL) -> None:
        self._sink = sink
        self.samples = sampler

    def begin(self, event_id: UUID) -> str | None:
        """The trace of an event that was sent without a trace context; None if the event is not sampled.

        The decision is stored with the event, so all processes agree, and an event that is not sampled costs nothing.
        """
        return begun(event_id) if self.samples(beginning(event_id)) else None

    def record(self, spans: Iterable[bytes]) -> None:
        """Record spans. This never raises: the operation is already stored and must not appear to have failed."""
        try:
            batch = tuple(spans)
            if batch:
                self._sink(batch)
        except Exception:  # noqa: BLE001  logged with its traceback
            _log.exception("cannot record spans")


_TRACE = "opentelemetry.trace"


def current() -> str | None:
    """The current trace context of the program, in the form that is stored with an event."""
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
    """Make the spans of a handler children of its attempt."""
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
