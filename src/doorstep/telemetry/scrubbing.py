"""What may be said of errors and of other people's log lines, without repeating what was sent or what is secret.

Our own facts need none of this: they have no field for a payload, and secrets are types that show themselves as `***`.
But an exception may quote the value that it stumbled over, as drivers of databases do, and a library may log anything.
So the text of an exception is passed on only if its kind speaks of programs and machines; of all others the kind alone.
"""

from __future__ import annotations

import asyncio
import re
import traceback
from collections.abc import Iterable, Iterator
from urllib.parse import unquote

import msgspec

from doorstep.errors import DoorstepError

HIDDEN = "***"
_TEXT_CHARS_MAX = 500
_SECRET_CHARS_MIN = 4
"""A shorter one is found in any text by chance."""

_PLAIN = (
    DoorstepError,
    ArithmeticError,
    OSError,
    asyncio.CancelledError,
    asyncio.InvalidStateError,
    AttributeError,
    ImportError,
    MemoryError,
    NameError,
    NotImplementedError,
    RecursionError,
    TypeError,
)
"""Kinds of errors that speak of a program or a machine, not of the values that it was given."""

_TRACEBACK = "Traceback (most recent call last):\n"
"""Readers of logs look for it, people as well as programs."""
_URL = re.compile(r"\b([a-z][a-z0-9+.-]*://)(?:[^/?#\s@'\"]*@)?([^?#\s'\"<>]*)(?:[?#][^\s'\"<>]*)?", re.IGNORECASE)
_TOKENS = re.compile(r"\b(whsec_|whsk_|whpk_|dsk_)[A-Za-z0-9+/=_-]{8,}")
_CREDENTIALS = re.compile(
    r"((?:authorization|x-api-key|api[_-]?key|password|passwd|secret|token)['\"]?\s*[:=]\s*)(?:(?:bearer|basic)\s+)?[^\s,;&]+"
    r"|\b(bearer|basic)\s+[A-Za-z0-9+/=._~-]{8,}",
    re.IGNORECASE,
)


def scrubbed(text: str) -> str:
    """Without the user, password and query of URLs, and without what looks like a key."""
    text = _URL.sub(r"\1\2", text)
    text = _TOKENS.sub(rf"\1{HIDDEN}", text)
    return _CREDENTIALS.sub(lambda found: f"{found[1] or found[2] + ' '}{HIDDEN}", text)


def said_by(error: BaseException) -> str:
    """An error in one line: its kind, and its text if that cannot quote what was sent."""
    kind = type(error).__name__
    if not isinstance(error, _PLAIN):
        state = getattr(error, "sqlstate", None)
        return f"{kind} ({state})" if isinstance(state, str) else kind
    text = scrubbed(str(error))[:_TEXT_CHARS_MAX]
    return f"{kind}: {text}" if text else kind


def traceback_of(error: BaseException) -> str:
    """Where it happened, and what: the lines of the program, never the values of its variables."""
    return "\n".join(_parts(error, set())) + "\n"


def _parts(error: BaseException, seen: set[int]) -> Iterator[str]:
    seen.add(id(error))
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None and id(cause) not in seen:
        yield from _parts(cause, seen)
        yield "which led to:"
    frames = traceback.format_tb(error.__traceback__)
    yield "".join([_TRACEBACK, *frames] if frames else []) + said_by(error)


class Secrets:
    """The secrets that this process was started with. The log leaves them out, wherever they come from."""

    def __init__(self, secrets: Iterable[str | None] = ()) -> None:
        spellings = {form for secret in secrets if secret for form in (secret, unquote(secret), _escaped(secret))}
        long = (form for form in spellings if len(form) >= _SECRET_CHARS_MIN)
        self._spellings = sorted((form.encode() for form in long), key=len, reverse=True)

    def hide(self, line: bytes) -> bytes:
        """The line without them. Nearly always they are not there: to look for one takes 0.05 µs a line."""
        for spelling in self._spellings:
            if spelling in line:
                line = line.replace(spelling, HIDDEN.encode())
        return line


NONE = Secrets()


def password_in(url: str) -> str | None:
    """The password of a URL, as it is written there."""
    before, at, _ = url.partition("://")[2].rpartition("@")
    return before.partition(":")[2] or None if at else None


def _escaped(secret: str) -> str:
    return msgspec.json.encode(secret).decode()[1:-1]
