"""The one place that words facts: JSON lines for machines, coloured text for a terminal."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal
from uuid import UUID

import msgspec
from msgspec import UnsetType
from msgspec.structs import astuple, replace

from doorstep.telemetry.facts import Fact, Notice
from doorstep.telemetry.redaction import Secrets

Level = Literal["debug", "info", "warning", "error"]
RANKS: dict[str, int] = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
Words = Callable[[Sequence[Fact]], bytes]


def level_of(fact: Fact) -> str:
    return fact.level if isinstance(fact.level, str) and fact.level in RANKS else "info"


def loud_enough(facts: Sequence[Fact], rank: int) -> list[Fact]:
    """Those of at least this rank."""
    return [fact for fact in facts if _RANKS.get(fact.level, _INFO) >= rank]


_INFO = RANKS["info"]
_RANKS: dict[str | UnsetType, int] = dict(RANKS.items())


_FREE_TEXT = frozenset({"message", "fields", "error", "error_reason", "reason"})
"""Fields that may hold anything. The others have values of ours, which a secret that is a common word must not spoil."""


def without(fact: Fact, secrets: Secrets) -> Fact:
    """The fact with these hidden in its texts."""
    texts = {name: secrets.hidden_in(getattr(fact, name)) for name in fact.__struct_fields__ if name in _FREE_TEXT}
    return replace(fact, **texts)


# -- JSON lines: 0.3 µs each -----------------------------------------------------------------------------------


def json_lines(facts: Sequence[Fact]) -> bytes:
    """One object a line: the fact itself, which has the fields of its line."""
    return _encoder.encode_lines([_notice_line(fact) if type(fact) is Notice else fact for fact in facts])


_encoder = msgspec.json.Encoder(enc_hook=str)


def _notice_line(notice: Notice) -> dict[str, object]:
    line: dict[str, object] = {"@timestamp": notice.at, "service": notice.program}
    if (level := level_of(notice)) != "info":
        line["level"] = level
    line |= {"event": notice.event, "message": notice.message}
    return line | {name: value for name, value in notice.fields.items() if name not in line}


# -- text for people -------------------------------------------------------------------------------------------

_COLOURS = {"debug": "2", "info": "0", "warning": "33", "error": "31", "critical": "31"}
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def text_words(*, colour: bool) -> Words:
    """Words for a terminal: time, level, what happened, then its fields."""

    def words(facts: Sequence[Fact]) -> bytes:
        return "".join(_text_line(fact, colour) for fact in facts).encode(errors="backslashreplace")

    return words


def _text_line(fact: Fact, colour: bool) -> str:
    level = level_of(fact)
    message, fields = _worded(fact)
    shown = " ".join(f"{name}={_printable(value)}" for name, value in fields.items() if value not in (None, ""))
    head = f"{fact.at[11:23]} {level:<7} "
    if not colour:
        return f"{head}{_printable(message)}  {shown}".rstrip() + "\n"
    return f"\x1b[2m{head}\x1b[0m\x1b[{_COLOURS[level]}m{_printable(message)}\x1b[0m  \x1b[2m{shown}\x1b[0m\n"


def _worded(fact: Fact) -> tuple[str, dict[str, object]]:
    if isinstance(fact, Notice):
        return fact.message, fact.fields
    fields = zip(fact.__struct_encode_fields__, astuple(fact), strict=True)
    return fact.event.replace("_", " "), {name: value for name, value in fields if name not in _HEADING}


_HEADING = Fact.__struct_encode_fields__


def _printable(value: object) -> str:
    """No control characters: a correlation id must not be able to repaint the operator's terminal."""
    text = value if isinstance(value, str) else str(value) if isinstance(value, (int, float, UUID)) else _json(value)
    return _UNPRINTABLE.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def _json(value: object) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()
