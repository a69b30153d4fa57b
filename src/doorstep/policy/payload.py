"""Which payloads are accepted: JSON that every store, receiver and log viewer reads in the same way.

The bytes are never changed. The checks work on bytes, because our parser may accept input that breaks the receiver's
parser, such as a lone surrogate, a number of 5,000 digits, or nesting that overflows the stack.
"""

from __future__ import annotations

import re

import msgspec

from doorstep.errors import InvalidInput

DEPTH_MAX = 64
DIGITS_MAX = 400
"""The maximum number of digits in a number: enough for every float and any reasonable integer. Python itself rejects
integers of more than 4,300 digits."""

_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*"')
_LONG_NUMBER = re.compile(rb"[0-9.]{%d}" % (DIGITS_MAX + 1))
_BRACKETS = re.compile(rb"[\[\]{}]")
_decoder = msgspec.json.Decoder(msgspec.Raw)


def check_payload(payload: bytes, bytes_max: int, field: str = "payload") -> None:
    """Raise InvalidInput unless this is one JSON value within the limits."""
    if len(payload) > bytes_max:
        raise InvalidInput(field, f"must be at most {bytes_max} bytes, got {len(payload)}")
    _check_syntax(payload, field)
    _check_shape(payload, field)


def _check_syntax(payload: bytes, field: str) -> None:
    try:
        payload.decode()
        _decoder.decode(payload)
    except UnicodeDecodeError as error:
        raise InvalidInput(
            field, f"must be UTF-8, got byte {error.object[error.start]:#04x} at {error.start}"
        ) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidInput(field, f"must be JSON; {error}") from None


def _check_shape(payload: bytes, field: str) -> None:
    """Check the nesting depth and the length of numbers.

    Brackets and digits in strings do not count. To save time, strings are removed only if a quick check finds a
    possible violation.
    """
    may_be_deep = payload.count(b"[") + payload.count(b"{") > DEPTH_MAX
    if not may_be_deep and not _LONG_NUMBER.search(payload):
        return
    bare = _STRINGS.sub(b'""', payload)
    if _LONG_NUMBER.search(bare):
        raise InvalidInput(field, f"must not contain numbers of more than {DIGITS_MAX} digits")
    if may_be_deep and _depth(bare) > DEPTH_MAX:
        raise InvalidInput(field, f"must be nested at most {DEPTH_MAX} deep")


def _depth(bare: bytes) -> int:
    depth = deepest = 0
    for bracket in _BRACKETS.findall(bare):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest
