"""How the words of an error may quote a payload: whole, or one of the values and names in it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

_CHARS_MIN = 4
"""Anything shorter is found in any text by chance."""
_VALUES_MAX = 5_000
"""Of a payload that holds more, the first ones are looked for."""


def spellings(payload: bytes) -> list[str]:
    """The longest first, so that none is left of which a part was taken for another."""
    plain = payload.decode("utf-8", "replace")
    values = {plain, repr(payload)[2:-1]} | set(_values(payload))
    forms = {form for value in values for form in _forms(value) if len(form) >= _CHARS_MIN}
    return sorted(forms, key=len, reverse=True)


def _values(payload: bytes) -> Iterator[str]:
    """Every text and number in a payload, and the names of its members where they are quoted: bare, most are words that
    any sentence may need."""
    try:
        waiting: list[object] = [msgspec.json.decode(payload)]
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return
    found = 0
    while waiting and found < _VALUES_MAX:
        value = waiting.pop()
        found += 1
        if isinstance(value, dict):
            yield repr(value)
            yield from (quoted for name in value for quoted in (f"'{name}'", f'"{name}"'))
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
        elif isinstance(value, str | int | float) and not isinstance(value, bool):
            yield str(value)


def _forms(value: str) -> set[str]:
    """As Python and JSON write it, where that is different; and as Python writes these, in the text of an error."""
    if value.isascii() and value.isprintable() and not {"'", '"', "\\"} & set(value):
        return {value}
    forms = {value, repr(value)[1:-1], msgspec.json.encode(value).decode()[1:-1]}
    return forms | {repr(f"'\"{form}")[4:-1] for form in forms} | {repr(form)[1:-1] for form in forms}
