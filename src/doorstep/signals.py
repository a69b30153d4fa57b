"""Runs a program until a signal stops it: the event loop and the signal handlers."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Awaitable, Callable


def run_until_stopped(command: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Run a command in a new event loop. A signal sets the event; the command must then return."""
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError(
            "this runs until a signal arrives, and only the main thread receives signals; call it there, "
            "or use `async with doorstep` in an event loop of this thread"
        )
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
    """The first signal starts a graceful shutdown. The second exits at once, which is safe because leases expire.

    Signals within a second count as one: a terminal, make and a service manager may all forward the same signal.
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
