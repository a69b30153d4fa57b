"""The awaitable that `send` and its like return. It reports a forgotten `await`.

Python's own warning about a coroutine that was never awaited names neither the event nor, by default, the line of the
call, and most programs' logs do not contain it.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
from collections.abc import Callable, Coroutine, Generator
from types import FrameType, TracebackType
from typing import Any, TypeVar, cast
from weakref import WeakSet

T = TypeVar("T")
R = TypeVar("R")

_log = logging.getLogger("doorstep")


class Sending(Coroutine[Any, Any, T]):
    """A result to be awaited, once; it can be used like a coroutine.

    Nothing is sent before it is awaited, unless a blocking connection was given. If it is dropped instead, an error in
    the log names the event and the line of the call.
    """

    def __init__(self, subject: str, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        """`subject` says in the log what was not sent."""
        self._subject = subject
        self._place = _place_of_call()
        self._work = work
        self._running: Coroutine[Any, Any, T] | None = None
        self._is_owed = True
        """Whether dropping it would lose the event."""
        _owed.add(self)

    @classmethod
    def done(cls, result: T) -> Sending[T]:
        """One with nothing left to do, for an event that is already in the program's transaction."""

        async def work() -> T:
            return result

        sending = cls("", work)
        sending._settle()
        return sending

    def then(self, convert: Callable[[T], R]) -> Sending[R]:
        """The same, with the result converted."""
        work, converted = self._work, cast(Sending[R], self)

        async def work_and_convert() -> R:
            return convert(await work())

        converted._work = work_and_convert
        return converted

    def __await__(self) -> Generator[Any, Any, T]:
        return self._begun().__await__()

    def send(self, value: Any) -> Any:
        """Used by event loops."""
        return self._begun().send(value)

    def throw(self, kind: Any, value: Any = None, traceback: TracebackType | None = None) -> Any:
        """Used by event loops."""
        error = kind if isinstance(kind, BaseException) else value if isinstance(value, BaseException) else kind()
        return self._begun().throw(error)

    def close(self) -> None:
        """Drop it on purpose: the event is not sent."""
        self._settle()
        if self._running is not None:
            self._running.close()

    def _begun(self) -> Coroutine[Any, Any, T]:
        if self._running is None:
            self._settle()
            self._running = self._work()
        return self._running

    def _settle(self) -> None:
        self._is_owed = False
        _owed.discard(self)

    def _report(self) -> None:
        self._settle()
        path, line = self._place
        _log.error(
            "%s was never awaited at %s:%d, so nothing was sent; write `await`, or call the method that ends in _sync"
            " where nothing can be awaited",
            self._subject,
            path,
            line,
        )

    def __del__(self) -> None:
        if getattr(self, "_is_owed", False):  # not if the constructor itself failed
            self._report()


def _place_of_call() -> tuple[str, int]:
    """The file and line of the program that called a method of ours."""
    frame: FrameType | None = sys._getframe(2)
    place = ("", 0)
    while frame is not None:
        place = (frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back if frame.f_globals.get("__name__", "").startswith("doorstep.") else None
    return place


_owed: WeakSet[Sending[Any]] = WeakSet()
"""Those that nobody has awaited yet."""


@atexit.register
def _report_all() -> None:
    """At exit, Python may no longer call `__del__`, or may call it after the log was closed."""
    for sending in list(_owed):
        sending._report()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_owed.clear)  # the parent may still await them
