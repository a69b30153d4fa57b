"""Encryption of secrets at rest: AES-256-GCM, bound to the row that a secret belongs to.

`context` identifies the row. The context is authenticated but not stored with the secret, so a sealed secret that is
copied into another row cannot be decrypted there.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from doorstep.errors import ConfigError, DoorstepError

_VERSION = b"\x01"
_KEY_BYTES = 32
_NONCE_BYTES = 12
_TAG_BYTES = 16


class UnsealError(DoorstepError):
    """A value cannot be decrypted: it was sealed with another key or for another row, or it is damaged."""


class Sealer:
    """Encrypts and decrypts with one key. Nonces are random, which is safe for about four billion values."""

    def __init__(self, key: bytes) -> None:
        if len(key) != _KEY_BYTES:
            raise ConfigError(f"DOORSTEP_SECRET_KEY must have {_KEY_BYTES} bytes, got {len(key)}{_CREATE_ONE}")
        self._cipher = AESGCM(key)
        self.fingerprint = int.from_bytes(hmac.digest(key, b"doorstep key check", "sha256")[:8], "big", signed=True)
        """Identifies the key without revealing it. 8 bytes fit into an integer column of any database."""

    @classmethod
    def from_text(cls, secret_key: str) -> Sealer:
        """A sealer with the key from `DOORSTEP_SECRET_KEY`: 32 bytes in standard or URL-safe base64."""
        try:
            key = base64.b64decode(secret_key.strip().translate(_TO_STANDARD_ALPHABET), validate=True)
        except (binascii.Error, ValueError):
            raise ConfigError(f"DOORSTEP_SECRET_KEY must be base64 of {_KEY_BYTES} bytes{_CREATE_ONE}") from None
        return cls(key)

    def seal(self, secret: bytes, *, context: str) -> bytes:
        """Encrypt a secret. The result is a version byte, the nonce, and the ciphertext with its tag."""
        nonce = os.urandom(_NONCE_BYTES)
        return _VERSION + nonce + self._cipher.encrypt(nonce, secret, _bound(context))

    def unseal(self, sealed: bytes, *, context: str) -> bytes:
        """Decrypt a value that was sealed for the same context; raises UnsealError otherwise."""
        if len(sealed) < 1 + _NONCE_BYTES + _TAG_BYTES or sealed[:1] != _VERSION:
            raise UnsealError("not a sealed value of a known version; restore it from a backup or enter it again")
        nonce, ciphertext = sealed[1 : 1 + _NONCE_BYTES], sealed[1 + _NONCE_BYTES :]
        try:
            return self._cipher.decrypt(nonce, ciphertext, _bound(context))
        except InvalidTag:
            raise UnsealError(
                "a stored secret cannot be decrypted with this DOORSTEP_SECRET_KEY; "
                "start with the key that it was encrypted with, or enter the secret again"
            ) from None


def new_secret_key() -> str:
    """A new random value for `DOORSTEP_SECRET_KEY`."""
    return base64.b64encode(os.urandom(_KEY_BYTES)).decode()


_TO_STANDARD_ALPHABET = str.maketrans("-_", "+/")
_CREATE_ONE = "; create one with: python -c 'from doorstep.encryption import new_secret_key; print(new_secret_key())'"


def _bound(context: str) -> bytes:
    return _VERSION + context.encode()
