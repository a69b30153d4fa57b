"""Verifying a webhook: `v1` (HMAC-SHA256) and `v1a` (Ed25519) of Standard Webhooks 1.0.

What is verified are the bytes of the body as they came. JSON that was parsed and written again does not verify.
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
"""As any framework has them; upper and lower case are the same."""

_ID, _TIMESTAMP, _SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
_TIMESTAMP_DIGITS_MAX = 15


@dataclass(frozen=True, slots=True)
class Received:
    """A webhook that is what it says it is."""

    webhook_id: str
    """The event's id: the same each time it is sent. Handle each id once."""
    sent_at: datetime
    body: bytes

    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)


class Webhook:
    """Verifies the webhooks of one endpoint.

    Give it the endpoint's secret (`whsec_…`) or public key (`whpk_…`); during a rotation the old and the new one.
    """

    def __init__(self, *secrets: str, tolerance_seconds: float = TOLERANCE_SECONDS) -> None:
        if not secrets:
            raise InvalidInput("secrets", "must hold at least one, got none; without it nothing can be verified")
        self._checks = tuple(verifier_for(secret) for secret in secrets)
        self._tolerance_seconds = tolerance_seconds

    def verify(self, headers: Headers, body: bytes, *, now: float | None = None) -> Received:
        """The webhook, or Unverified with the reason. `now` is in seconds since 1970, for tests."""
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
        """All comparisons are made, in constant time, whatever the first ones say."""
        content = b"%b.%b.%b" % (found[_ID].encode(), found[_TIMESTAMP].encode(), body)
        given = found[_SIGNATURE].split(" ")
        matches = [check(content, signature) for check in self._checks for signature in given]
        if not any(matches):
            raise SignatureWrong(f"no signature in {_SIGNATURE} was made with the secret of this endpoint")


def _must_be_bytes(body: object) -> None:
    if not isinstance(body, bytes | bytearray):
        raise TypeError(f"body must be the bytes of the request as they came, got {type(body).__name__}")


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
    """It cannot be shown that this request comes from Doorstep, now and unchanged."""


class HeaderMissing(Unverified):
    """A header that every webhook has is not there."""

    def __init__(self, header: str) -> None:
        super().__init__(f"the header {header} is missing")
        self.header = header


class HeaderUnreadable(Unverified):
    """A header is not what it should be."""

    def __init__(self, header: str, rule: str) -> None:
        super().__init__(f"the header {header} must be {rule}")
        self.header = header


class TooOld(Unverified):
    """It was sent longer ago than is tolerated."""


class TooNew(Unverified):
    """It was sent further in the future than is tolerated."""


class SignatureWrong(Unverified):
    """None of its signatures was made with one of the secrets."""


class StillHandling(DoorstepError):
    """The same webhook came again while it is being handled; the sender should come back later."""
