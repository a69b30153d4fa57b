"""The processes of one handler: started when there is work for them, replaced when they die, let go when idle."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque
from collections.abc import Callable

from doorstep.model.noun import Noun
from doorstep.model.outcome import Failure
from doorstep.wire.isolation.frames import Orders, Report
from doorstep.wire.isolation.places import Place
from doorstep.wire.isolation.process import Crashed, HandlerProcess

_IDLE_SECONDS = 60.0


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Isolation(Noun, frozen=True, kw_only=True):
    """How a handler is isolated."""

    place: Place
    processes_max: int
    memory_mb_max: int | None = None


class Job:
    """One attempt to be made. `begun` is called when a process takes it, `ended` at most once after that or instead."""

    __slots__ = ("begun", "ended", "process", "received")

    def __init__(self, received: bytes, begun: Callable[[], None], ended: Callable[[Report], None]) -> None:
        self.received = received
        self.begun = begun
        self.ended = ended
        self.process: HandlerProcess | None = None


class ProcessPool:
    """At most `processes_max` of them, each with one job at a time; further jobs wait."""

    def __init__(self, isolation: Isolation, body_bytes_max: int) -> None:
        self._orders = Orders(
            place=isolation.place,
            search_path=sys.path,
            memory_mb_max=isolation.memory_mb_max,
            body_bytes_max=body_bytes_max,
        )
        self._processes_max = isolation.processes_max
        self._jobs: deque[Job] = deque()
        self._idle: list[asyncio.Future[Job | None]] = []
        """One for each process that waits for a job; the one that was used last is used next."""
        self._starting = 0
        self._busy: set[HandlerProcess] = set()
        """Also those that are only starting."""
        self._serving: set[asyncio.Task[None]] = set()
        self._closed = False

    def submit(self, job: Job) -> None:
        """Have it done as soon as there is a process for it."""
        if self._idle:
            self._idle.pop().set_result(job)
        else:
            self._jobs.append(job)
            self._grow()

    def give_up(self, job: Job) -> None:
        """Nobody waits for this job any more: it is not begun, or its process is ended with it."""
        if job.process is not None:
            job.process.kill()
        elif job in self._jobs:
            self._jobs.remove(job)

    async def close(self) -> None:
        """Idle processes may end in order; what is under way is cut off."""
        self._closed = True
        self._jobs.clear()
        for process in self._busy:
            process.kill()
        while self._idle:
            self._idle.pop().set_result(None)
        if self._serving:
            await asyncio.wait(self._serving)

    def _grow(self) -> None:
        if len(self._jobs) <= self._starting or len(self._serving) >= self._processes_max or self._closed:
            return
        self._starting += 1
        task = asyncio.get_running_loop().create_task(self._serve(), name="doorstep-handler-process")
        self._serving.add(task)
        task.add_done_callback(self._served)

    def _served(self, task: asyncio.Task[None]) -> None:
        self._serving.discard(task)
        self._grow()

    async def _serve(self) -> None:
        """The life of one process: job after job, until it dies, is ended, or has nothing to do for long."""
        process, job = HandlerProcess(), None
        self._busy.add(process)
        try:
            await self._start(process)
            while job := await self._next(process):
                job.process = process
                job.begun()
                report = await process.attempt(job.received)
                job.ended(report)
                if report.worn:
                    break
        except Crashed as crash:
            self._fail(job, crash.failure)
        finally:
            self._busy.discard(process)
            await process.end()

    async def _start(self, process: HandlerProcess) -> None:
        try:
            await process.start(self._orders)
        finally:
            self._starting -= 1

    async def _next(self, process: HandlerProcess) -> Job | None:
        if self._jobs:
            return self._jobs.popleft()
        if self._closed:
            return None
        loop = asyncio.get_running_loop()
        offer: asyncio.Future[Job | None] = loop.create_future()
        self._idle.append(offer)
        self._busy.discard(process)
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

    def _fail(self, job: Job | None, failure: Failure) -> None:
        """A process that could not even start fails the job that it was started for."""
        if job is None and self._jobs:
            job = self._jobs.popleft()
        if job is not None:
            job.ended(Report(failure=failure))
