"""Asking again until something has come about."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from doorstep.client.errors import TimedOut
from doorstep.client.steps import Steps, pause

T = TypeVar("T")
_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 2.0
_GROWTH = 1.5


def until(ask: Callable[[], Steps[T]], enough: Callable[[T], bool], timeout: float, subject: str) -> Steps[T]:
    """The first answer that is enough. Asked often at first, then every two seconds; at least once in any case."""
    now = yield from pause(0.0)
    deadline, seconds = now + timeout, _FIRST_PAUSE_SECONDS
    while True:
        seen = yield from ask()
        if enough(seen):
            return seen
        # The asking takes time too, so the clock is read again before it is decided how long to pause.
        now = yield from pause(0.0)
        if now >= deadline:
            raise TimedOut(f"{subject} did not get there within {timeout:g} s", seen)
        yield from pause(min(seconds, deadline - now))
        seconds = min(seconds * _GROWTH, _LONGEST_PAUSE_SECONDS)
