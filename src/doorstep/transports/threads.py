"""A thread pool for functions that may never return. A hanging thread cannot be stopped, only abandoned and replaced.

The standard library's executor waits for its threads when the program ends, and never replaces a thread that hangs. In
this pool, a function that hangs occupies only one thread; other functions and the end of the program do not wait for
it. The number of hanging threads is limited for each kind of job.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

_IDLE_SECONDS = 10.0


@dataclass(slots=True, eq=False)
class Job:
    """One function call. While it runs, `seat` is the record of its thread."""

    run: Callable[[], object]
    kind: str
    seat: _Seat | None = None
    unwanted: bool = False


@dataclass(slots=True, eq=False)
class _Seat:
    """The pool's record of a thread, which shows whether the thread was abandoned."""

    given_up_in: str | None = None
    """The kind of the job in which the thread was abandoned; None if it was not."""


class DaemonThreads:
    """At most `threads_max` threads, not counting abandoned threads whose function has not returned yet.

    If `stuck_max` threads have been abandoned in jobs of one kind, no more jobs of that kind start until one of these
    threads returns. Jobs of that kind that are already running may get stuck as well. Other kinds are not affected.
    """

    def __init__(self, threads_max: int, stuck_max: int | None = None) -> None:
        self._threads_max = threads_max
        self._stuck_max = threads_max if stuck_max is None else stuck_max
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        """A SimpleQueue, because with it, running a function in a thread costs 17 µs of CPU time. With a list and a
        Condition, it cost 31 µs."""
        self._parked: dict[str, deque[Job]] = {}
        """Waiting jobs of kinds that have reached their limit of stuck threads."""
        self._active = 0
        self._idle = 0
        self._closed = False
        self._given_up: Counter[str] = Counter()

    def stuck(self, kind: str | None = None) -> int:
        """The number of abandoned threads whose function has not returned, for one kind of job or for all kinds."""
        with self._lock:
            return self._given_up.total() if kind is None else self._given_up[kind]

    def submit(self, run: Callable[[], object], kind: str = "") -> Job:
        """Run a function as soon as a thread is free. `run` must not raise."""
        job = Job(run, kind)
        with self._lock:
            if self._given_up[kind] >= self._stuck_max:
                self._parked.setdefault(kind, deque()).append(job)
            else:
                self._queue([job])
        return job

    def call(
        self, call: Callable[[], T], then: Callable[[T], object], loop: asyncio.AbstractEventLoop, kind: str = ""
    ) -> Job:
        """Run `call`, which must not raise, in a thread, and pass its result to `then` on the event loop."""

        def run() -> None:
            result = call()
            with suppress(RuntimeError):  # the event loop was closed in the meantime, so the result is not needed
                loop.call_soon_threadsafe(then, result)

        return self.submit(run, kind)

    def give_up(self, job: Job) -> None:
        """Abandon a job. If it is running, its thread is replaced; otherwise it is never started."""
        with self._lock:
            if job.seat is None:
                self._drop(job)
            elif job.seat.given_up_in is None:
                job.seat.given_up_in = job.kind
                self._active -= 1
                self._given_up[job.kind] += 1
                self._grow()

    def close(self) -> None:
        """End the threads. Idle threads exit immediately; busy threads exit when their function returns."""
        with self._lock:
            self._closed = True
            self._parked.clear()
            for _ in range(self._active):
                self._jobs.put(None)

    # -- with the lock held --------------------------------------------------------------------------------

    def _queue(self, jobs: list[Job]) -> None:
        for job in jobs:
            self._jobs.put(job)
            self._grow()

    def _drop(self, job: Job) -> None:
        """Mark a job as unwanted. The thread that takes it from the queue then skips it."""
        job.unwanted, job.run = True, lambda: None
        with suppress(ValueError):
            self._parked.get(job.kind, deque()).remove(job)

    def _returned(self, kind: str) -> None:
        """Called when the function of an abandoned thread has returned; the thread then ends."""
        self._given_up[kind] -= 1
        if self._given_up[kind] < self._stuck_max:
            self._queue(list(self._parked.pop(kind, ())))
        if not self._given_up[kind]:
            del self._given_up[kind]

    def _grow(self) -> None:
        if self._jobs.qsize() <= self._idle or self._active >= self._threads_max or self._closed:
            return
        try:
            threading.Thread(target=self._work, args=(_Seat(),), name="doorstep-handler", daemon=True).start()
        except RuntimeError:
            return  # the system has no more threads; the job waits for a free one
        self._active += 1

    # -- in a thread ---------------------------------------------------------------------------------------

    def _work(self, seat: _Seat) -> None:
        while job := self._next_job(seat):
            job.run()
            with self._lock:
                job.seat = None

    def _next_job(self, seat: _Seat) -> Job | None:
        with self._lock:
            if seat.given_up_in is not None:
                self._returned(seat.given_up_in)
                return None
            self._idle += 1
        while True:
            job = self._wait()
            with self._lock:
                if self._closed or (job is None and self._jobs.empty()):
                    self._idle -= 1
                    self._active -= 1
                    return None
                if job is not None and self._takes(job, seat):
                    self._idle -= 1
                    self._grow()  # no thread was started for later jobs, because this one was still idle
                    return job

    def _wait(self) -> Job | None:
        try:
            return self._jobs.get(timeout=_IDLE_SECONDS)
        except queue.Empty:
            return None

    def _takes(self, job: Job, seat: _Seat) -> bool:
        """Whether to run the job. An abandoned job is skipped. If its kind has too many stuck threads, the job
        waits."""
        if job.unwanted:
            return False
        if self._given_up[job.kind] >= self._stuck_max:
            self._parked.setdefault(job.kind, deque()).append(job)
            return False
        job.seat = seat
        return True
