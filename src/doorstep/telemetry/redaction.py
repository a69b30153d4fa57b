"""What may be said of errors and of other people's log lines, without repeating what was sent or what is secret.

Our own facts need none of this: they have no field for a payload, and secrets are types that show themselves as `***`.
But an exception may quote the value that it stumbled over, as drivers of databases do, and a library may log anything.
So the text of an exception is passed on only if its kind speaks of programs and machines; of all others the kind alone.
"""

from __future__ import annotations

import asyncio
import re
import traceback
from collections.abc import Callable, Iterable, Iterator
from urllib.parse import parse_qsl, quote, unquote

import msgspec

from doorstep.errors import DoorstepError

HIDDEN = "***"
_TEXT_CHARS_MAX = 500
_SECRET_CHARS_MIN = 8
"""A shorter one is found in any text by chance, and to hide that would tell what it is."""
_ERRORS_MAX = 50
"""Of errors that led to one another, the last ones are told."""

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
_URL = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s'\"<>]*", re.IGNORECASE)
_TOKENS = re.compile(r"\b(whsec_|whsk_|whpk_|dsk_)[A-Za-z0-9+/=_-]{8,}")
_CREDENTIALS = re.compile(
    r"((?:authorization|x-api-key|api[_-]?key|password|passwd|secret|token)['\"]?\s*[:=]\s*)(?:(?:bearer|basic)\s+)?[^\s,;&]+"
    r"|\b(bearer|basic)\s+[A-Za-z0-9+/=._~-]{8,}",
    re.IGNORECASE,
)
_PASSWORD_BEGUN = re.compile(r"[^@\[\]:]*:(?![0-9]{0,5}[).,:;!]*$)[^@]*")
"""A user and a password whose end was cut off; not a host and its port, at the end of a sentence or in the middle."""
_SECRET_PARAMETERS = frozenset({"password", "passwd", "pass", "pwd", "sslpassword", "secret", "token"})


def scrubbed(text: str) -> str:
    """Without the user, password and query of URLs, and without what looks like a key."""
    text = _URL.sub(lambda found: shown_url(found[0]), text)
    text = _TOKENS.sub(rf"\1{HIDDEN}", text)
    return _CREDENTIALS.sub(lambda found: f"{found[1] or found[2] + ' '}{HIDDEN}", text)


def shown_url(url: str) -> str:
    """Without its user, password and query. In a password may be signs that should have been escaped there: where it may
    end later than it seems to, nothing is shown rather than a part of it."""
    scheme, separator, rest = url.partition("://")
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    following = rest[len(authority) :]
    odd = "@" in following and re.search("[:@]", authority)
    if odd or _PASSWORD_BEGUN.fullmatch(authority):
        return f"{scheme}{separator}{HIDDEN}"
    return scheme + separator + authority.rpartition("@")[2] + re.split("[?#]", following, maxsplit=1)[0]


def safe_message(error: BaseException) -> str:
    """An error in one line: its kind, and its text if that cannot quote what was sent."""
    kind = type(error).__name__
    if not isinstance(error, _PLAIN):
        state = getattr(error, "sqlstate", None)
        return f"{kind} ({state})" if isinstance(state, str) else kind
    text = scrubbed(str(error))[:_TEXT_CHARS_MAX]
    return f"{kind}: {text}" if text else kind


def traceback_of(
    error: BaseException, words: Callable[[BaseException], str] = safe_message, *, inner: bool = False
) -> str:
    """Where it happened, and what, and what led to it: the lines of the program, never the values of its variables.

    `words` are what is said of each error. `inner` leaves out the first frame, where it is ours that calls theirs.
    """
    skipped = error.__traceback__.tb_next if inner and error.__traceback__ is not None else error.__traceback__
    return "\n".join(_parts(error, traceback.format_tb(skipped), words, set())) + "\n"


def _parts(
    error: BaseException, frames: list[str], words: Callable[[BaseException], str], seen: set[int]
) -> Iterator[str]:
    seen.add(id(error))
    earlier = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if earlier is not None and _is_new(earlier, seen):
        yield from _parts(earlier, traceback.format_tb(earlier.__traceback__), words, seen)
        yield "\nwhich led to:\n"
    yield "".join([_TRACEBACK, *frames] if frames else []) + words(error).rstrip("\n")
    for one in error.exceptions if isinstance(error, BaseExceptionGroup) else ():
        if _is_new(one, seen):
            yield "\nin it:\n"
            yield from _parts(one, traceback.format_tb(one.__traceback__), words, seen)


def _is_new(error: BaseException, seen: set[int]) -> bool:
    return id(error) not in seen and len(seen) < _ERRORS_MAX


class Secrets:
    """The secrets that this process was started with. The log leaves them out of its texts, wherever they come from."""

    def __init__(self, secrets: Iterable[str | None] = ()) -> None:
        spellings = {form for secret in secrets if secret for form in _spellings(secret)}
        self._spellings = sorted((form for form in spellings if len(form) >= _SECRET_CHARS_MIN), key=len, reverse=True)
        self._encoded = {form.encode() for spelling in self._spellings for form in (spelling, _escaped(spelling))}

    def found_in(self, lines: bytes) -> bool:
        """Nearly always they are not there: to look for one takes 0.05 µs a line."""
        return any(form in lines for form in self._encoded)

    def hidden_in(self, value: object) -> object:
        """The same without them, in all texts that it holds; what is neither text, number nor collection, as text."""
        if isinstance(value, dict):
            return {name: self.hidden_in(one) for name, one in value.items()}
        if isinstance(value, list | tuple):
            return [self.hidden_in(one) for one in value]
        if value is None or isinstance(value, int | float):
            return value
        text = str(value)
        for spelling in self._spellings:
            text = text.replace(spelling, HIDDEN)
        return text


NONE = Secrets()


def passwords_in(url: str) -> Iterator[str]:
    """The passwords of a URL, as they are written there: before its host, and behind the question mark.

    In one may be signs that should have been escaped there: where it may end later than it seems to, both readings. What
    is too long for a password is found in no text but this URL.
    """
    user, _, rest = url.partition("://")[2].partition(":")
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    if not re.search("[@/?#]", user):
        yield from dict.fromkeys(text.rpartition("@")[0] for text in (authority, rest) if "@" in text)
    query = re.sub(r"\+", "%2B", url.rpartition("?")[2])
    yield from (value for name, value in parse_qsl(query) if name.lower() in _SECRET_PARAMETERS)


def _spellings(secret: str) -> set[str]:
    return {secret, unquote(secret), quote(secret, safe="")}


def _escaped(secret: str) -> str:
    return msgspec.json.encode(secret).decode()[1:-1]
