"""A monotonic clock that a test moves."""

from __future__ import annotations


class Elapsed:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds
