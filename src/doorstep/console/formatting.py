"""How the console formats times, durations, amounts, sparklines and payloads. No I/O."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from itertools import accumulate

import msgspec
from markupsafe import Markup, escape

from doorstep.clock import SECOND, Instant, from_datetime, to_iso
from doorstep.model.listing import Count
from doorstep.policy.alert_messages import percent

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_INSTANT = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?Z")
_THIN = " "


def ago(at: Instant, now: Instant) -> str:
    """A time relative to `now`: `3 min ago`, `in 5 s`, `now`. static/times.js keeps the text up to date in the page."""
    span = abs(now - at) // SECOND * SECOND
    if not span:
        return "now"
    return f"in {lasting(span)}" if at > now else f"{lasting(span)} ago"


def lasting(span: Instant) -> str:
    """A duration in the largest unit that fits: `4.2 ms`, `3 d`. If the number of these units is below ten, the next
    smaller unit is added: `1 h 5 min`."""
    if span < SECOND:
        return f"{span / 1_000:.3g}{_THIN}ms"
    whole = span // SECOND
    if whole < 10:
        return f"{span / SECOND:.2g}{_THIN}s"
    for place, (size, unit) in enumerate(_UNITS):
        if whole >= size:
            rest = whole % size // _UNITS[place + 1][0] if place < len(_UNITS) - 1 else 0
            more = f" {rest}{_THIN}{_UNITS[place + 1][1]}" if rest and whole < 10 * size else ""
            return f"{whole // size}{_THIN}{unit}{more}"
    return f"0{_THIN}s"


SPAN_UNITS = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0}


def span_text(span_seconds: float) -> str:
    """A duration as forms accept it, in the largest unit that divides it evenly: `5m`, `90s`."""
    for unit, size in SPAN_UNITS.items():
        if span_seconds >= size and span_seconds % size == 0:
            return f"{span_seconds / size:.15g}{unit}"
    return f"{span_seconds:.15g}s"


def instant(at: Instant | datetime | None) -> Instant | None:
    """A time as the filters take it: the library's own methods return datetimes."""
    return from_datetime(at) if isinstance(at, datetime) else at


def exactly(at: Instant) -> str:
    """A date and a time to the microsecond, for people to read: `2026-01-31 14:30:05.123456 UTC`."""
    return to_iso(at).replace("T", " ").replace("Z", " UTC")


def spoken(text: str, now: Instant) -> Markup:
    """A message from the engine, with times to the second and without today's date: `until 14:30:05 UTC`. Each time is
    an element that static/times.js turns into local time."""
    today = to_iso(now)[:10]

    def element(found: re.Match[str]) -> str:
        day = "" if found[1] == today else f"{found[1]} "
        return f'<time datetime="{found[0]}" data-at>{day}{found[2]} UTC</time>'

    return Markup(_INSTANT.sub(element, escape(text)))


def until(text: str, now: Instant) -> Markup:
    """Reduces a message from the engine to the time in it: `until 14:30:05 UTC`. A message without a time stays as it
    is."""
    found = _INSTANT.search(text)
    return Markup("until {}").format(spoken(found[0], now)) if found else escape(text)


def amount(value: float) -> str:
    """A number with thin spaces between the thousands: `1 234 567`."""
    if isinstance(value, float) and not value.is_integer():
        return f"{value:,.3g}" if abs(value) < 1_000 else f"{value:,.0f}".replace(",", _THIN)
    return f"{int(value):,}".replace(",", _THIN)


def counted(count: Count) -> str:
    """A count as text: `50`, or `10 000+` if counting stopped at a limit."""
    return amount(count.value) + ("" if count.exact else "+")


def share(part: float, whole: float) -> str:
    """A percentage; a dash if the whole is zero."""
    return percent(100 * part / whole) if whole else "–"


def plural(count: int, one: str, many: str | None = None) -> str:
    """An amount with its noun: `1 event`, `5 events`."""
    return f"{amount(count)} {one if count == 1 else many or one + 's'}"


def sized(count: int) -> str:
    """A number of bytes: `812 B`, `1.4 kB`, `3.2 MB`."""
    for limit, unit in ((1_000, "B"), (1_000_000, "kB"), (1_000_000_000, "MB")):
        if count < limit:
            return f"{count * 1_000 / limit:.3g}{_THIN}{unit}"
    return f"{count / 1_000_000_000:.3g}{_THIN}GB"


_WIDTH, _HEIGHT = 96, 20
_GROUND = f'<path class="ground" d="M0 {_HEIGHT - 0.5}h{_WIDTH}v.5H0z"/>'
PRETTY_BYTES_MAX, LAYOUT_BYTES_MAX = 256 * 1024, 1024 * 1024
"""The maximum size of content before and after formatting. Larger content is shown unformatted, because formatting it
would take too long."""


def sparkline(values: Sequence[float], label: str, kind: str = "", bad: Sequence[float] = ()) -> Markup:
    """A row of bars over time, the oldest on the left, with a `label` for screen readers. The `bad` part of each bar is
    drawn at the bottom of the bar, where even a small part is visible."""
    top = max(values, default=0) or 1
    bars = _bars([value / top for value in values]) + _bars([value / top for value in bad], ' class="bad"')
    return Markup(
        '<svg class="spark {}" viewBox="0 0 {} {}" width="{}" height="{}" role="img" aria-label="{}">{}</svg>'
    ).format(kind, _WIDTH, _HEIGHT, _WIDTH, _HEIGHT, label, Markup(_GROUND + bars))


def _bars(parts: Sequence[float], named: str = "") -> str:
    """All bars as one SVG path, which needs a fifth of the bytes that separate shapes would need."""
    step = _WIDTH / max(1, len(parts))
    width = max(1.0, step - 1)
    path = "".join(
        f"M{place * step:.4g} {_HEIGHT}v-{max(1.5, part * _HEIGHT):.3g}h{width:.3g}V{_HEIGHT}z"
        for place, part in enumerate(parts)
        if part
    )
    return f'<path{named} d="{path}"/>' if path else ""


def pretty(content: bytes) -> str:
    """A payload in readable form. JSON is indented, with its numbers and strings unchanged. Other content is shown as
    it is, with invalid UTF-8 replaced."""
    if len(content) <= PRETTY_BYTES_MAX:
        with suppress(msgspec.DecodeError, RecursionError):  # not JSON, or nested too deeply for the parser
            msgspec.json.decode(content, type=msgspec.Raw)  # `_layout_bytes` relies on valid JSON
            if _layout_bytes(content) <= LAYOUT_BYTES_MAX:
                content = msgspec.json.format(content, indent=2)
    return content.decode("utf-8", "replace")


_STEPS = {ord(sign): step for sign, step in (("[", 1), ("{", 1), ("]", -1), ("}", -1), (",", 0))}
_REST = bytes(byte for byte in range(256) if byte not in _STEPS)
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


def _layout_bytes(json: bytes) -> int:
    """The approximate size of the JSON after indentation. Every item of a list or an object gets its own line, indented
    by two spaces per level, so 240 KB of nested brackets become 96 MB."""
    signs = _STRING.sub(b"", json).translate(None, _REST)
    return len(json) + 2 * sum(accumulate(map(_STEPS.__getitem__, signs)))
