"""Binds a Doorstep to the event loop in which its store was opened, and runs programs in a new loop until a signal
arrives.

Calls may come from plain threads, other event loops and forked processes; they run in the bound loop. If the store is
not open, a call opens it in a background thread with its own event loop. Only an explicit `open` uses the loop of the
caller.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from typing import Any, Generic, TypeVar
from weakref import WeakSet

from doorstep.errors import StoreUnavailable

T = TypeVar("T")
C = TypeVar("C")
Work = Callable[[], Coroutine[Any, Any, T]]

_BLOCKS = "this call would block the running event loop; await the asynchronous method instead"
_STOPPED = "the event loop that Doorstep was opened in is not running; close Doorstep there first"
_NO_SIGNALS = (
    "this runs until a signal arrives, and only the main thread receives signals; call it there, "
    "or use `async with doorstep` in an event loop of this thread"
)
_CLOSED = "this Doorstep has been closed in the meantime"
_LAST_CALLS_SECONDS = 2.0
_POLL_SECONDS = 0.005
_LOOP_CHECK_SECONDS = 1.0


class LoopBinding(Generic[C]):
    """Opens an object in one event loop, runs calls there, and closes the object there."""

    def __init__(
        self,
        open_: Work[C],
        stop: Callable[[C], Coroutine[Any, Any, None]],
        close: Callable[[C], Coroutine[Any, Any, None]],
    ) -> None:
        """`stop` stops background work while calls are still accepted; `close` is called after the last call."""
        self._open = open_
        self._stop = stop
        self._close = close
        self._pin: Pin[C] | None = None
        self._reset()
        _bindings.add(self)

    def _reset(self) -> None:
        """Create the lock and the thread. A forked process needs new ones: it has none of its parent's threads."""
        self._moving = threading.Lock()
        self.thread = LoopThread()

    # -- calling -------------------------------------------------------------------------------------------

    async def call(self, work: Work[T]) -> T:
        """Run a coroutine function in the bound loop. May be called from any loop. Opens the store if necessary."""
        while True:
            pin = self._live_pin()
            try:
                if pin is not None:
                    return await pin.call(work)
                await _run_in(self.thread.loop(), self._open_if_closed)
            except Unbound:
                continue

    def call_sync(self, work: Work[T]) -> T:
        """`call` for programs without an event loop: waits for the result. Raises RuntimeError inside a running loop."""
        while True:
            pin = self._live_pin()
            try:
                if pin is not None:
                    return pin.call_sync(work)
                self.thread.run(self._open_if_closed)
            except Unbound:
                continue

    def call_soon(self, function: Callable[[C], object]) -> None:
        """Schedule a plain function in the bound loop, from any thread. Does nothing while the store is closed."""
        pin = self._live_pin()
        if pin is not None:
            with suppress(RuntimeError):  # the loop has just been closed
                pin.loop.call_soon_threadsafe(function, pin.opened)

    def pin(self) -> Pin[C]:
        """A handle on the open store, for work that may outlast it. Raises Unbound if nothing is open."""
        if (pin := self._live_pin()) is None:
            raise Unbound(_CLOSED)
        return pin

    # -- opening and closing -------------------------------------------------------------------------------

    @property
    def opened(self) -> C | None:
        """The object opened in this process, until it is closed."""
        pin = self._pin  # read once: another thread may be closing
        return None if pin is None or pin.is_lost() else pin.opened

    @property
    def is_abandoned(self) -> bool:
        """Whether the object was left open when its process was forked or its event loop ended."""
        return self._pin is not None and self._pin.is_lost()

    def is_open(self) -> bool:
        """Whether the object is open in this process and accepts calls, in any loop."""
        return self._live_pin() is not None

    def is_open_here(self) -> bool:
        """Whether the object is open in the running event loop."""
        pin = self._live_pin()
        return pin is not None and pin.loop is asyncio.get_running_loop()

    async def open(self, open_: Work[C], check_move: Callable[[C], None]) -> None:
        """Open the object in the running loop. If it is open in another loop, move it, unless `check_move` raises."""
        async with self._alone():
            if self.is_open_here():
                return
            if (pin := self._live_pin()) is not None:
                check_move(pin.opened)
                await _run_in(pin.loop, lambda: self._unbind(pin))
            self._pin = Pin(await open_())

    async def close(self) -> None:
        """Stop the object and close it in its loop. Does nothing if it is closed."""
        async with self._alone():
            if (pin := self._live_pin()) is not None:
                await _run_in(pin.loop, lambda: self._unbind(pin))

    def close_sync(self) -> None:
        """`close` for programs without an event loop."""
        if (pin := self._live_pin()) is not None:
            _wait_in(pin.loop, self.close)

    def _live_pin(self) -> Pin[C] | None:
        pin = self._pin  # read once: another thread may be closing
        return pin if pin is not None and pin.is_live() else None

    async def _open_if_closed(self) -> None:
        async with self._alone():
            if self._live_pin() is None:
                self._pin = Pin(await self._open())

    async def _unbind(self, pin: Pin[C]) -> None:
        try:
            await self._stop(pin.opened)
        finally:
            try:
                await pin._finish_calls()
                await self._close(pin.opened)
            finally:
                self._pin = None

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Let one caller at a time open or close, across all threads and loops. Waiting never blocks an event loop."""
        lock = self._moving
        while not lock.acquire(blocking=False):
            await asyncio.sleep(_POLL_SECONDS)
        try:
            yield
        finally:
            lock.release()


class Pin(Generic[C]):
    """The period from one `open` to the next `close`, in one event loop.

    A function in a thread may return after the store was closed or reopened. Its last write must neither reopen the
    store nor go to a newly opened one.
    """

    def __init__(self, opened: C) -> None:
        self.opened = opened
        self.loop = asyncio.get_running_loop()
        self._process = os.getpid()
        self._calls = 0
        self._closing = False

    async def call(self, work: Work[T]) -> T:
        """Run a coroutine function in this loop. Raises StoreUnavailable once the store has been closed."""
        self._check_live()
        return await _run_in(self.loop, lambda: self._run(work))

    def call_sync(self, work: Work[T]) -> T:
        """`call` for plain functions."""
        self._check_live()
        return _wait_in(self.loop, lambda: self._run(work))

    def is_lost(self) -> bool:
        """Whether the pin belongs to a parent process, or its loop ended before the object was closed."""
        return self._process != os.getpid() or self.loop.is_closed()

    def is_live(self) -> bool:
        """Whether it accepts calls."""
        return not self._closing and not self.is_lost()

    def _check_live(self) -> None:
        if not self.is_live():
            raise Unbound(_CLOSED)

    async def _run(self, work: Work[T]) -> T:
        """Run in the bound loop, which is not closed while calls are running."""
        self._check_live()  # it may have been closed since the call was made
        self._calls += 1
        try:
            return await work()
        except Unbound as error:
            # `work` itself used another store, which was closed. `LoopBinding.call` would assume that its own store was
            # closed and repeat the work.
            raise StoreUnavailable(str(error)) from None
        finally:
            self._calls -= 1

    async def _finish_calls(self) -> None:
        """Accept no more calls, and wait briefly for running ones, so that their writes can finish."""
        self._closing = True
        waited = 0.0
        while self._calls and waited < _LAST_CALLS_SECONDS:
            await asyncio.sleep(_POLL_SECONDS)
            waited += _POLL_SECONDS


class LoopThread:
    """An event loop in a daemon thread, started on first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop. It is started if necessary."""
        with self._lock:
            if self._loop is None:
                self._loop, running = asyncio.new_event_loop(), threading.Event()
                self._loop.call_soon(running.set)
                threading.Thread(target=self._loop.run_forever, name="doorstep", daemon=True).start()
                running.wait()
            return self._loop

    def run(self, work: Work[T]) -> T:
        """Run a coroutine function there and wait for it. Raises RuntimeError if that would block a running loop."""
        return _wait_in(self.loop(), work)


class Unbound(StoreUnavailable):
    """A call arrived after the store had been closed. Nothing was run."""


async def _run_in(loop: asyncio.AbstractEventLoop, work: Work[T]) -> T:
    if loop is asyncio.get_running_loop():
        return await work()
    return await asyncio.wrap_future(_scheduled(loop, work))


def _wait_in(loop: asyncio.AbstractEventLoop, work: Work[T]) -> T:
    """Run a coroutine function in another thread's loop and wait for it. Stop waiting if that loop ends."""
    if in_a_loop():
        raise RuntimeError(_BLOCKS)
    future = _scheduled(loop, work)
    while True:
        try:
            return future.result(_LOOP_CHECK_SECONDS)
        except TimeoutError:
            if future.done():
                return future.result()
            if not loop.is_running():
                future.cancel()
                raise RuntimeError(_STOPPED) from None


