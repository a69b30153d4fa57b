"""The base of every value in the model.

msgspec structs rather than dataclasses: frozen ones are made in 0.2 µs against 1.5 µs, and each delivery
makes about six of them. Nothing here refers back to itself, so the garbage collector need not look.
"""

from __future__ import annotations

import msgspec


class Noun(msgspec.Struct, frozen=True, gc=False):
    """An immutable value, compared by its fields."""
