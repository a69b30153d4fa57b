"""An event loop in a thread of its own, for programs that have none: they hand it coroutines and wait."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

STANDS_STILL = "the event loop that Doorstep was opened in stands still; close it there first"
_LOOK_SECONDS = 1.0


class LoopThread:
    """Starts with the first call, and again in a process that was forked: threads do not survive a fork."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = 0

    def run(self, coroutine: Coroutine[Any, Any, T], home: asyncio.AbstractEventLoop | None = None) -> T:
        """Wait for a coroutine, run in `home` if that is given. Not from inside an event loop, which would stand still."""
        if _in_a_loop():
            coroutine.close()
            raise RuntimeError("this call would block the running event loop; await the asynchronous one instead")
        if home is not None and not home.is_running():
            coroutine.close()
            raise RuntimeError(STANDS_STILL)
        loop = home or self.loop()
        return _result(asyncio.run_coroutine_threadsafe(coroutine, loop), loop)

    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop, which runs from now on."""
        with self._lock:
            if self._loop is None or self._process != os.getpid():
                self._loop = asyncio.new_event_loop()
                self._process = os.getpid()
                threading.Thread(target=self._loop.run_forever, name="doorstep", daemon=True).start()
            return self._loop


def _result(future: Future[T], loop: asyncio.AbstractEventLoop) -> T:
    """Wait for it; not for ever where the event loop has ended meanwhile."""
    while True:
        try:
            return future.result(_LOOK_SECONDS)
        except TimeoutError:
            if future.done():
                return future.result()
            if not loop.is_running():
                future.cancel()
                raise RuntimeError(STANDS_STILL) from None


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
