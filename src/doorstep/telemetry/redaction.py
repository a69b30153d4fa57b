"""Keeps payloads and secrets out of the log and out of error messages.

Our own facts are safe: they have no field for a payload, and secrets have types that print as `***`. But an exception
may quote the value that caused it, as database drivers do, and a library may log anything. So the text of an exception
is used only if exceptions of its type describe problems with programs or machines. Of all other exceptions, only the
type is logged.
"""

from __future__ import annotations

import asyncio
import re
import traceback
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FrameType
from urllib.parse import parse_qsl, quote, unquote

import msgspec

from doorstep.errors import DoorstepError

HIDDEN = "***"
_TEXT_CHARS_MAX = 500
_SECRET_CHARS_MIN = 8
"""The minimum length of a secret that is hidden. Shorter secrets may occur in other text by chance, and hiding them
there would reveal them."""
_ERRORS_MAX = 50
"""The maximum number of errors reported from one chain. If a chain is longer, only its last errors are reported."""

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
"""Errors that describe a program or a machine, not the values that it processed."""

_CALLERS = ("doorstep.transports.", "doorstep.pipelines.stage_handler", "doorstep.payloads")
"""The modules that call handlers."""
_TRACEBACK = "Traceback (most recent call last):\n"
"""The line that begins a traceback. People and programs search logs for it."""
_FRAME = re.compile(r'  File ".*", line \d+, in ')
_LITERAL = re.compile(r"\"[^\"]*\"?|'[^']*'?")
_MARKS = re.compile(r"[ ~^]*")
_EXCEPTION_NAME = re.compile(r"[^\W\d][\w.]*(?=:|$)")
_URL = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s'\"<>]*", re.IGNORECASE)
_TOKENS = re.compile(r"\b(whsec_|whsk_|whpk_|dsk_)[A-Za-z0-9+/=_-]{8,}")
_CREDENTIALS = re.compile(
    r"((?:authorization|x-api-key|api[_-]?key|password|passwd|secret|token)['\"]?\s*[:=]\s*)(?:(?:bearer|basic)\s+)?[^\s,;&]+"
    r"|\b(bearer|basic)\s+[A-Za-z0-9+/=._~-]{8,}",
    re.IGNORECASE,
)
_PASSWORD_BEGUN = re.compile(r"[^@\[\]:]*:(?![0-9]{0,5}[).,:;!]*$)[^@]*")
"""Matches a username and a truncated password, but not a host and a port, even if punctuation follows the port."""
_SECRET_PARAMETERS = frozenset({"password", "passwd", "pass", "pwd", "sslpassword", "secret", "token"})


def scrubbed(text: str) -> str:
    """The text with usernames, passwords and query strings removed from URLs, and with keys and tokens hidden."""
    text = _URL.sub(lambda found: shown_url(found[0]), text)
    text = _TOKENS.sub(rf"\1{HIDDEN}", text)
    return _CREDENTIALS.sub(lambda found: f"{found[1] or found[2] + ' '}{HIDDEN}", text)


def shown_url(url: str) -> str:
    """The URL without its username, password and query string.

    A password may contain characters that should have been escaped. If it is unclear where the password ends,
    everything after the scheme is hidden, so that no part of the password is shown.
    """
    scheme, separator, rest = url.partition("://")
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    following = rest[len(authority) :]
    odd = "@" in following and re.search("[:@]", authority)
    if odd or _PASSWORD_BEGUN.fullmatch(authority):
        return f"{scheme}{separator}{HIDDEN}"
    return scheme + separator + authority.rpartition("@")[2] + re.split("[?#]", following, maxsplit=1)[0]


def safe_message(error: BaseException) -> str:
    """An error as one line: its type, and also its text if that cannot contain a payload."""
    kind = type(error).__name__
    if not isinstance(error, _PLAIN):
        state = getattr(error, "sqlstate", None)
        return f"{kind} ({state})" if isinstance(state, str) else kind
    text = scrubbed(str(error))[:_TEXT_CHARS_MAX]
    return f"{kind}: {text}" if text else kind


def traceback_of(
    error: BaseException, words: Callable[[BaseException], str] = safe_message, *, inner: bool = False
) -> str:
    """A traceback with the chain of causes. It shows lines of source code, never the values of variables.

    `words` formats each error. `inner` leaves out the first frames, in which our code calls the user's code, and the
    last ones, in which `event.json()` reads the payload.
    """
    frames, limit = error.__traceback__, None
    if inner:
        while frames is not None and _is_ours(frames.tb_frame):
            frames = frames.tb_next
        theirs = [number for number, (frame, _) in enumerate(traceback.walk_tb(frames), 1) if not _is_ours(frame)]
        limit = theirs[-1] if theirs else 0
    return "\n".join(_parts(error, traceback.format_tb(frames, limit), words, set())) + "\n"


