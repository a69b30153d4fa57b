"""Positive controls: a deliberately broken build must be caught, although fault timing depends on the machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
_ROUNDS_MAX = 12


def until_caught(play: Callable[[], T], caught: Callable[[T], object]) -> T:
    """Play rounds until one catches the fault, and return what that round found.

    The first round normally catches it. Further rounds are for a machine that was busy at the wrong moment.
    """
    for number in range(1, _ROUNDS_MAX + 1):
        found = play()
        print(f"\nround {number}: {found}")
        if caught(found):
            return found
    raise AssertionError(f"not caught in {_ROUNDS_MAX} rounds")
