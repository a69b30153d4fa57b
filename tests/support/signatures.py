"""Checks whether a receiver would accept a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from doorstep.receiver import Unverified, Webhook


def verify(secrets: Sequence[str], headers: Mapping[str, str], body: bytes, now_seconds: float) -> bool:
    """Whether `Webhook` accepts the signature of the request. Without secrets, the result is False."""
    try:
        return bool(secrets and Webhook(*secrets).verify(headers, body, now=now_seconds))
    except Unverified:
        return False
