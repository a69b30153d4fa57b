"""Payloads as they are typed: JSON itself, `@file`, or `-` for standard input."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from doorstep.cli.output import say
from doorstep.errors import ConfigError


def read_payload(what: str, words: str) -> bytes:
    """The bytes, which are sent as they are. Checked here, because a shell that ate the quotes is the usual mistake."""
    content = _read(what, words).strip()
    try:
        msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{what} must be JSON: {error}; put it in single quotes, or use @file") from None
    return content


def _read(what: str, words: str) -> bytes:
    if words == "-":
        if sys.stdin.isatty():
            say(f"Type {what}, then Ctrl-D:")
        return sys.stdin.buffer.read()
    if not words.startswith("@"):
        return words.encode("utf-8", "surrogateescape")
    try:
        return Path(words[1:]).read_bytes()
    except OSError as error:
        raise ConfigError(f"{what}: the file {words[1:]} cannot be read: {error.strerror}; check its name") from None
