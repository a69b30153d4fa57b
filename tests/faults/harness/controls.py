"""Positive controls: a build that is broken on purpose must be caught, though when a fault strikes is up to the machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
_ROUNDS_MAX = 12


def until_caught(play: Callable[[], T], caught: Callable[[T], object]) -> T:
    """Play one round after the other until something is caught, and return what that round found.

    A round is arranged so that the first one does it; the others are for a machine that was busy at the wrong moment.
    """
    for number in range(1, _ROUNDS_MAX + 1):
        found = play()
        print(f"\nround {number}: {found}")
        if caught(found):
            return found
    raise AssertionError(f"not caught in {_ROUNDS_MAX} rounds")
