"""Where a Doorstep lives: the event loop that its store was opened in, whoever asks, from wherever.

Programs ask from plain threads, from other event loops, and from processes that were forked. What the first event opens
lives in an event loop of our own; only who opens it himself has it in his.
"""

from __future__ import annotations

import asyncio
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar
from weakref import WeakSet

from doorstep.blocking import STANDS_STILL, LoopThread
from doorstep.errors import Conflict, StoreUnavailable
from doorstep.services.worker import Worker
from doorstep.stores.store import Store

T = TypeVar("T")
Home = tuple[int, asyncio.AbstractEventLoop]

_NOT_OPEN = "this Doorstep is not open; open it first, with `async with doorstep` or `await doorstep.open()`"
_ELSEWHERE = "this Doorstep delivers in another event loop; close it there first, or make another one"
_LAST_VISITS_SECONDS = 2.0
_LOOK_SECONDS = 0.005


class Residence(ABC):
    """A part of class Doorstep."""

    store: Store

    def __init__(self, new_store: Callable[[], Store]) -> None:
        """`new_store` makes one for a process that was forked: connections cannot be shared with the parent."""
        self._new_store = new_store
        self._left_behind: list[Store] = []
        """Those of our parents: were they collected here, connections that are not ours would be closed."""
        self._home: Home | None = None
        """The process and the event loop in which the store was opened."""
        self._opened_by: int | None = None
        """The process that began to open the store, whether it came to an end or not."""
        self._worker: Worker | None = None
        self._begin_anew()
        _residences.add(self)

    def _begin_anew(self) -> None:
        """Here, and in a forked process: no thread of the parent is there to end what it had begun."""
        self._gate = _Gate()
        self._visitors = _Visitors()
        self._thread = LoopThread()
        self._worker = None

    @abstractmethod
    async def _open(self, *, migrate: bool, admin_key: bool) -> None:
        """Open the store in this event loop, and make it our home."""

    @abstractmethod
    async def _close(self) -> None:
        """Stop what runs, and leave home."""

    # -- asking --------------------------------------------------------------------------------------------

    def wait(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run something on the open store, in the event loop that it was opened in: the program's, or one of ours."""
        while True:
            home = self._living_home()
            try:
                if home is not None:
                    return self._thread.run(self._visit(work), home)
                self._thread.run(self._open_for_guests())
            except _Moved:
                continue

    async def at_home(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The same for those who can await, in whichever event loop they run."""
        while True:
            home = self._living_home()
            try:
                if home is asyncio.get_running_loop():
                    return await self._visit(work)
                if home is not None:
                    return await _there(lambda: self._visit(work), _running(home))
                await _there(self._open_for_guests, self._thread.loop())
            except _Moved:
                continue

    async def inside(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The same on a Doorstep that must be open already."""
        self.check_open()
        return await self.at_home(work)

    def check_open(self, *, here: bool = False) -> None:
        """Conflict if it is not; or not `here`, in this event loop."""
        home = self._living_home()
        if home is None or (here and home is not asyncio.get_running_loop()):
            raise Conflict(_NOT_OPEN)

    def _delivers(self) -> bool:
        """Whether a worker runs in this process; one whose event loop was ended without closing does not."""
        return self._worker is not None and self.is_open()

    def is_open(self) -> bool:
        """Whether the store is open in this process, in whichever event loop."""
        return self._living_home() is not None

    def stay(self) -> LeasedHome:
        """The present home, for work that may outlast it and must open none."""
        return LeasedHome(self, self._home)

    async def _visit(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Done at home, where nobody moves out as long as visitors are there."""
        if self._living_home() is not asyncio.get_running_loop():
            raise _Moved
        with self._visitors:
            return await work()

    # -- moving --------------------------------------------------------------------------------------------

    def _living_home(self) -> asyncio.AbstractEventLoop | None:
        """The event loop that the store was opened in; None if there is none in this process."""
        home = self._home  # read once: another thread may be closing
        if home is None or home[0] != os.getpid() or home[1].is_closed():
            return None
        return home[1]

    async def open(self, *, migrate: bool = True, admin_key: bool = False) -> None:
        """Open the store and make what a first start needs; harmless where it is open. Events can be sent from here on.

        It lives in this event loop then, also if it was open in another one of this process. With `admin_key`, the
        first API key is made where there is none, and it is up to you to show `generated_admin_key` to somebody.
        """
        async with self._gate:
            home = self._living_home()
            if home is asyncio.get_running_loop():
                return
            if home is not None:
                if self._worker is not None:
                    raise Conflict(_ELSEWHERE)
                await _there(self._close, _running(home))
            self._leave_lost_store()
            await self._open(migrate=migrate, admin_key=admin_key)

    async def close(self) -> None:
        """Stop delivering (finishing or handing back what is under way) and close the store."""
        async with self._gate:
            home = self._living_home()
            if home is asyncio.get_running_loop():
                await self._close()
            elif home is not None:
                await _there(self._close, _running(home))

    async def _open_for_guests(self) -> None:
        async with self._gate:
            if self._living_home() is None:
                self._leave_lost_store()
                await self._open(migrate=True, admin_key=False)

    def _leave_lost_store(self) -> None:
        """We were forked, and its connections are our parent's; or its event loop was ended without closing it."""
        if self._home is not None or self._opened_by not in (None, os.getpid()):
            self._left_behind.append(self.store)
            self.store, self._home, self._worker = self._new_store(), None, None
        self._opened_by = os.getpid()

    def _settle_in(self) -> None:
        self._home = os.getpid(), asyncio.get_running_loop()

    async def _leave_home(self) -> None:
        """Nobody comes in any more; who is there is waited for a little, so that nothing is cut off that was begun."""
        self._home = None
        await self._visitors.gone(_LAST_VISITS_SECONDS)
        await self.store.close()


class _Moved(Exception):
    """Who comes to visit finds that this is no longer the home."""


class _Visitors:
    """How many are there; counted in the event loop that is the home."""

    def __init__(self) -> None:
        self._count = 0

    def __enter__(self) -> None:
        self._count += 1

    def __exit__(self, *exc: object) -> None:
        self._count -= 1

    async def gone(self, seconds_max: float) -> None:
        waited = 0.0
        while self._count and waited < seconds_max:
            await asyncio.sleep(_LOOK_SECONDS)
            waited += _LOOK_SECONDS


class _Gate:
    """One passes at a time, from whichever thread and event loop; whoever waits for it lets his event loop go on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._passing: Future[None] | None = None

    async def __aenter__(self) -> None:
        while (other := self._enter()) is not None:
            await asyncio.shield(asyncio.wrap_future(other))

    def _enter(self) -> Future[None] | None:
        """None for who may pass; else the one to wait for."""
        with self._lock:
            other = self._passing
            if other is None:
                self._passing = Future()
            return other

    async def __aexit__(self, *exc: object) -> None:
        with self._lock:
            passed, self._passing = self._passing, None
        assert passed is not None
        passed.set_result(None)


async def _there(work: Callable[[], Coroutine[Any, Any, T]], loop: asyncio.AbstractEventLoop) -> T:
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(), loop))


def _running(home: asyncio.AbstractEventLoop) -> asyncio.AbstractEventLoop:
    if not home.is_running():
        raise RuntimeError(STANDS_STILL)
    return home


_residences: WeakSet[Residence] = WeakSet()


def _begin_anew() -> None:
    for residence in list(_residences):
        residence._begin_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


class LeasedHome:
    """The home that a Residence had at one moment. A function that was left behind in a thread may come back when the
    store is closed, or is another one by now: it must not open what was closed, nor write to what it never saw."""

    def __init__(self, residence: Residence, home: Home | None) -> None:
        self._residence = residence
        self._home = home

    def wait(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run something in that home; StoreUnavailable if it is gone."""
        loop = self._loop()
        return self._residence._thread.run(self._inside(work), loop)

    async def at_home(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The same for those who can await."""
        loop = self._loop()
        if loop is asyncio.get_running_loop():
            return await self._residence._visit(work)
        return await _there(lambda: self._inside(work), _running(loop))

    async def _inside(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        self._loop()  # it may have been closed on the way here
        return await self._residence._visit(work)

    def _loop(self) -> asyncio.AbstractEventLoop:
        loop = self._residence._living_home()
        if loop is None or self._residence._home is not self._home:
            raise StoreUnavailable("the Doorstep that this was begun in has been closed")
        return loop
