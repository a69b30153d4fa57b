"""What a test of faults needs beside what it proves: that enough happened, and soon enough.

A machine that has more to do than it can may not give it. A test that lacked it may try once more (see conftest.py); one
that found a broken promise may not.
"""

from __future__ import annotations

from tests.stretching import stretched


class Unshown(AssertionError):
    """There was no occasion to show what the test is about, or it came too late."""


def enough(happened: object, what: str) -> None:
    if not happened:
        raise Unshown(f"too little happened: {what}")


def in_time(seconds: float, seconds_max: float) -> None:
    """A promise about time, stretched as far as the machine has too much to do."""
    if seconds >= (most := stretched(seconds_max)):
        raise Unshown(f"it took {seconds:.2f} s; promised are {seconds_max:g}, and on this machine now {most:.1f}")
