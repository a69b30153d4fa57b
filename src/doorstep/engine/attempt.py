"""Step four: make a claim ready to be sent: headers, signature, deadline."""

from __future__ import annotations

import msgspec

from doorstep.clock import SECOND, Instant, to_iso
from doorstep.engine.directory import Profile
from doorstep.model.claim import Claim
from doorstep.telemetry.tracing import TraceContext, Tracing, attempt_span, context_of, outgoing, passed_on
from doorstep.transports.transport import Transmission


def prepare(claim: Claim, profile: Profile, now: Instant, tracing: Tracing | None = None) -> Transmission:
    """The try as it will be sent: its claim holds the body. `webhook-id` is the event's id: the same for all attempts."""
    told = _told(claim, tracing)
    if profile.endpoint.url is None:
        return Transmission(claim, profile.target, told, "\n".join(told).encode(), profile.timeout_seconds)
    if profile.endpoint.envelope:
        claim = claim._replace(payload=enveloped(claim.event_type, claim.accepted_at, claim.payload))
    lines = (
        *told,
        *profile.signer.headers(str(claim.event_id), now // SECOND, claim.payload),
    )
    return Transmission(
        claim,
        profile.target,
        profile.header_lines + lines,
        "\n".join((profile.logged_lines, *lines)).encode(),
        profile.timeout_seconds,
    )


def _told(claim: Claim, tracing: Tracing | None) -> tuple[str, ...]:
    """What ties the attempt to the request that sent the event: its correlation id, and its trace if there is one.

    Where there is none, none is told: a receiver would take one that is not recorded for the order not to record its
    own part either.
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
    """The payload's own bytes inside an envelope, which is the same for all attempts: its time is that of acceptance."""
    head = msgspec.json.encode({"type": event_type, "timestamp": to_iso(accepted_at)})
    return b'%b,"data":%b}' % (head[:-1], payload)
