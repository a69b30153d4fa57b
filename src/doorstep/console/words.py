"""How the console says times, spans and amounts. Pure; templates know each as a filter of the same name."""

from __future__ import annotations

import re

from doorstep.clock import SECOND, Instant, to_iso
from doorstep.model.listing import Count
from doorstep.policy.plain_text import percent

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_INSTANT = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?Z")
_THIN = " "


def ago(at: Instant, now: Instant) -> str:
    """`3 min ago`, `in 5 s`, `now`; to the second, as static/times.js goes on counting."""
    span = abs(now - at) // SECOND * SECOND
    if not span:
        return "now"
    return f"in {lasting(span)}" if at > now else f"{lasting(span)} ago"


def lasting(span: Instant) -> str:
    """A span of microseconds in its largest unit, with a second one where that tells: `4.2 ms`, `1 h 5 min`, `3 d`."""
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


def utc(at: Instant) -> str:
    """To the microsecond, as the API says it."""
    return to_iso(at)


def exactly(at: Instant) -> str:
    """The same for people: `2026-01-31 14:30:05.123456 UTC`."""
    return to_iso(at).replace("T", " ").replace("Z", " UTC")


def moment(at: Instant) -> str:
    """A date and a time to the second."""
    return to_iso(at)[:19].replace("T", " ")


def spoken(text: str, now: Instant) -> str:
    """A sentence of the engine with its instants to the second, and without today's date: `until 14:30:05 UTC`."""
    today = to_iso(now)[:10]
    return _INSTANT.sub(lambda found: f"{found[2]} UTC" if found[1] == today else f"{found[1]} {found[2]} UTC", text)


def until(text: str, now: Instant) -> str:
    """Of such a sentence only the instant that it ends with, where it names one: `until 14:30:05 UTC`."""
    found = _INSTANT.search(text)
    return f"until {spoken(found[0], now)}" if found else text


def amount(value: float) -> str:
    """With thin blanks between the thousands: `1 234 567`."""
    if isinstance(value, float) and not value.is_integer():
        return f"{value:,.3g}" if abs(value) < 1_000 else f"{value:,.0f}".replace(",", _THIN)
    return f"{int(value):,}".replace(",", _THIN)


def counted(count: Count) -> str:
    """`50`, or `10 000+` for what was counted no further."""
    return amount(count.value) + ("" if count.exact else "+")


def share(part: float, whole: float) -> str:
    """A percentage; a dash of nothing at all."""
    return percent(100 * part / whole) if whole else "–"


def plural(count: int, one: str, many: str | None = None) -> str:
    """`1 event`, `5 events`."""
    return f"{amount(count)} {one if count == 1 else many or one + 's'}"


def sized(count: int) -> str:
    """Bytes: `812 B`, `1.4 kB`, `3.2 MB`."""
    for limit, unit in ((1_000, "B"), (1_000_000, "kB"), (1_000_000_000, "MB")):
        if count < limit:
            return f"{count * 1_000 / limit:.3g}{_THIN}{unit}"
    return f"{count / 1_000_000_000:.3g}{_THIN}GB"
