"""Which text every store can keep. PostgreSQL takes no NUL, and no encoding takes a lone surrogate.

Bytes (payloads, headers, bodies, metadata) are kept as they are and need none of this.
"""

from __future__ import annotations

from doorstep.errors import InvalidInput

_UNSTORABLE = {0: "\ufffd"} | {code: "\ufffd" for code in range(0xD800, 0xE000)}


def is_storable(text: str) -> bool:
    if "\0" in text:
        return False
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def storable(text: str) -> str:
    """The text with every unstorable character replaced: a receiver's strange error must not stop a settle."""
    return text if is_storable(text) else text.translate(_UNSTORABLE)


def check_storable(field: str, text: str | None) -> None:
    """Refuse, on every store alike, what some store could not give back unchanged."""
    if text is not None and not is_storable(text):
        raise InvalidInput(field, "must not contain NUL or lone surrogates; remove them")
