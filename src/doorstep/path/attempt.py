"""Step four: make a claim ready to be sent: headers, signature, deadline."""

from __future__ import annotations

from doorstep.clock import SECOND, Instant
from doorstep.model.claim import Claim
from doorstep.path.directory import Profile
from doorstep.wire.transport import Transmission


def prepare(claim: Claim, profile: Profile, now: Instant) -> Transmission:
    """The try as it will be sent. `webhook-id` is the event's id: the same for all attempts."""
    if profile.endpoint.url is None:
        return Transmission(claim, profile.target, (), b"", profile.timeout_seconds)
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
