"""Deliveries to Python functions, with the same attempts, deadlines and replies as over HTTP.

Async handlers run as tasks on the event loop, plain handlers in threads, and isolated handlers in processes. Python
cannot stop a function that hangs in a thread. After the deadline, the attempt is reported as a timeout, the thread is
abandoned, and a later result is ignored. A process is killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from uuid import UUID

import msgspec

from doorstep.clock import SECOND, Clock, Instant
from doorstep.model.attempt import Code, Failure, Reply
from doorstep.transports.handler_arguments import called, is_async
from doorstep.transports.handler_replies import Ending, Handler, Received, awaited, ending_of, received
from doorstep.transports.isolation import Isolation
from doorstep.transports.isolation.pool import Job, ProcessPool
from doorstep.transports.threads import DaemonThreads
from doorstep.transports.transport import Done, Transmission, Transport

_STUCK_SHARE = 8
"""One handler may block at most one in this many threads. When it has reached that limit, it gets no more threads until
one of them returns."""
_REMEDY = "set a timeout on the calls that it makes, or declare it with isolated=True"
_CLEANUP_SECONDS = 1.0
"""How long cancelled async handlers may take to clean up when the transport closes."""


class HandlerTransport(Transport):
    """A `Transport` to registered functions."""

    def __init__(
        self,
        clock: Clock,
        handlers: Mapping[str, Handler],
        threads_max: int = 512,
        isolated: Mapping[str, Isolation] = {},
        orgs: Mapping[str, Collection[UUID]] | None = None,
        warn: Callable[[str], object] = lambda _: None,
        settle_slack_seconds: float = 0.0,
    ) -> None:
        """`handlers` maps the names that endpoints use to functions. Handlers may be added while the transport runs.

        Handlers in `isolated` run in separate processes. `orgs` maps each handler to the organizations that it serves;
        without it, each handler serves all. `warn` receives messages for operators. An attempt that has had to wait for
        a process is started only if the rest of its lease is at least its timeout plus `settle_slack_seconds`.
        """
        self._clock = clock
        self._handlers = handlers
        self._isolated = isolated
        self._settle_slack_seconds = settle_slack_seconds
        self._orgs = orgs
        self._warn = warn
        self._threads_max = threads_max
        self._stuck_max = max(1, threads_max // _STUCK_SHARE)
        self._calls: set[_Call] = set()
        self._replies: list[tuple[Transmission, Reply]] = []
        self._threads = DaemonThreads(threads_max, self._stuck_max)
        self._used_up: set[str] = set()
        """The handlers that have reached their limit of blocked threads."""
        self._pools: dict[str, ProcessPool] = {}

    @property
    def stuck_threads(self) -> int:
        """The number of abandoned threads whose handler has not returned yet. Each of these threads ends when its
        handler returns."""
        return self._threads.stuck()

    # -- Transport -----------------------------------------------------------------------------------------

    def open(self, done: Done) -> None:
        self._loop = asyncio.get_running_loop()
        self._done = done
        self._threads = DaemonThreads(self._threads_max, self._stuck_max)
        self._used_up.clear()

    def serves(self, target: str, org_id: UUID) -> bool:
        return target in self._handlers and (self._orgs is None or org_id in self._orgs.get(target, ()))

    def slots(self, target: str) -> int | None:
        isolation = self._isolated.get(target)
        if isolation is not None:
            return isolation.processes_max
        stuck = self._threads.stuck(target)
        self._used_up -= {target} if stuck < self._stuck_max else set()
        return max(0, self._stuck_max - stuck) if stuck else None

    def start(self, transmissions: Sequence[Transmission]) -> None:
        for transmission in transmissions:
            call = _Call(transmission, self._clock.now())
            self._calls.add(call)
            if self.serves(transmission.target, transmission.claim.org_id):
                self._begin(call, self._handlers[transmission.target])
            else:
                message = f"No handler named {transmission.target!r} is registered in this worker."
                self._end(call, Ending(failure=Failure(Code.NO_HANDLER, message)))

    async def close(self) -> None:
        calls, self._calls = self._calls, set()
        pools, self._pools = self._pools, {}
        self._replies.clear()
        for call in calls:
            call.leave()
            call.give_up()
        self._threads.close()
        if tasks := [call.task for call in calls if call.task is not None]:
            await asyncio.wait(tasks, timeout=_CLEANUP_SECONDS)
        await asyncio.gather(*(pool.close() for pool in pools.values()))

    # -- running -------------------------------------------------------------------------------------------

    def _begin(self, call: _Call, function: Handler) -> None:
        if call.transmission.target in self._isolated:
            return self._begin_in_process(call)
        self._limit(call, call.transmission.timeout_seconds, self._time_out)
        begin = self._begin_task if is_async(function) else self._begin_in_thread
        begin(call, partial(called, function))

    def _limit(self, call: _Call, seconds: float, over: Callable[[_Call], None]) -> None:
        if call.timer is not None:
            call.timer.cancel()
        call.timer = self._loop.call_later(seconds, over, call)

    def _begin_task(self, call: _Call, function: Callable[[Received], object]) -> None:
        call.task = self._loop.create_task(self._run_in_task(call, function))
        call.give_up, call.started = call.task.cancel, True

    async def _run_in_task(self, call: _Call, function: Callable[[Received], object]) -> None:
        given = received(call.transmission.claim, call.transmission.headers)
        result = ending_of(function, given)
        self._end(call, result if isinstance(result, Ending) else await awaited(result, given))

    def _begin_in_thread(self, call: _Call, function: Callable[[Received], object]) -> None:
        """Run a plain handler in a thread. Encoding its result or describing its exception may take long, so that is
        done in the same thread."""

        def run() -> Ending | Awaitable[object]:
            call.started = True  # set before `ended` is read, because a timeout sets `ended` before it reads `started`
            if call.ended:
                return Ending()
            call.started_at = self._clock.now()
            return ending_of(function, received(call.transmission.claim, call.transmission.headers))

        job = self._threads.call(run, lambda result: self._returned(call, result), self._loop, call.transmission.target)
        call.give_up = lambda: self._threads.give_up(job)

    def _returned(self, call: _Call, result: Ending | Awaitable[object]) -> None:
        """Called with the result of a thread. If it is an awaitable, the attempt continues as a task."""
        if isinstance(result, Ending):
            self._end(call, result)
        elif not call.ended:
            self._begin_task(call, lambda _: result)

    # -- isolated ------------------------------------------------------------------------------------------

    def _begin_in_process(self, call: _Call) -> None:
        """Pass the attempt to a process. Its timeout starts when a process takes it, because starting a process
        includes importing the program, which may take long."""
        pool = self._pool(call.transmission.target)
        content = msgspec.msgpack.encode(received(call.transmission.claim, call.transmission.headers))
        job = Job(content, lambda: self._taken(call), lambda report: self._end(call, report))
        call.give_up = lambda: pool.give_up(job)
        self._limit(call, self._patience_seconds(call), self._no_process)
        pool.submit(job)

    def _pool(self, name: str) -> ProcessPool:
        if name not in self._pools:
            self._pools[name] = ProcessPool(self._isolated[name])
        return self._pools[name]

    def _patience_seconds(self, call: _Call) -> float:
        """How long the attempt may wait for a process, so that it can still use its whole timeout and be settled before
        its lease expires."""
        left = (call.transmission.claim.lease_until - self._clock.now()) / SECOND
        return max(0.0, left - call.transmission.timeout_seconds - self._settle_slack_seconds)

    def _taken(self, call: _Call) -> None:
        if not call.ended:
            call.started = True
            call.started_at = self._clock.now()
            self._limit(call, call.transmission.timeout_seconds, self._time_out)

    def _no_process(self, call: _Call) -> None:
        call.give_up()
        trouble = self._pool(call.transmission.target).trouble
        failure = Failure(Code.TIMEOUT, "No process for the handler was ready in time.", detail=trouble)
        self._end(call, Ending(failure=failure, started=False))

    # -- ending --------------------------------------------------------------------------------------------

    def _time_out(self, call: _Call) -> None:
        call.leave()
        target, started = call.transmission.target, call.started
        call.give_up()
        stuck = self._threads.stuck(target)
        message, detail = f"The handler did not return within {call.transmission.timeout_seconds:g} s.", ""
        if not started:
            message = "No thread became free for the handler in time."
            detail = f"{stuck} threads are stuck in this handler, {self.stuck_threads} in all"
        self._end(call, Ending(failure=Failure(Code.TIMEOUT, message, detail=detail), started=started))
        if stuck >= self._stuck_max and target not in self._used_up:
            self._used_up.add(target)
            self._warn(f"handler {target!r} hangs in {stuck} threads and gets no more until one returns; {_REMEDY}")

    def _end(self, call: _Call, ending: Ending) -> None:
        """Report the result of a call. Only the first result of a call is reported, and nothing is reported after
        `close`."""
        if call not in self._calls:
            return
        self._calls.discard(call)
        call.leave()
        if not self._replies:
            self._loop.call_soon(self._report)
        reply = Reply(
            started_at=call.started_at,
            finished_at=self._clock.now(),
            request_headers=call.transmission.logged_headers,
            body=ending.body,
            failure=ending.failure,
            started=ending.started,
        )
        self._replies.append((call.transmission, reply))

    def _report(self) -> None:
        replies, self._replies = self._replies, []
        if replies:
            self._done(replies)


@dataclass(slots=True, eq=False)
class _Call:
    """One running attempt, as a task, in a thread or in a process."""

    transmission: Transmission
    started_at: Instant
    ended: bool = False
    timer: asyncio.TimerHandle | None = None
    task: asyncio.Task[None] | None = None
    give_up: Callable[[], object] = lambda: None
    """Stops the attempt, as far as that is possible."""
    started: bool = False
    """Whether the handler may have been called."""

    def leave(self) -> None:
        """Mark the attempt as ended and cancel its timer."""
        self.ended = True
        if self.timer is not None:
            self.timer.cancel()
