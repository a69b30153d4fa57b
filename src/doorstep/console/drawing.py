"""Small pictures and texts made on the server: sparklines, and payloads laid out to be read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate

import msgspec
from markupsafe import Markup

_WIDTH, _HEIGHT = 96, 20
_GROUND = f'<path class="ground" d="M0 {_HEIGHT - 0.5}h{_WIDTH}v.5H0z"/>'
PRETTY_BYTES_MAX, LAYOUT_BYTES_MAX = 256 * 1024, 1024 * 1024
"""What is larger, before or after, is shown as it came: laying it out would take longer than anybody reads."""


def sparkline(values: Sequence[float], label: str, kind: str = "", bad: Sequence[float] = ()) -> Markup:
    """A line of bars over time, the oldest at the left; `label` says it in words. What of it was `bad` is at their feet,
    where it is seen however little it is."""
    top = max(values, default=0) or 1
    bars = _bars([value / top for value in values]) + _bars([value / top for value in bad], ' class="bad"')
    return Markup(
        '<svg class="spark {}" viewBox="0 0 {} {}" width="{}" height="{}" role="img" aria-label="{}">{}</svg>'
    ).format(kind, _WIDTH, _HEIGHT, _WIDTH, _HEIGHT, label, Markup(_GROUND + bars))


def _bars(parts: Sequence[float], named: str = "") -> str:
    """One path for all of them, which takes a fifth of the bytes of a shape for each."""
    step = _WIDTH / max(1, len(parts))
    width = max(1.0, step - 1)
    path = "".join(
        f"M{place * step:.4g} {_HEIGHT}v-{max(1.5, part * _HEIGHT):.3g}h{width:.3g}V{_HEIGHT}z"
        for place, part in enumerate(parts)
        if part
    )
    return f'<path{named} d="{path}"/>' if path else ""


def pretty(content: bytes) -> str:
    """A payload to be read: JSON on several lines, its numbers and texts as they came; anything else as it is, with what
    is no UTF-8 replaced."""
    if len(content) <= PRETTY_BYTES_MAX:
        with suppress(msgspec.DecodeError, RecursionError):  # no JSON, or nested more deeply than the parser goes
            msgspec.json.decode(content, type=msgspec.Raw)  # whether it is JSON at all, which `_layout_bytes` relies on
            if _layout_bytes(content) <= LAYOUT_BYTES_MAX:
                content = msgspec.json.format(content, indent=2)
    return content.decode("utf-8", "replace")


_STEPS = {ord(sign): step for sign, step in (("[", 1), ("{", 1), ("]", -1), ("}", -1), (",", 0))}
_REST = bytes(byte for byte in range(256) if byte not in _STEPS)
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


def _layout_bytes(json: bytes) -> int:
    """About how long it is when it is laid out: every part of a list or an object gets a line, which begins with two
    blanks for each level. 240 KB of brackets make 96 MB."""
    signs = _STRING.sub(b"", json).translate(None, _REST)
    return len(json) + 2 * sum(accumulate(map(_STEPS.__getitem__, signs)))
