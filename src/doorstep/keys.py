"""API keys: how they are made, hashed and shown. A key is random enough that a plain hash protects it."""

from __future__ import annotations

import hashlib
import secrets

_PREFIX_CHARACTERS = 12


def new_key() -> str:
    """A key of 256 random bits; `dsk_` lets scanners recognise one that leaked."""
    return "dsk_" + secrets.token_urlsafe(32)


def digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def prefix(key: str) -> str:
    """The part that is stored and shown, so that people can tell their keys apart."""
    return key[:_PREFIX_CHARACTERS] if len(key) >= 2 * _PREFIX_CHARACTERS else key[:4]
