"""What a test of faults needs beside what it proves: that enough happened, and soon enough for this machine."""

from __future__ import annotations

from tests.support.stretching import stretched


def enough(happened: object, what: str) -> None:
    assert happened, f"too little happened: {what}"


def in_time(seconds: float, seconds_max: float) -> None:
    """A promise about time, stretched as far as the machine has too much to do."""
    most = stretched(seconds_max)
    assert seconds < most, f"it took {seconds:.2f} s; promised are {seconds_max:g}, and on this machine now {most:.1f}"
