"""Rejects numbers that JSON cannot express. Encoders write them as null, so a receiver would get other data than was
sent."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec

_KEPT = (bytes, bytearray, memoryview)
"""Types that `to_builtins` need not convert, because they contain no numbers."""


def check_finite(value: object, encoded: bytes, enc_hook: Callable[[Any], Any] | None = None) -> None:
    """Raise ValueError if the value contains NaN or an infinity. `encoded` is its JSON: without a null in it, there is
    nothing to look for, so most payloads cost one search for this word. `enc_hook` is called for values that msgspec
    does not know."""
    if b"null" in encoded and _has_other_numbers(msgspec.to_builtins(value, builtin_types=_KEPT, enc_hook=enc_hook)):
        raise ValueError("it contains NaN or an infinity, which JSON does not have; use null or text")


def _has_other_numbers(value: object) -> bool:
    """Whether plain data contains such a number. Without recursion, because the data may be nested deeply."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, float):
            if not math.isfinite(one):
                return True
        elif isinstance(one, dict):
            left += one.values()
        elif isinstance(one, list | tuple | set | frozenset):
            left += one
    return False
