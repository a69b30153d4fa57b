"""Threads for functions that may never return: they cannot be stopped, only given up and replaced.

The standard library's executor waits for its threads when the program ends and never replaces a stuck one; here a
hanging function costs one thread, up to a limit, and neither the others nor the end of the program wait for it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

_IDLE_SECONDS = 10.0


class Job:
    """One call to be made. `seat` is set while it runs."""

    __slots__ = ("run", "seat")

    def __init__(self, run: Callable[[], None]) -> None:
        self.run = run
        self.seat: _Seat | None = None


class _Seat:
    """A thread's place among those that count; a thread that was given up has lost it."""

    __slots__ = ("given_up",)

    def __init__(self) -> None:
        self.given_up = False


class DaemonThreads:
    """At most `threads_max` threads at work, and as many again that were given up and have not returned yet."""

    def __init__(self, threads_max: int) -> None:
        self._threads_max = threads_max
        self._changed = threading.Condition()
        self._jobs: deque[Job] = deque()
        self._active = 0
        self._idle = 0
        self._closed = False
        self.given_up = 0
        """Threads whose function has not returned although nobody waits for it any more."""

    def submit(self, run: Callable[[], None]) -> Job:
        """Run it as soon as there is a thread. `run` must not raise."""
        job = Job(run)
        with self._changed:
            self._jobs.append(job)
            self._changed.notify()
            self._grow()
        return job

    def give_up(self, job: Job) -> None:
        """Nobody waits for this job any more: it is not begun, or its thread is replaced."""
        with self._changed:
            if job.seat is None:
                if job in self._jobs:
                    self._jobs.remove(job)
            elif not job.seat.given_up:
                job.seat.given_up = True
                self._active -= 1
                self.given_up += 1
                self._grow()

    def close(self) -> None:
        """Idle threads end; those at work end when their function returns, if it does."""
        with self._changed:
            self._closed = True
            self._jobs.clear()
            self._changed.notify_all()

    def _grow(self) -> None:
        if len(self._jobs) <= self._idle or self._active >= self._threads_max or self.given_up >= self._threads_max:
            return
        try:
            threading.Thread(target=self._work, args=(_Seat(),), name="doorstep-handler", daemon=True).start()
        except RuntimeError:
            return  # the machine has no more threads to give; the job waits for one that becomes free
        self._active += 1

    def _work(self, seat: _Seat) -> None:
        while job := self._next_job(seat):
            job.run()
            with self._changed:
                job.seat = None

    def _next_job(self, seat: _Seat) -> Job | None:
        with self._changed:
            if seat.given_up:
                self.given_up -= 1
                self._grow()
                return None
            self._idle += 1
            self._changed.wait_for(lambda: self._jobs or self._closed, _IDLE_SECONDS)
            self._idle -= 1
            if not self._jobs:
                self._active -= 1
                return None
            job = self._jobs.popleft()
            job.seat = seat
            return job
