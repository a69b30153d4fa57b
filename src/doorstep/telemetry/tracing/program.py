"""The traces of the program that Doorstep is part of, where it uses OpenTelemetry.

Nothing is imported for its sake: a program that has not loaded OpenTelemetry has no span that could be current.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from doorstep.telemetry.tracing.context import incoming

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
