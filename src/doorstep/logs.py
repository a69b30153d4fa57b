"""The one place that words facts: JSON lines for machines, coloured text for a terminal."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any, Literal, NamedTuple
from uuid import UUID

import msgspec

from doorstep.clock import SECOND, Instant, to_iso
from doorstep.telemetry import (
    CircuitTransition,
    DeliveryFailure,
    EndpointDisabled,
    Fact,
    LateSettle,
    Notice,
    ServiceTrouble,
)

SERVICE = "doorstep"
Level = Literal["debug", "info", "warning", "error"]
RANKS: dict[str, int] = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
Words = Callable[[Sequence[Fact]], bytes]


def level_of(fact: Fact) -> str:
    level = _LEVELS.get(type(fact), "info")
    return level if isinstance(level, str) else level(fact)


_LEVELS: dict[type[Fact], str | Callable[[Any], str]] = {
    CircuitTransition: lambda fact: "warning" if fact.new_state == "open" else "info",
    DeliveryFailure: lambda fact: "error" if fact.next_retry_at is None else "warning",
    EndpointDisabled: "error",
    LateSettle: "warning",
    Notice: lambda fact: fact.level if fact.level in RANKS else "info",
    ServiceTrouble: "error",
}


# -- JSON lines: 0.7 µs each at 500 to a batch -----------------------------------------------------------------


def json_lines(facts: Sequence[Fact]) -> bytes:
    """One object a line. `level` is written only where it is not `info`, the level of nearly every line."""
    return _encoder.encode_lines([_line(fact) for fact in facts])


_encoder = msgspec.json.Encoder(enc_hook=str)


def _line(fact: Fact) -> object:
    if isinstance(fact, Notice):
        return _notice_line(fact)
    shape = _shape(type(fact))
    *values, at = msgspec.structs.astuple(fact)
    for index in shape.instants:
        values[index] = values[index] and _written(values[index])
    if shape.level == "info":
        return shape.line(_stamp(at), SERVICE, shape.event, *values)
    return shape.line(_stamp(at), SERVICE, shape.event, *values, level_of(fact))


def _notice_line(notice: Notice) -> dict[str, object]:
    line: dict[str, object] = {"@timestamp": _stamp(notice.at), "service": SERVICE, "event": "notice"}
    if (level := level_of(notice)) != "info":
        line["level"] = level
    line["message"] = notice.message
    return line | {name: value for name, value in notice.fields.items() if name not in line}


class _Shape(NamedTuple):
    """How the lines of one kind of fact look. Structs made for the purpose are encoded in a third of a dict's time."""

    event: str
    names: tuple[str, ...]
    instants: tuple[int, ...]
    level: str | None
    """Of all facts of this kind; None where it depends on the fact."""
    line: Callable[..., msgspec.Struct]


@cache
def _shape(fact_type: type[Fact]) -> _Shape:
    event = re.sub(r"(?<!^)(?=[A-Z])", "_", fact_type.__name__).lower()
    *given, at = fact_type.__struct_fields__
    assert at == "at", "the time is the field of the base class, so it is the last"
    names = tuple(_RENAMED.get(name, name) for name in given)
    fields: list[tuple[str, Any]] = [(name, object) for name in ("timestamp", "service", "event", *names)]
    line = msgspec.defstruct(
        event, [*fields, _LEVEL_FIELD], rename={"timestamp": "@timestamp"}, omit_defaults=True, gc=False
    )
    instants = tuple(i for i, name in enumerate(names) if name.endswith("_at"))
    level = _LEVELS.get(fact_type, "info")
    return _Shape(event, names, instants, level if isinstance(level, str) else None, line)


_LEVEL_FIELD = ("level", str, "info")
_RENAMED = {"service": "component"}
"""In a line, `service` is always the whole program; the part of it that is in trouble is its component."""


@lru_cache(maxsize=16)
def _stamp(at: Instant) -> str:
    """When it happened: the facts of one batch share it, so it is worked out once."""
    return _written(at)


def _written(at: Instant) -> str:
    """Like `to_iso`, which takes 1.5 µs, but the date is worked out once a second."""
    return f"{_second(at // SECOND)}{at % SECOND:06d}Z"


@lru_cache(maxsize=4_096)
def _second(second: int) -> str:
    return to_iso(second * SECOND)[:20]


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
    head = f"{to_iso(fact.at)[11:23]} {level:<7} "
    if not colour:
        return f"{head}{_printable(message)}  {shown}".rstrip() + "\n"
    return f"\x1b[2m{head}\x1b[0m\x1b[{_COLOURS[level]}m{_printable(message)}\x1b[0m  \x1b[2m{shown}\x1b[0m\n"


def _worded(fact: Fact) -> tuple[str, dict[str, object]]:
    if isinstance(fact, Notice):
        return fact.message, fact.fields
    shape = _shape(type(fact))
    *values, _ = msgspec.structs.astuple(fact)
    fields = dict(zip(shape.names, values, strict=True))
    stamps = {name: value and _written(value) for name, value in fields.items() if name.endswith("_at")}
    return shape.event.replace("_", " "), fields | stamps


def _printable(value: object) -> str:
    """No control characters: a correlation id must not be able to repaint the operator's terminal."""
    text = value if isinstance(value, str) else str(value) if isinstance(value, (int, float, UUID)) else _json(value)
    return _UNPRINTABLE.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def _json(value: object) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()
