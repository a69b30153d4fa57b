"""Verifying a webhook: `v1` (HMAC-SHA256) and `v1a` (Ed25519) of Standard Webhooks 1.0.

Pass the bytes of the body exactly as received. The signature does not match JSON that was parsed and serialized again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

from doorstep.errors import DoorstepError, InvalidInput
from doorstep.transports.signature import TOLERANCE_SECONDS, verifier_for

Headers: TypeAlias = Mapping[str, str] | Iterable[tuple[str, str]]
"""The headers as any framework provides them; names are case-insensitive."""

_ID, _TIMESTAMP, _SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
_TIMESTAMP_DIGITS_MAX = 15


@dataclass(frozen=True, slots=True)
class Received:
    """A verified webhook."""

    webhook_id: str
    """The event's id: the same for every attempt. Handle each id once."""
    sent_at: datetime
    body: bytes

    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)


class Webhook:
    """Verifies the webhooks of one endpoint.

    Pass the endpoint's secret (`whsec_…`) or public key (`whpk_…`); during a rotation, both the old and the new one.
    """

    def __init__(self, *secrets: str, tolerance_seconds: float = TOLERANCE_SECONDS) -> None:
        if not secrets:
            raise InvalidInput(
                "secrets", "must contain at least one secret, got none; nothing can be verified without one"
            )
        self._checks = tuple(verifier_for(secret) for secret in secrets)
        self._tolerance_seconds = tolerance_seconds

    def verify(self, headers: Headers, body: bytes, *, now: float | None = None) -> Received:
        """Return the webhook, or raise Unverified with the reason. `now` is in seconds since 1970, for tests."""
        _must_be_bytes(body)
        found = _webhook_headers(headers)
        sent = _timestamp(found[_TIMESTAMP])
        self._check_age(sent, time.time() if now is None else now)
        self._check_signature(found, body)
        return Received(found[_ID], datetime.fromtimestamp(sent, UTC), bytes(body))

    def _check_age(self, sent: int, now: float) -> None:
        tolerated = f"{self._tolerance_seconds:g} s"
        if sent < now - self._tolerance_seconds:
            raise TooOld(f"{_TIMESTAMP} is {now - sent:.0f} s ago; up to {tolerated} are tolerated")
        if sent > now + self._tolerance_seconds:
            raise TooNew(f"{_TIMESTAMP} is {sent - now:.0f} s ahead; up to {tolerated} are tolerated")

    def _check_signature(self, found: Mapping[str, str], body: bytes) -> None:
        """Compare every signature with every secret in constant time, even after a match."""
        content = b"%b.%b.%b" % (found[_ID].encode(), found[_TIMESTAMP].encode(), body)
        given = found[_SIGNATURE].split(" ")
        matches = [check(content, signature) for check in self._checks for signature in given]
        if not any(matches):
            raise SignatureWrong(f"no signature in {_SIGNATURE} matches the secret of this endpoint")


def _must_be_bytes(body: object) -> None:
    if not isinstance(body, bytes | bytearray):
        raise TypeError(f"body must be the bytes of the request as received, got {type(body).__name__}")


def _webhook_headers(headers: Headers) -> dict[str, str]:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    lowered = {name.lower(): value for name, value in pairs}
    for name in (_ID, _TIMESTAMP, _SIGNATURE):
        if not lowered.get(name):
            raise HeaderMissing(name)
        if not lowered[name].isascii():
            raise HeaderUnreadable(name, "ASCII")
    return lowered


def _timestamp(text: str) -> int:
    if not (text.isdigit() and len(text) <= _TIMESTAMP_DIGITS_MAX):
        raise HeaderUnreadable(_TIMESTAMP, "the seconds since 1970, as a whole number")
    return int(text)


class Unverified(DoorstepError):
    """The request could not be verified: it is not from Doorstep, was changed in transit, or is too old or too new."""


class HeaderMissing(Unverified):
    """A required header is missing."""

    def __init__(self, header: str) -> None:
        super().__init__(f"the header {header} is missing")
        self.header = header


class HeaderUnreadable(Unverified):
    """A header is malformed."""

    def __init__(self, header: str, rule: str) -> None:
        super().__init__(f"the header {header} must be {rule}")
        self.header = header


class TooOld(Unverified):
    """The timestamp is older than the tolerance."""


class TooNew(Unverified):
    """The timestamp is further in the future than the tolerance."""


class SignatureWrong(Unverified):
    """None of the signatures matches any of the secrets."""


class StillHandling(DoorstepError):
    """The same webhook is already being handled; the sender should try again later."""
