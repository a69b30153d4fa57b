"""Trace contexts: read from a sender, and passed on to a receiver.

No id is kept for our own spans: each is made of the ids of what it is about. So every process knows the id of every
other process's span, and a retry can point to the attempt before it, whoever made that one.
"""

from __future__ import annotations

import re
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
