"""Confirmations, and payloads as they are typed."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import typer

from doorstep.cli.output import Output, say, visible
from doorstep.errors import ConfigError, DoorstepError


def confirm(output: Output, question: str, yes: bool) -> None:
    """Go on only if the user says so, here or by --yes."""
    if yes:
        return
    if output.as_json or not sys.stdin.isatty():
        raise ConfigError(f"{question.rstrip('?')} needs a yes, and nobody can be asked here; add --yes")
    if not _agreed(visible(question)):
        raise DoorstepError("nothing was done")


def _agreed(question: str) -> bool:
    try:
        return typer.confirm(question, err=True)
    except typer.Abort:  # Ctrl-C or Ctrl-D
        return False


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
