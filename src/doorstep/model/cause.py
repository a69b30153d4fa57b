"""The cause of a dead letter: what it has in common with others, so that 142 dead letters read as 3 causes."""

from __future__ import annotations

import re
from hashlib import blake2b
from uuid import UUID

_REASON_CHARACTERS_READ = 4_000
_REASON_CHARACTERS_KEPT = 300
"""Read further than kept: an id that is cut in two would not be recognised, and make a cause of its own."""

_PARTICULARS = re.compile(
    r"""
    [0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}  # a UUID
    | \b(?=[0-9a-f]*\d)[0-9a-f]{12,}\b                            # a long hexadecimal id
    | "[^"]*" | (?<!\w)'[^']*'(?!\w)                              # what someone quoted, but no apostrophe
    | \d+                                                         # any number
    """,
    re.VERBOSE | re.IGNORECASE,
)


def normalised(reason: str) -> str:
    """The message without what differs from one letter to the next: ids, numbers, quoted names."""
    return _PARTICULARS.sub("#", reason[:_REASON_CHARACTERS_READ])[:_REASON_CHARACTERS_KEPT]


def cause_of(endpoint_id: UUID, code: str, reason: str) -> int:
    """A number that letters of one cause share, small enough for a database column (63 bits)."""
    words = f"{code}\0{normalised(reason)}".encode("utf-8", "replace")
    return int.from_bytes(blake2b(endpoint_id.bytes + words, digest_size=8).digest()) >> 1
