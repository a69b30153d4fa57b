"""Whether a request would pass at its receiver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from doorstep.receiver import Unverified, Webhook


def verify(secrets: Sequence[str], headers: Mapping[str, str], body: bytes, now_seconds: float) -> bool:
    """Whether `Webhook` accepts the request. Without secrets, nothing is accepted."""
    try:
        return bool(secrets and Webhook(*secrets).verify(headers, body, now=now_seconds))
    except Unverified:
        return False
