"""Signatures of Standard Webhooks 1.0: `v1` is HMAC-SHA256, `v1a` is Ed25519.

The signed content is `id.timestamp.body`, so a captured request cannot be replayed later with another timestamp. While
secrets are being rotated, a request has several signatures, and a receiver accepts it if it can verify one of them.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
from collections.abc import Callable, Sequence

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC

from doorstep.errors import InvalidInput

SHARED_PREFIX, PRIVATE_PREFIX, PUBLIC_PREFIX = "whsec_", "whsk_", "whpk_"
_SHARED_BYTES_MIN, _SHARED_BYTES_MAX = 24, 64
_ED25519_BYTES = 32
_DISTINCT_BYTES_MIN = 8
"""Fewer different bytes in a secret are a placeholder. Among 24 random bytes, there are about 23 different ones."""
TOLERANCE_SECONDS = 300

_Sign = Callable[[bytes], str]
Verify = Callable[[bytes, str], bool]


class Signer:
    """Signs with all valid secrets of an endpoint. It is created once and used for all deliveries to the endpoint.

    If there are no secrets, only the id and the timestamp are sent.
    """

    def __init__(self, secrets: Sequence[str]) -> None:
        self._signs: tuple[_Sign, ...] = tuple(map(_sign_with, secrets))

    def headers(self, webhook_id: str, timestamp: int, body: bytes) -> tuple[str, ...]:
        """The `webhook-*` header lines."""
        lines = (f"webhook-id: {webhook_id}", f"webhook-timestamp: {timestamp}")
        if not self._signs:
            return lines
        content = b"%b.%d.%b" % (webhook_id.encode(), timestamp, body)
        return (*lines, "webhook-signature: " + " ".join([sign(content) for sign in self._signs]))


def new_secret() -> str:
    """A new shared secret for `v1`."""
    return SHARED_PREFIX + base64.b64encode(os.urandom(32)).decode()


def new_private_key() -> str:
    """A new private key for `v1a`. Receivers get only its public key (`public_key_of`)."""
    return PRIVATE_PREFIX + base64.b64encode(Ed25519PrivateKey.generate().private_bytes_raw()).decode()


def public_key_of(private_key: str) -> str:
    """The public key with which receivers verify signatures made with this private key."""
    return PUBLIC_PREFIX + base64.b64encode(_private_key(private_key).public_key().public_bytes_raw()).decode()


def check_own_secret(secret: str, scheme: str) -> None:
    """Raise InvalidInput for a secret from elsewhere that has the wrong form, or that could be guessed."""
    if scheme == "v1a":
        _private_key(secret)
        decoded = _decoded(secret, PRIVATE_PREFIX, _ED25519_BYTES, 2 * _ED25519_BYTES)
    else:
        decoded = _decoded(secret, SHARED_PREFIX, _SHARED_BYTES_MIN, _SHARED_BYTES_MAX)
    if len(set(decoded)) < _DISTINCT_BYTES_MIN:
        raise InvalidInput("secret", "must be random; this one repeats a few bytes, so it could be guessed")


def _sign_with(secret: str) -> _Sign:
    return _sign_ed25519(secret) if secret.startswith(PRIVATE_PREFIX) else _sign_hmac(secret)


def _sign_hmac(secret: str) -> _Sign:
    key = _decoded(secret, SHARED_PREFIX, _SHARED_BYTES_MIN, _SHARED_BYTES_MAX)
    # Copying a keyed HMAC avoids hashing the key for each message. Copying this object takes half as long as
    # copying an object from the module `hmac`.
    copy = HMAC(key, SHA256()).copy

    def sign(content: bytes) -> str:
        mac = copy()
        mac.update(content)
        return "v1," + binascii.b2a_base64(mac.finalize(), newline=False).decode()

    return sign


def _sign_ed25519(secret: str) -> _Sign:
    key = _private_key(secret)
    return lambda content: "v1a," + binascii.b2a_base64(key.sign(content), newline=False).decode()


def version_of(secret: str) -> str:
    """The version of the signatures that are made with this secret, or verified with this public key."""
    return "v1a" if secret.startswith((PUBLIC_PREFIX, PRIVATE_PREFIX)) else "v1"


def verifier_for(secret: str) -> Verify:
    """A function that takes content and a signature, and checks the signature against this secret or public key."""
    if secret.startswith(PUBLIC_PREFIX):
        return _verify_ed25519(secret)
    sign = _sign_with(secret)
    return lambda content, given: hmac.compare_digest(sign(content).encode(), given.encode())


def _verify_ed25519(public_key: str) -> Verify:
    key = Ed25519PublicKey.from_public_bytes(_decoded(public_key, PUBLIC_PREFIX, _ED25519_BYTES, _ED25519_BYTES))

    def check(content: bytes, given: str) -> bool:
        scheme, _, encoded = given.partition(",")
        if scheme != "v1a":
            return False
        try:
            key.verify(base64.b64decode(encoded, validate=True), content)
        except (InvalidSignature, ValueError):
            return False
        return True

    return check


def _private_key(secret: str) -> Ed25519PrivateKey:
    """The private key, created from its seed, the first 32 bytes. Some libraries append the public key to the seed."""
    decoded = _decoded(secret, PRIVATE_PREFIX, _ED25519_BYTES, 2 * _ED25519_BYTES)
    if len(decoded) not in (_ED25519_BYTES, 2 * _ED25519_BYTES):
        raise InvalidInput("secret", f"must contain {_ED25519_BYTES} bytes, got {len(decoded)}")
    return Ed25519PrivateKey.from_private_bytes(decoded[:_ED25519_BYTES])


def _decoded(secret: str, prefix: str, bytes_min: int, bytes_max: int) -> bytes:
    """The bytes of a secret. Error messages never contain the secret."""
    if not secret.startswith(prefix):
        known = f"{SHARED_PREFIX} (v1) or {PRIVATE_PREFIX} (v1a, with signing set to v1a)"
        raise InvalidInput("secret", f"must begin with {known if prefix == SHARED_PREFIX else prefix}")
    try:
        decoded = base64.b64decode(secret.removeprefix(prefix), validate=True)
    except ValueError:
        raise InvalidInput("secret", f"must be base64 after {prefix}") from None
    if not bytes_min <= len(decoded) <= bytes_max:
        size = f"{bytes_min}" if bytes_min == bytes_max else f"{bytes_min} to {bytes_max}"
        raise InvalidInput("secret", f"must contain {size} bytes, got {len(decoded)}")
    return decoded