def is_own_report(error: BaseException) -> bool:
    """Whether a handler of Doorstep itself raised this error, such as the handler that sends mail."""
    outer = (frame for frame, _ in traceback.walk_tb(error.__traceback__) if not _is_ours(frame))
    handler = next(outer, None)
    return handler is not None and str(handler.f_globals.get("__name__", "")).startswith("doorstep.operations.")


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith(_CALLERS)


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


def identifiers_in(error: BaseException) -> set[str]:
    """The names and string literals of the functions in a traceback. Its lines show them, so they need no masking in its
    messages, such as `'Order' object has no attribute 'items'` for a payload with a field `items`."""
    known: set[str] = set()
    codes: set[CodeType] = set()
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and _is_new(following, seen):
        seen.add(id(following))
        known.add(type(following).__name__)
        codes.update(frame.f_code for frame, _ in traceback.walk_tb(following.__traceback__))
        following = following.__cause__ or following.__context__
    for code in codes:
        known.update((code.co_name, *code.co_names, *code.co_varnames, *code.co_freevars, *code.co_cellvars))
        known.update(one for one in code.co_consts if isinstance(one, str))
    return known


def _is_new(error: BaseException, seen: set[int]) -> bool:
    return id(error) not in seen and len(seen) < _ERRORS_MAX


class Secrets:
    """The secrets that this process was started with. The log hides them in all free text."""

    def __init__(self, secrets: Iterable[str | None] = ()) -> None:
        given = [secret for secret in secrets if secret]
        spellings = {form for secret in given for form in (secret, unquote(secret), quote(secret, safe=""))}
        self._spellings = sorted((form for form in spellings if len(form) >= _SECRET_CHARS_MIN), key=len, reverse=True)
        self._encoded = {form.encode() for spelling in self._spellings for form in (spelling, _escaped(spelling))}

    def found_in(self, lines: bytes) -> bool:
        """Whether the lines contain a secret, which is very rare. The search takes 0.05 µs per line."""
        return any(form in lines for form in self._encoded)

    def hidden_in(self, value: object) -> object:
        """The value with secrets hidden in its strings. Values other than numbers, collections and None become text."""
        if isinstance(value, dict):
            return {
                name: self.hidden_in_traceback(str(one)) if name == "traceback" else self.hidden_in(one)
                for name, one in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.hidden_in(one) for one in value]
        if value is None or isinstance(value, int | float):
            return value
        return self._hidden(str(value))

    def hidden_in_traceback(self, text: str) -> str:
        """The traceback with secrets hidden in messages and string literals. Names of files, functions and exceptions
        stay: a password may be a word such as `doorstep`, and a traceback without names is useless."""
        lines: list[str] = []
        named = False
        for line in text.split("\n"):
            if _FRAME.match(line):
                lines.append(line)
            elif lines and _FRAME.match(lines[-1]):
                lines.append(_LITERAL.sub(lambda found: self._hidden(found[0]), line))
            elif line == _TRACEBACK.rstrip() or (not named and _MARKS.fullmatch(line)):
                lines.append(line)
                named = False
            else:
                name = None if named else _EXCEPTION_NAME.match(line)
                kept = name[0] if name else ""
                lines.append(kept + self._hidden(line[len(kept) :]))
                named = True
        return "\n".join(lines)

    def _hidden(self, text: str) -> str:
        for spelling in self._spellings:
            text = text.replace(spelling, HIDDEN)
        return text


NONE = Secrets()


def passwords_in(url: str) -> Iterator[str]:
    """The passwords in a URL, exactly as written there: before the host, and in the query string.

    A password may contain characters that should have been escaped. If it is unclear where the password ends, both
    possibilities are returned. The one that is too long does no harm: it occurs only in this URL.
    """
    user, _, rest = url.partition("://")[2].partition(":")
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    if not re.search("[@/?#]", user):
        yield from dict.fromkeys(text.rpartition("@")[0] for text in (authority, rest) if "@" in text)
    query = re.sub(r"\+", "%2B", url.rpartition("?")[2])
    yield from (value for name, value in parse_qsl(query) if name.lower() in _SECRET_PARAMETERS)


def _escaped(secret: str) -> str:
    return msgspec.json.encode(secret).decode()[1:-1]
