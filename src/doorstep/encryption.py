"""Secrets at rest: AES-256-GCM, bound to the row they belong to.

A sealed value names nothing but its format; what it is and where it stands goes in as `context`, which is
authenticated but not stored. So a sealed secret that is copied into another row cannot be opened there.
"""

from __future__ import annotations

import base64
import binascii
import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from doorstep.errors import ConfigError, DoorstepError

_VERSION = b"\x01"
_KEY_BYTES = 32
_NONCE_BYTES = 12
_TAG_BYTES = 16


class UnsealError(DoorstepError):
    """A sealed value cannot be opened: another key sealed it, it was moved, or it is damaged."""


class Sealer:
    """Seals and unseals with one key. Random nonces: safe for about four thousand million values a key."""

    def __init__(self, key: bytes) -> None:
        if len(key) != _KEY_BYTES:
            raise ConfigError(f"the sealing key must have {_KEY_BYTES} bytes, got {len(key)}")
        self._cipher = AESGCM(key)

    @classmethod
    def from_text(cls, secret_key: str) -> Sealer:
        """From `DOORSTEP_SECRET_KEY`: base64 of 32 bytes, in the standard or the URL alphabet."""
        try:
            key = base64.b64decode(secret_key.strip().translate(_TO_STANDARD_ALPHABET), validate=True)
        except (binascii.Error, ValueError):
            raise ConfigError(f"DOORSTEP_SECRET_KEY must be base64 of {_KEY_BYTES} bytes{_MAKE_ONE}") from None
        if len(key) != _KEY_BYTES:
            raise ConfigError(f"DOORSTEP_SECRET_KEY must hold {_KEY_BYTES} bytes, got {len(key)}{_MAKE_ONE}")
        return cls(key)

    def seal(self, secret: bytes, *, context: str) -> bytes:
        """Version byte, nonce, ciphertext with tag."""
        nonce = os.urandom(_NONCE_BYTES)
        return _VERSION + nonce + self._cipher.encrypt(nonce, secret, _bound(context))

    def unseal(self, sealed: bytes, *, context: str) -> bytes:
        """What was sealed for the same context; UnsealError for everything else."""
        if len(sealed) < 1 + _NONCE_BYTES + _TAG_BYTES or sealed[:1] != _VERSION:
            raise UnsealError("not a sealed value of a known version; restore it from a backup or enter it again")
        nonce, ciphertext = sealed[1 : 1 + _NONCE_BYTES], sealed[1 + _NONCE_BYTES :]
        try:
            return self._cipher.decrypt(nonce, ciphertext, _bound(context))
        except InvalidTag:
            raise UnsealError(
                "a stored secret cannot be opened with this DOORSTEP_SECRET_KEY; "
                "start with the key that it was sealed with, or enter the secret again"
            ) from None


def new_secret_key() -> str:
    """A fresh value for `DOORSTEP_SECRET_KEY`."""
    return base64.b64encode(os.urandom(_KEY_BYTES)).decode()


_TO_STANDARD_ALPHABET = str.maketrans("-_", "+/")
_MAKE_ONE = "; make one with: python -c 'from doorstep.encryption import new_secret_key; print(new_secret_key())'"


def _bound(context: str) -> bytes:
    return _VERSION + context.encode()
