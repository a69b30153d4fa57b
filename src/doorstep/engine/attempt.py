"""Step four: prepare an attempt with its headers, signature and deadline."""

from __future__ import annotations

import msgspec

from doorstep.clock import SECOND, Instant, to_iso
from doorstep.engine.directory import Profile
from doorstep.model.claim import Claim
from doorstep.telemetry.tracing import TraceContext, Tracing, attempt_span, context_of, outgoing, passed_on
from doorstep.transports.transport import Transmission


def prepare(claim: Claim, profile: Profile, now: Instant, tracing: Tracing | None) -> Transmission:
    """The attempt as it will be sent. `webhook-id` is the id of the event, which is the same in all attempts."""
    lines = logged = _trace_headers(claim, tracing)
    if profile.signed:
        if profile.endpoint.envelope:
            claim = claim._replace(payload=enveloped(claim.event_type, claim.accepted_at, claim.payload))
        own = lines + profile.signer.headers(str(claim.event_id), now // SECOND, claim.payload)
        lines, logged = profile.header_lines + own, (profile.logged_lines, *own)
    return Transmission(claim, profile.target, lines, "\n".join(logged).encode(), profile.timeout_seconds)


def _trace_headers(claim: Claim, tracing: Tracing | None) -> tuple[str, ...]:
    """Headers that link the attempt to the request that sent the event: the correlation id, and the trace if any.

    Without a trace, no `traceparent` is sent, because an unsampled one would tell the receiver not to record its own
    spans.
    """
    correlation = claim.correlation_line
    if claim.trace is None:
        return (correlation,)
    context = context_of(claim.trace)
    state = (f"tracestate: {context.state}",) if context.state else ()
    return correlation, f"traceparent: {_parent(claim, context, tracing)}", *state


def _parent(claim: Claim, context: TraceContext, tracing: Tracing | None) -> str:
    if tracing and tracing.samples(context):
        return outgoing(context, attempt_span(claim.delivery_id, claim.attempt))
    return passed_on(context, claim.event_id)


def enveloped(event_type: str, accepted_at: Instant, payload: bytes) -> bytes:
    """Wrap the payload in an envelope. The timestamp in the envelope is the time of acceptance, so that all attempts
    send the same bytes."""
    head = msgspec.json.encode({"type": event_type, "timestamp": to_iso(accepted_at)})
    return b'%b,"data":%b}' % (head[:-1], payload)
