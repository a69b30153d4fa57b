"""How people write spans, shares and times on the command line: `5s`, `30%`, `2026-11-15T12:00:00Z`, `2h`."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar

import typer

from doorstep.clock import Instant, seconds, to_datetime

T = TypeVar("T")

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d)?")


def span_seconds(text: str) -> float:
    """Seconds: `5`, `5s`, `500ms`, `2m`, `1h`, `7d`."""
    found = _SPAN.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError(f"a span is a number with a unit (ms, s, m, h, d), such as 5s, got {text!r}")
    return float(found[1]) * _UNITS[found[2] or "s"]


def share(text: str) -> float:
    """From 0 to 1: `30%` or `0.3`."""
    number, percent = text.strip().removesuffix("%"), text.strip().endswith("%")
    try:
        value = float(number) / (100 if percent else 1)
    except ValueError:
        value = -1
    if not 0 <= value <= 1:
        raise ValueError(f"a share is from 0% to 100%, such as 30%, got {text!r}")
    return value


def past(text: str, now: Instant) -> datetime:
    """A time: ISO 8601 (UTC, if it names no zone), or a span before now (`2h`, `2h ago`)."""
    words = text.strip()
    span = words.removesuffix("ago").strip().lower()
    return to_datetime(now - seconds(span_seconds(span))) if _has_unit(span) else _iso(words, "before now such as 2h")


def future(text: str, now: Instant) -> datetime:
    """A time: ISO 8601 (UTC, if it names no zone), or a span from now (`2h`, `in 2h`)."""
    words = text.strip()
    span = words.removeprefix("in ").strip().lower()
    return to_datetime(now + seconds(span_seconds(span))) if _has_unit(span) else _iso(words, "from now such as 2h")


def _has_unit(span: str) -> bool:
    """A bare number is no time: nobody can say of what."""
    return _SPAN.fullmatch(span) is not None and not span.replace(".", "").isdigit()


def _iso(words: str, or_else: str) -> datetime:
    try:
        found = datetime.fromisoformat(words)
    except ValueError:
        raise ValueError(
            f"a time is ISO 8601 such as 2026-11-15T12:00:00Z, or a span {or_else}, got {words!r}"
        ) from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def shown_span(value: float) -> str:
    """Seconds as people say them: `45 s`, `5 min`, `1 h 30 min`, `2 d 4 h`: two units at most."""
    if value < 60:
        return f"{value:.3g} s"
    parts = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        whole, value = divmod(round(value), size)
        if whole:
            parts.append(f"{whole:.0f} {unit}")
    return " ".join(parts[:2])


def parsed_by(parse: Callable[[str], T]) -> Callable[[str], T]:
    """The same as an option's parser: what cannot be read is wrong usage, said in the parser's own words."""

    def read(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

    return read
