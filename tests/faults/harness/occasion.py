"""Checks for the conditions of a fault test: that enough happened, and fast enough for this machine."""

from __future__ import annotations

from tests.support.stretching import stretched


def enough(happened: object, what: str) -> None:
    assert happened, f"too little happened: {what}"


def in_time(seconds: float, seconds_max: float) -> None:
    """Check a promised time. On an overloaded machine, the limit is extended in proportion."""
    most = stretched(seconds_max)
    assert seconds < most, f"it took {seconds:.2f} s; promised are {seconds_max:g}, and on this machine now {most:.1f}"
