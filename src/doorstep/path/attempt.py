"""Step four: make a claim ready to be sent: headers, signature, deadline."""

from __future__ import annotations

import msgspec

from doorstep.clock import SECOND, Instant, to_iso
from doorstep.model.claim import Claim
from doorstep.path.directory import Profile
from doorstep.wire.transport import Transmission


def prepare(claim: Claim, profile: Profile, now: Instant) -> Transmission:
    """The try as it will be sent: its claim holds the body. `webhook-id` is the event's id: the same for all attempts."""
    if profile.endpoint.url is None:
        return Transmission(claim, profile.target, (), b"", profile.timeout_seconds)
    if profile.endpoint.envelope:
        claim = claim._replace(payload=enveloped(claim))
    lines = (
        f"x-correlation-id: {claim.correlation_id}",
        *profile.signer.headers(str(claim.event_id), now // SECOND, claim.payload),
    )
    return Transmission(
        claim,
        profile.target,
        profile.header_lines + lines,
        "\n".join((profile.logged_lines, *lines)).encode(),
        profile.timeout_seconds,
    )


def enveloped(claim: Claim) -> bytes:
    """The payload's own bytes inside an envelope, which is the same for all attempts: its time is that of acceptance."""
    head = msgspec.json.encode({"type": claim.event_type, "timestamp": to_iso(claim.accepted_at)})
    return b'%b,"data":%b}' % (head[:-1], claim.payload)
