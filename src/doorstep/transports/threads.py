"""Threads for functions that may never return: they cannot be stopped, only given up and replaced.

The standard library's executor waits for its threads when the program ends and never replaces a stuck one; here a
hanging function costs one thread, up to a limit for each kind, and neither the others nor the end of the program wait
for it.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")

_IDLE_SECONDS = 10.0


class Job:
    """One call to be made. `seat` is set while it runs."""

    __slots__ = ("kind", "run", "seat", "unwanted")

    def __init__(self, run: Callable[[], None], kind: str) -> None:
        self.run = run
        self.kind = kind
        self.seat: _Seat | None = None
        self.unwanted = False


class _Seat:
    """A thread's place among those that count; a thread that was given up has lost it."""

    __slots__ = ("given_up_in",)

    def __init__(self) -> None:
        self.given_up_in: str | None = None
        """The kind of job that it was given up in."""


class DaemonThreads:
    """At most `threads_max` threads at work, besides those that were given up and have not returned yet.

    When `stuck_max` of one kind are given up, no more jobs of that kind are begun until one of them returns. Those that
    are under way at that moment may get stuck as well; other kinds go on as before.
    """

    def __init__(self, threads_max: int, stuck_max: int | None = None) -> None:
        self._threads_max = threads_max
        self._stuck_max = threads_max if stuck_max is None else stuck_max
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        """Not a Condition around a list: a call through a thread took 31 µs of CPU with one, and takes 17."""
        self._parked: dict[str, deque[Job]] = {}
        """Jobs of the kinds that have used up their threads."""
        self._active = 0
        self._idle = 0
        self._closed = False
        self._given_up: Counter[str] = Counter()

    def stuck(self, kind: str | None = None) -> int:
        """Threads whose function has not returned although nobody waits for it any more; of one kind, or all."""
        with self._lock:
            return self._given_up.total() if kind is None else self._given_up[kind]

    def submit(self, run: Callable[[], None], kind: str = "") -> Job:
        """Run it as soon as there is a thread. `run` must not raise."""
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
        """Have `then` called on the event loop with what `call`, which must not raise, returned in a thread."""

        def run() -> None:
            result = call()
            with suppress(RuntimeError):  # the event loop has closed meanwhile: nobody waits for the result
                loop.call_soon_threadsafe(then, result)

        return self.submit(run, kind)

    def give_up(self, job: Job) -> None:
        """Nobody waits for this job any more: it is not begun, or its thread is replaced."""
        with self._lock:
            if job.seat is None:
                self._drop(job)
            elif job.seat.given_up_in is None:
                job.seat.given_up_in = job.kind
                self._active -= 1
                self._given_up[job.kind] += 1
                self._grow()

    def close(self) -> None:
        """Idle threads end; those at work end when their function returns, if it does."""
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
        """A thread that meets it among the others leaves it out."""
        job.unwanted, job.run = True, _nothing
        with suppress(ValueError):
            self._parked.get(job.kind, deque()).remove(job)

    def _returned(self, kind: str) -> None:
        """A thread that was given up has come back, and ends."""
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
            return  # the machine has no more threads to give; the job waits for one that becomes free
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
                    self._grow()  # whoever came meanwhile counted on this thread
                    return job

    def _wait(self) -> Job | None:
        try:
            return self._jobs.get(timeout=_IDLE_SECONDS)
        except queue.Empty:
            return None

    def _takes(self, job: Job, seat: _Seat) -> bool:
        """Not one that was given up meanwhile, nor one of a kind that has used up its threads."""
        if job.unwanted:
            return False
        if self._given_up[job.kind] >= self._stuck_max:
            self._parked.setdefault(job.kind, deque()).append(job)
            return False
        job.seat = seat
        return True


def _nothing() -> None: ...
