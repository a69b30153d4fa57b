"""How an exception may quote the data of an entity: those texts are left out of what is kept of it (R3.5)."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from itertools import islice

_LONG_CHARACTERS = 64
"""A text in the data that is as long as this is found in an error by no chance: it was quoted."""
_VALUES_MAX = 1_000


def quotations(*data: object) -> tuple[str, ...]:
    """The whole of it as Python and as JSON write it, and the long texts in it; the longest first."""
    found: set[str] = set()
    for one in data:
        with contextlib.suppress(Exception):  # a failed stage may have put anything there
            found |= {repr(one), json.dumps(one), json.dumps(one, ensure_ascii=False, separators=(",", ":"))}
            long = (text for text in islice(_texts(one), _VALUES_MAX) if len(text) >= _LONG_CHARACTERS)
            found |= {spelling for text in long for spelling in (text, repr(text)[1:-1])}
    return tuple(sorted(found, key=len, reverse=True))


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _texts(one)
