"""An event loop without a clock and without I/O: time jumps to the next timer, so hours pass in milliseconds.

Tasks belong to processes. A frozen process runs nothing until it is thawed. A killed process never runs again: no
cancellation and no `finally`, as after kill -9. A task belongs to the process in whose context it was created. Code
outside every process is the world, which never stops.
"""

from __future__ import annotations

import asyncio
import heapq
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar, cast

from doorstep.clock import SECOND, Instant, seconds

T = TypeVar("T")
_STEPS_PER_INSTANT_MAX = 50_000
_process: ContextVar[Process | None] = ContextVar("process", default=None)


class Stuck(AssertionError):
    """No task can continue, or tasks run forever without time passing."""


class Handle:
    """A scheduled callback. If it is a timer, it can be cancelled."""

    __slots__ = ("_when", "args", "callback", "context", "is_cancelled")

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...], context: Context, when: float) -> None:
        self.callback = callback
        self.args = args
        self.context = context
        self.is_cancelled = False
        self._when = when

    def cancel(self) -> None:
        self.is_cancelled = True

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        return self._when


class Process:
    """A group of tasks that are frozen and killed together."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.frozen = False
        self.dead = False
        self.stalled: list[Handle] = []
        self.context = copy_context()
        self.context.run(_process.set, self)

    @property
    def runs(self) -> bool:
        return not (self.frozen or self.dead)

    def hold(self, handle: Handle) -> None:
        """Keep the callbacks of a frozen process for later; drop those of a dead one."""
        if not self.dead:
            self.stalled.append(handle)


class VirtualLoop:
    """The part of an event loop that tasks, futures, sleeps and events need."""

    def __init__(self) -> None:
        self.now: Instant = 0
        """Time since the loop was created."""
        self.troubles: list[str] = []
        """Unhandled exceptions."""
        self._ready: deque[Handle] = deque()
        self._timers: list[tuple[Instant, int, Handle]] = []
        self._timer_count = 0
        self._tasks: list[asyncio.Task[Any]] = []
        self._as_asyncio = cast(asyncio.AbstractEventLoop, self)

    # -- running -------------------------------------------------------------------------------------------

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run until `main` has ended. Other tasks are abandoned where they are."""
        events._set_running_loop(self._as_asyncio)
        try:
            task: asyncio.Task[T] = self.create_task(main)
            while not task.done():
                self._advance()
                self._run_ready(task)
            return task.result()
        finally:
            events._set_running_loop(None)

    def kill(self, process: Process) -> None:
        process.dead = True
        process.stalled.clear()

    def freeze(self, process: Process) -> None:
        process.frozen = True

    def thaw(self, process: Process) -> None:
        """Resume a process, including everything that became due while it was frozen."""
        process.frozen = False
        self._ready.extend(process.stalled)
        process.stalled.clear()

    def unhandled(self) -> list[str]:
        """All errors that nobody handled: failed callbacks, and failed tasks that nobody awaited."""
        forgotten = [task for task in self._tasks if task.done() and task._log_traceback]
        return self.troubles + [f"{task.get_name()} ended with {task.exception()!r}" for task in forgotten]

    def _advance(self) -> None:
        timers = self._timers
        if not self._ready:
            if not timers:
                raise Stuck("no task is ready and no timer is set")
            self.now = max(self.now, timers[0][0])
        while timers and timers[0][0] <= self.now:
            self._ready.append(heapq.heappop(timers)[2])

    def _run_ready(self, main: asyncio.Task[Any]) -> None:
        steps, ready = 0, self._ready
        while ready and not main.done():
            self._run_one(ready.popleft())
            steps += 1
            if steps > _STEPS_PER_INSTANT_MAX:
                raise Stuck(f"{steps} steps at one instant, {self.now / SECOND:.6f} s, and still more to do")

    def _run_one(self, handle: Handle) -> None:
        if handle.is_cancelled:
            return
        process = handle.context.get(_process)
        if process is not None and not process.runs:
            process.hold(handle)
            return
        try:
            handle.context.run(handle.callback, *handle.args)
        except Exception as error:  # noqa: BLE001 - a callback must not end the loop
            self.troubles.append(f"{type(error).__name__} in a callback: {error}")

    # -- the event loop interface of asyncio ---------------------------------------------------------------

    def time(self) -> float:
        return self.now / SECOND

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Any:
        handle = Handle(callback, args, copy_context() if context is None else context, 0)
        self._ready.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Any:
        return self._call_at(self.now + max(0, seconds(delay)), callback, args, context)

    def call_at(self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Any:
        return self._call_at(seconds(when), callback, args, context)

    def _call_at(
        self, at: Instant, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> Handle:
        handle = Handle(callback, args, copy_context() if context is None else context, at / SECOND)
        self._timer_count += 1
        heapq.heappush(self._timers, (at, self._timer_count, handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self._as_asyncio)

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None) -> Any:
        task = asyncio.Task(coro, loop=self._as_asyncio, name=name, context=context)
        # Keep every task until the end: garbage collection must not run the `finally` clauses of a killed process.
        self._tasks.append(task)
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        return task

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.troubles.append(f"{context.get('message')}: {context.get('exception')!r}")
