"""Step four: make a claim ready to be sent: headers, signature, deadline."""

from __future__ import annotations

import msgspec

from doorstep.clock import SECOND, Instant, to_iso
from doorstep.model.claim import Claim
from doorstep.path.directory import Profile
from doorstep.telemetry.tracing.context import attempt_span, context_of, outgoing
from doorstep.telemetry.tracing.recording import Tracing
from doorstep.wire.transport import Transmission


def prepare(claim: Claim, profile: Profile, now: Instant, tracing: Tracing | None = None) -> Transmission:
    """The try as it will be sent: its claim holds the body. `webhook-id` is the event's id: the same for all attempts."""
    told = _told(claim, tracing)
    if profile.endpoint.url is None:
        return Transmission(claim, profile.target, told, "\n".join(told).encode(), profile.timeout_seconds)
    if profile.endpoint.envelope:
        claim = claim._replace(payload=enveloped(claim))
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
    correlation = f"x-correlation-id: {claim.correlation_id}"
    if claim.trace is None:
        return (correlation,)
    context = context_of(claim.trace)
    sampled = tracing.samples(context) if tracing else context.sampled is True
    parent = outgoing(context, attempt_span(claim.delivery_id, claim.attempt), sampled)
    state = (f"tracestate: {context.state}",) if context.state else ()
    return correlation, f"traceparent: {parent}", *state


def enveloped(claim: Claim) -> bytes:
    """The payload's own bytes inside an envelope, which is the same for all attempts: its time is that of acceptance."""
    head = msgspec.json.encode({"type": claim.event_type, "timestamp": to_iso(claim.accepted_at)})
    return b'%b,"data":%b}' % (head[:-1], claim.payload)
