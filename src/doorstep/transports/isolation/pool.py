"""The processes of one handler: started on demand, replaced after a crash, and ended when they have been idle."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import traceback
from asyncio.subprocess import DEVNULL, Process
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from doorstep.model.attempt import Code, Failure
from doorstep.transports.isolation import FRAME_BYTES_MAX, HEAD_BYTES, Isolation, Orders, Report, decoded, framed

_IDLE_SECONDS = 60.0
_PAUSE_SECONDS = 0.1
_PAUSE_SECONDS_MAX = 5.0
"""The longest pause after a process has failed to start. The pause doubles after each failure, up to this limit."""
_CLOSE_SECONDS_MAX = 10.0
"""How long `close` waits. This is longer than an idle process needs to end, and much longer than a killed one needs."""


@dataclass(slots=True, eq=False)
class Job:
    """One attempt. `started` is called when a process takes the attempt. `ended` is called at most once, with the
    result; it may be called without `started` if no process took the attempt."""

    received: bytes
    started: Callable[[], None]
    ended: Callable[[Report], None]
    process: HandlerProcess | None = None
    given_up: bool = False


class ProcessPool:
    """At most `processes_max` processes. Each runs one job at a time, and further jobs wait."""

    def __init__(self, isolation: Isolation) -> None:
        self._orders = Orders(isolation=isolation, search_path=[str(folder) for folder in sys.path])
        self._processes_max = isolation.processes_max
        self._jobs: deque[Job] = deque()
        self._idle: list[asyncio.Future[Job | None]] = []
        """One future for each process that is waiting for a job. The most recently used process gets the next job."""
        self._starting = 0
        self._pause_seconds = 0.0
        self._pausing = False
        self._busy: set[HandlerProcess] = set()
        """Includes processes that are starting."""
        self._serving: set[asyncio.Task[None]] = set()
        self._closed = False
        self.trouble = ""
        """Why the last process could not start; empty if it started."""

    def submit(self, job: Job) -> None:
        """Run a job as soon as a process is free."""
        if self._idle:
            self._idle.pop().set_result(job)
        else:
            self._jobs.append(job)
            self._grow()

    def give_up(self, job: Job) -> None:
        """Abandon a job. If a process is running it, that process is killed; otherwise the job is never started."""
        job.given_up = True
        if job.process is not None:
            job.process.kill()
        elif job in self._jobs:
            self._jobs.remove(job)

    async def close(self) -> None:
        """End all processes. Idle processes end normally, and busy ones are killed."""
        self._closed = True
        self._jobs.clear()
        for process in self._busy:
            process.kill()
        while self._idle:
            self._idle.pop().set_result(None)
        if self._serving:
            _, left = await asyncio.wait(self._serving, timeout=_CLOSE_SECONDS_MAX)
            for task in left:
                task.cancel()

    # -- processes -----------------------------------------------------------------------------------------

    def _grow(self) -> None:
        if len(self._jobs) <= self._starting or len(self._serving) >= self._processes_max:
            return
        if self._pausing or self._closed:
            return
        self._starting += 1
        task = asyncio.get_running_loop().create_task(self._serve(), name="doorstep-handler-process")
        self._serving.add(task)
        task.add_done_callback(self._served)

    def _served(self, task: asyncio.Task[None]) -> None:
        self._serving.discard(task)
        self._grow()

    async def _serve(self) -> None:
        """Run one process until it is no longer needed, and always end it. An unexpected error fails at most one job
        and does not affect the pool."""
        process = HandlerProcess()
        self._busy.add(process)
        try:
            if await self._start(process):
                await self._work(process)
        finally:
            self._busy.discard(process)
            await process.end()

    async def _start(self, process: HandlerProcess) -> bool:
        """Start a process. If that fails, the oldest waiting job fails with it."""
        try:
            await process.start(self._orders)
        except Exception as error:  # noqa: BLE001
            failure = _failure(error)
            self.trouble = failure.message
            self._pause()
            if self._jobs:
                self._jobs.popleft().ended(Report(failure=failure))
            return False
        finally:
            self._starting -= 1
        self.trouble, self._pause_seconds = "", 0.0
        return True

    def _pause(self) -> None:
        self._pause_seconds = min(max(_PAUSE_SECONDS, 2 * self._pause_seconds), _PAUSE_SECONDS_MAX)
        self._pausing = True
        asyncio.get_running_loop().call_later(self._pause_seconds, self._go_on)

    def _go_on(self) -> None:
        self._pausing = False
        for _ in range(self._processes_max):
            self._grow()

    # -- jobs ----------------------------------------------------------------------------------------------

    async def _work(self, process: HandlerProcess) -> None:
        """Run jobs until the process crashes, must be replaced, or has been idle for `_IDLE_SECONDS`."""
        while job := await self._next(process):
            if job.given_up or self._closed:
                continue
            if process.dead:  # this job did not cause that, so another process will run it
                self._jobs.appendleft(job)
                return
            report = await self._attempt(job, process)
            job.ended(report)
            if report.worn:
                return

    async def _attempt(self, job: Job, process: HandlerProcess) -> Report:
        job.process = process
        job.started()
        try:
            return await process.attempt(job.received)
        except Exception as error:  # noqa: BLE001
            return Report(failure=_failure(error), worn=True, started=not isinstance(error, Crashed) or error.heard)

    async def _next(self, process: HandlerProcess) -> Job | None:
        if self._jobs:
            return self._jobs.popleft()
        if self._closed or process.dead:
            return None
        loop = asyncio.get_running_loop()
        offer: asyncio.Future[Job | None] = loop.create_future()
        self._idle.append(offer)
        self._busy.discard(process)
        process.on_death(lambda: self._let_go(offer))
        timer = loop.call_later(_IDLE_SECONDS, self._let_go, offer)
        try:
            return await offer
        finally:
            timer.cancel()
            self._busy.add(process)

    def _let_go(self, offer: asyncio.Future[Job | None]) -> None:
        if offer in self._idle:
            self._idle.remove(offer)
            offer.set_result(None)


def _failure(error: Exception) -> Failure:
    if isinstance(error, Crashed):
        return error.failure
    message = f"The handler's process could not be used: {type(error).__name__}."
    return Failure(Code.HANDLER_CRASHED, message, detail="".join(traceback.format_exception(error)))


_CHILD = "doorstep.transports.isolation.child"
_START_SECONDS_MAX = 60.0
"""How long starting a process may take, including the import of the application."""
_END_SECONDS_MAX = 6.0
"""How long an idle process may take to end. The process itself sets a limit that is one second shorter."""
_KILLED_SECONDS_MAX = 2.0
"""How long a killed process may take to end. Only a process that hangs in the kernel takes longer."""


class Crashed(Exception):
    """The process can no longer be used. `failure` tells operators why."""

    def __init__(self, message: str, detail: str = "", heard: bool = True) -> None:
        """`heard` is False if the process ended before it read the message."""
        super().__init__(message)
        self.heard = heard
        self.failure = Failure(Code.HANDLER_CRASHED, message, detail=detail)


class HandlerProcess:
    """A separate Python process with one function loaded, which makes one attempt at a time."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._killed = False
        self._tell_death: Callable[[], None] = lambda: None

    async def start(self, orders: Orders) -> None:
        """Start the process and wait until it is ready. It inherits our standard output and standard error."""
        try:
            async with asyncio.timeout(_START_SECONDS_MAX):
                await self._launch()
                await self._prepare(orders)
        except TimeoutError:
            self.kill()
            raise Crashed(_NOT_READY.format(_START_SECONDS_MAX)) from None
        except OSError as error:
            raise Crashed(f"The handler's process could not be started: {error}.") from None

    def on_death(self, tell: Callable[[], None]) -> None:
        """Call `tell` when the process ends, for any reason. A later call of this method replaces the function."""
        self._tell_death = tell

    @property
    def dead(self) -> bool:
        """Whether the process has exited. Asks the operating system, because the event loop learns of the exit only
        after a delay."""
        if self._process is None or self._process.returncode is not None or self._reader.at_eof():
            return True
        if not hasattr(os, "waitid"):  # macOS before Python 3.13
            return False
        try:
            return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    async def attempt(self, received: bytes) -> Report:
        """Make one attempt. Raises Crashed if the process ends before it reports a result."""
        return await self._ask(msgspec.Raw(received), "The handler's process")

    def kill(self) -> None:
        """Kill the process and all processes that the handler has started in its process group."""
        self._killed = True
        if self._process is not None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except OSError:
                pass  # all processes of the group have ended

    async def end(self) -> None:
        """Close the connection, which ends an idle process normally. Then kill all remaining processes of its group."""
        if self._writer is not None:
            self._writer.close()
        if self._process is None:
            return
        try:
            await asyncio.wait_for(self._process.wait(), _END_SECONDS_MAX)
        except TimeoutError:
            pass
        finally:
            self.kill()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), _KILLED_SECONDS_MAX)

    async def _launch(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._reader, self._writer = await asyncio.open_connection(sock=ours)
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-u", "-m", _CHILD, str(theirs.fileno())),
                stdin=DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        self._watched = asyncio.get_running_loop().create_task(self._process.wait())
        self._watched.add_done_callback(lambda _: self._tell_death())
        if self._killed:  # `kill` was called while the process was being started
            self.kill()

    async def _prepare(self, orders: Orders) -> None:
        report = await self._ask(orders, "The handler's process could not start: it")
        if report.failure is not None:
            message = f"The handler's process could not load its function: {report.failure.message}"
            raise Crashed(message, report.failure.detail)

    async def _ask(self, message: object, who: str) -> Report:
        assert self._writer is not None, "it was started"
        try:
            self._writer.write(framed(message))
            size = int.from_bytes(await self._reader.readexactly(HEAD_BYTES), "big")
            if size > FRAME_BYTES_MAX:
                raise Crashed(_NONSENSE)
            return decoded(await self._reader.readexactly(size), Report)
        except (asyncio.IncompleteReadError, OSError) as error:
            # The connection is reset, not closed, if the process ends before it has read the message.
            heard = not isinstance(error, OSError)
            raise Crashed(f"{who} {await self._how_it_ended()}.", heard=heard) from None
        except msgspec.MsgspecError:
            raise Crashed(_NONSENSE) from None

    async def _how_it_ended(self) -> str:
        assert self._process is not None
        try:
            code = await asyncio.wait_for(self._process.wait(), 1.0)
        except TimeoutError:
            return "closed its connection to the worker"
        if code >= 0:
            return f"ended itself with exit code {code}"
        return f"was ended by {_signal_name(-code)}"


_NOT_READY = "The handler's process could not start: it was not ready within {:g} s, and was ended."
_NONSENSE = "The handler's process wrote something other than a report to its connection with the worker."


def _signal_name(number: int) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
    described = (signal.strsignal(number) or "").lower()
    hint = ", as the system does when memory runs out" if number == signal.SIGKILL else f" ({described})"
    return name + hint
