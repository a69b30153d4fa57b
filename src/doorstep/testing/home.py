"""Where the work of a sandbox is done when it is asked for from another thread or event loop.

In the sandbox's own event loop, as always. But a test that calls a web application's blocking test client from an event
loop stands still until that answers, and so does everything that lives in its loop. Then nothing else can touch the
store in memory, which never waits for anything: the work is done right where it was asked for.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from doorstep.app import Doorstep

T = TypeVar("T")
Work = Callable[[], Coroutine[Any, Any, T]]

_ANSWER_SECONDS = 0.05


class SandboxHome:
    """Stands in for `wait` and `at_home` of a Doorstep that is opened in the present event loop."""

    def __init__(self, doorstep: Doorstep) -> None:
        self._doorstep = doorstep
        self._loop = asyncio.get_running_loop()
        self.draining = False
        """Its event loop is at work, however long it takes to answer."""

    def wait(self, work: Work[T]) -> T:
        """For those who cannot await."""
        if _runs_here() or self._answers():
            return type(self._doorstep).wait(self._doorstep, work)
        return asyncio.run(work())

    async def at_home(self, work: Work[T]) -> T:
        """For those who can."""
        if asyncio.get_running_loop() is self._loop or not self._answers():
            return await work()
        return await type(self._doorstep).at_home(self._doorstep, work)

    def _answers(self) -> bool:
        """Whether the event loop of the sandbox goes on."""
        if self.draining:
            return True
        answered = threading.Event()
        self._loop.call_soon_threadsafe(answered.set)
        return answered.wait(_ANSWER_SECONDS)


def _runs_here() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
