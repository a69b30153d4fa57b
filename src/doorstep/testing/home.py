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

from doorstep.components import Components
from doorstep.loop_binding import LoopBinding, in_a_loop

T = TypeVar("T")
Work = Callable[[], Coroutine[Any, Any, T]]

_ANSWER_SECONDS = 0.05


class SandboxBinding(LoopBinding[Components]):
    """Stands in for the binding of a Doorstep for the time of a sandbox."""

    draining = False
    """Its event loop is at work, however long it takes to answer."""

    def call_sync(self, work: Work[T]) -> T:
        """For those who cannot await."""
        if in_a_loop() or self._answers():
            return super().call_sync(work)
        return asyncio.run(work())

    async def call(self, work: Work[T]) -> T:
        """For those who can."""
        if self.is_open_here() or not self._answers():
            return await work()
        return await super().call(work)

    def _answers(self) -> bool:
        """Whether the event loop of the sandbox goes on."""
        if self.draining:
            return True
        answered = threading.Event()
        self.pin().loop.call_soon_threadsafe(answered.set)
        return answered.wait(_ANSWER_SECONDS)
