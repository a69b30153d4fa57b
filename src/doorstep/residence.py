"""Where a Doorstep lives: the event loop that its store was opened in, whoever asks, from wherever.

Programs ask from plain threads, from other event loops, and from processes that were forked.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from doorstep.blocking import LoopThread
from doorstep.stores.store import Store

T = TypeVar("T")


class Residence:
    """A part of class Doorstep."""

    store: Store

    def __init__(self, new_store: Callable[[], Store]) -> None:
        """`new_store` makes one for a process that was forked: connections cannot be shared with the parent."""
        self._new_store = new_store
        self._left_behind: Store | None = None
        self._home: tuple[int, asyncio.AbstractEventLoop] | None = None
        """The process and the event loop in which the store was opened."""
        self._moving: asyncio.Task[None] | None = None
        self._thread = LoopThread()
        self._opening = threading.Lock()

    async def open(self, *, migrate: bool = True) -> None:
        """Open the store."""
        raise NotImplementedError

    async def close(self) -> None:
        """Close the store."""
        raise NotImplementedError

    def wait(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run something on the open store, in the event loop that it was opened in: the program's, or one of ours."""
        with self._opening:
            if self._living_home() is None:
                self._thread.run(self.open())
        return self._thread.run(work(), self._living_home())

    async def at_home(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The same for those who can await, in whichever event loop they run."""
        if self._living_home() is None:
            if self._moving is None or self._moving.done():
                self._moving = asyncio.create_task(self.open())
            await asyncio.shield(self._moving)
        home = self._living_home()
        assert home is not None, "it was opened just now"
        if home is asyncio.get_running_loop():
            return await work()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(), home))

    def _living_home(self) -> asyncio.AbstractEventLoop | None:
        """The event loop that the store was opened in; None if there is none in this process."""
        if self._home is None or self._home[0] != os.getpid() or self._home[1].is_closed():
            return None
        return self._home[1]

    async def _move_in(self) -> bool:
        """Make this event loop our home; False where it is already."""
        home = self._living_home()
        if home is asyncio.get_running_loop():
            return False
        if home is not None:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.close(), home))
        elif self._home is not None:  # we were forked, and the connections of the store are our parent's; or left alone
            self._left_behind, self.store = self.store, self._new_store()
        return True