def _scheduled(loop: asyncio.AbstractEventLoop, work: Work[T]) -> Future[T]:
    if not loop.is_running():
        raise RuntimeError(_STOPPED)
    return asyncio.run_coroutine_threadsafe(work(), loop)


def in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


_bindings: WeakSet[LoopBinding[Any]] = WeakSet()


def _reset_all() -> None:
    for binding in list(_bindings):
        binding._reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_all)


# -- programs that run until a signal stops them ---------------------------------------------------------------


def run_until_stopped(command: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Run a command in a new event loop. The command receives an event that a signal sets; it must then return."""
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError(_NO_SIGNALS)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_until_stopped(command))


async def _until_stopped(command: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    listener = _SignalListener(stop, loop.time)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, listener)
    await command(stop)


class _SignalListener:
    """The first signal starts a graceful shutdown. The second exits immediately, which is safe because leases expire.

    Signals within a second count as one: a terminal, `make` and a service manager may all forward the same signal.
    """

    def __init__(self, stop: asyncio.Event, time: Callable[[], float]) -> None:
        self._stop = stop
        self._time = time
        self._first_at = 0.0

    def __call__(self) -> None:
        if not self._stop.is_set():
            self._first_at = self._time()
            self._stop.set()
        elif self._time() - self._first_at >= 1.0:
            os._exit(1)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # not on Windows
        return None
    return uvloop.new_event_loop
