"""Deliveries to Python functions: the same tries, deadlines and replies as over HTTP.

Async handlers run as tasks of the event loop, plain ones in threads, isolated ones in processes. Python cannot stop a
function that hangs in a thread: past its deadline it is reported as a timeout and left behind, and whatever it does
later is no longer looked at. A process is ended.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from doorstep.clock import SECOND, Clock, Instant
from doorstep.model.outcome import Code, Failure, Reply
from doorstep.wire.daemon_threads import DaemonThreads
from doorstep.wire.handler_replies import body_of, failure_of, response_of
from doorstep.wire.isolation.frames import Report
from doorstep.wire.isolation.pool import Isolation, Job, ProcessPool
from doorstep.wire.received import Handler, Received, received
from doorstep.wire.transport import Done, Transmission

__all__ = ["Handler", "HandlerTransport", "Received"]

_FAREWELL_SECONDS = 1.0
"""How long cancelled async handlers may take to clean up when the transport closes."""
_LEASE_SLACK_SECONDS = 0.25
"""What is left of a lease when a try that waited for a process has used all its time: enough to write it down."""


class HandlerTransport:
    """A `Transport` to registered functions."""

    def __init__(
        self,
        clock: Clock,
        handlers: Mapping[str, Handler],
        threads_max: int = 512,
        body_bytes_max: int = 16_384,
        isolated: Mapping[str, Isolation] = {},
    ) -> None:
        """`handlers` are the functions by the names that endpoints refer to; it may grow while the transport runs.

        Those that `isolated` names too run in processes of their own.
        """
        self._clock = clock
        self._handlers = handlers
        self._isolated = isolated
        self._threads_max = threads_max
        self._body_bytes_max = body_bytes_max
        self._calls: set[_Call] = set()
        self._replies: list[tuple[Transmission, Reply]] = []
        self._threads = DaemonThreads(threads_max)
        self._pools: dict[str, ProcessPool] = {}

    @property
    def stuck_threads(self) -> int:
        """Threads left behind in handlers that have not returned; they end when their handler does."""
        return self._threads.given_up

    # -- Transport -----------------------------------------------------------------------------------------

    def open(self, done: Done) -> None:
        self._loop = asyncio.get_running_loop()
        self._done = done
        self._threads = DaemonThreads(self._threads_max)

    def serves(self, target: str) -> bool:
        return target in self._handlers

    def places(self, target: str) -> int | None:
        isolation = self._isolated.get(target)
        return None if isolation is None else isolation.processes_max

    def start(self, transmissions: Sequence[Transmission]) -> None:
        for transmission in transmissions:
            call = _Call(transmission, self._clock.now())
            self._calls.add(call)
            function = self._handlers.get(transmission.target)
            if function is None:
                self._end(call, failure=_unknown(transmission.target))
            else:
                self._begin(call, function)

    async def close(self) -> None:
        calls, self._calls = self._calls, set()
        pools, self._pools = self._pools, {}
        self._replies.clear()
        for call in calls:
            call.leave()
            call.give_up()
        self._threads.close()
        if tasks := [call.task for call in calls if call.task is not None]:
            await asyncio.wait(tasks, timeout=_FAREWELL_SECONDS)
        await asyncio.gather(*(pool.close() for pool in pools.values()))

    # -- running -------------------------------------------------------------------------------------------

    def _begin(self, call: _Call, function: Handler) -> None:
        if call.transmission.target in self._isolated:
            self._begin_in_process(call)
        elif _is_async(function):
            self._limit(call, call.transmission.timeout_seconds, self._time_out)
            self._begin_task(call, function)
        else:
            self._limit(call, call.transmission.timeout_seconds, self._time_out)
            job = self._threads.submit(lambda: self._run_in_thread(call, function))
            call.give_up = lambda: self._threads.give_up(job)
            call.begun = lambda: job.seat is not None

    def _limit(self, call: _Call, seconds: float, over: Callable[[_Call], None]) -> None:
        if call.timer is not None:
            call.timer.cancel()
        call.timer = self._loop.call_later(seconds, over, call)

    def _begin_task(self, call: _Call, function: Callable[[Received], Any]) -> None:
        call.task = self._loop.create_task(self._await(call, function))
        call.give_up, call.begun = call.task.cancel, _always

    async def _await(self, call: _Call, function: Callable[[Received], Any]) -> None:
        try:
            result = await function(received(call.transmission.claim))
        except BaseException as error:  # noqa: BLE001  SystemExit too: it costs the attempt, not the process
            self._end(call, error=error)
        else:
            self._end(call, result=result)

    def _run_in_thread(self, call: _Call, function: Handler) -> None:
        if call.ended:
            return
        call.started_at = self._clock.now()
        result, error = None, None
        try:
            result = function(received(call.transmission.claim))
        except BaseException as raised:  # noqa: BLE001  as above
            error = raised
        try:
            self._loop.call_soon_threadsafe(self._returned, call, result, error)
        except RuntimeError:
            pass  # the event loop has closed meanwhile: nobody waits for the result

    def _returned(self, call: _Call, result: object, error: BaseException | None) -> None:
        """Back from a thread. A plain function that returned an awaitable has only begun."""
        if error is None and inspect.isawaitable(result) and not call.ended:
            self._begin_task(call, lambda _: result)
        else:
            self._end(call, result=result, error=error)

    # -- isolated ------------------------------------------------------------------------------------------

    def _begin_in_process(self, call: _Call) -> None:
        """Its time runs from when a process takes it: to start one may take as long as the program takes to import."""
        pool = self._pool(call.transmission.target)
        content = msgspec.msgpack.encode(received(call.transmission.claim))
        job = Job(content, lambda: self._taken(call), lambda report: self._reported(call, report))
        call.give_up = lambda: pool.give_up(job)
        self._limit(call, self._patience_seconds(call), self._no_process)
        pool.submit(job)

    def _pool(self, name: str) -> ProcessPool:
        if name not in self._pools:
            self._pools[name] = ProcessPool(self._isolated[name], self._body_bytes_max)
        return self._pools[name]

    def _patience_seconds(self, call: _Call) -> float:
        """How long it may wait and still be written down before its lease ends, if it then takes all its time."""
        left = (call.transmission.claim.lease_until - self._clock.now()) / SECOND
        return max(0.0, left - call.transmission.timeout_seconds - _LEASE_SLACK_SECONDS)

    def _taken(self, call: _Call) -> None:
        if not call.ended:
            call.started_at = self._clock.now()
            self._limit(call, call.transmission.timeout_seconds, self._time_out)

    def _reported(self, call: _Call, report: Report) -> None:
        self._end(call, result=report.body, failure=report.failure)

    def _no_process(self, call: _Call) -> None:
        call.give_up()
        self._end(call, failure=Failure(Code.TIMEOUT, "No process for the handler was ready in time."))

    # -- ending --------------------------------------------------------------------------------------------

    def _time_out(self, call: _Call) -> None:
        begun = call.begun()
        call.give_up()
        message = f"The handler did not return within {call.transmission.timeout_seconds:g} s."
        detail = "" if begun else f"no thread became free; {self.stuck_threads} are stuck in handlers that hang"
        self._end(call, failure=Failure(Code.TIMEOUT, message, detail=detail))

    def _end(
        self, call: _Call, result: object = None, error: BaseException | None = None, failure: Failure | None = None
    ) -> None:
        """Report a call once; whatever comes after its deadline, or after `close`, is dropped."""
        if call not in self._calls:
            return
        self._calls.discard(call)
        call.leave()
        if error is not None:
            failure, result = failure_of(error, call.transmission.claim.payload), response_of(error)
        if not self._replies:
            self._loop.call_soon(self._hand_over)
        self._replies.append((call.transmission, self._reply(call, result, failure)))

    def _reply(self, call: _Call, result: object, failure: Failure | None) -> Reply:
        return Reply(
            started_at=call.started_at,
            finished_at=self._clock.now(),
            request_headers=call.transmission.logged_headers,
            body=body_of(result, self._body_bytes_max),
            failure=failure,
        )

    def _hand_over(self) -> None:
        replies, self._replies = self._replies, []
        if replies:
            self._done(replies)


class _Call:
    """One try under way, as a task, in a thread or in a process."""

    __slots__ = ("begun", "ended", "give_up", "started_at", "task", "timer", "transmission")

    def __init__(self, transmission: Transmission, now: Instant) -> None:
        self.transmission = transmission
        self.started_at = now
        self.ended = False
        self.timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None
        self.give_up: Callable[[], object] = _nothing
        """Stop it, as far as that can be done."""
        self.begun: Callable[[], bool] = _always

    def leave(self) -> None:
        """Nobody waits any more."""
        self.ended = True
        if self.timer is not None:
            self.timer.cancel()


def _nothing() -> None: ...


def _always() -> bool:
    return True


def _is_async(function: Handler) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _unknown(name: str) -> Failure:
    return Failure(Code.NO_HANDLER, f"No handler named {name!r} is registered in this worker.")
