"""The one thread that writes: it takes everything that was asked for while the last commit ran, and commits it together.

Nothing is answered before its commit. A job that fails is undone alone; if the file or the disk fails, the whole
group is, the connection is thrown away and opened anew for the next one: nothing is ever answered from memory.
Between groups the log is moved into the file; if the disk fails there, nothing is done until it has been healed. Where
that means to write the whole file again, whoever asks meanwhile is refused at once.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

from doorstep.errors import StoreUnavailable
from doorstep.stores.sql.sqlite.connections import file_failed, unavailable
from doorstep.stores.sql.sqlite.forking import using_sqlite
from doorstep.stores.sql.sqlite.writing_connection import WritingConnection

T = TypeVar("T")

WATCH_SECONDS = 0.025
"""How often an idle writer looks whether another process has written; a look takes about 5 µs."""
GROUP_MAX = 256
"""Jobs a group: bounds how long the first of them waits for the last."""


Work = Callable[[sqlite3.Connection, Sequence[Any]], Sequence[Any]]
"""Does a list of requests and returns a result for each. Neighbours with the same work are done together."""


class Job(NamedTuple):
    work: Work
    request: Any
    durable: bool
    """Must be on stable storage when it is answered. A group that only claims and settles may lose its end in a
    power cut: that repeats a delivery, and loses none."""
    answer: asyncio.Future[Any]


class _Failed(NamedTuple):
    """The result of a job that raised."""

    error: Exception


class Writer:
    """Runs jobs, each a function of the one writing connection, in the order they came."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._connection = WritingConnection(path)
        self._unsettled: Exception | None = None
        self._seen_version = 0
        self._wake: Callable[[], None] | None = None
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="doorstep-writer", daemon=True)
        using_sqlite.owned_by(self)

    def let_go(self) -> None:
        self._connection.let_go()

    def start(self) -> None:
        self._thread.start()

    async def run(self, work: Callable[[sqlite3.Connection], T], *, durable: bool = True) -> T:
        """Do `work` in the next group; returns after its commit."""
        return await self.request(_do_each, work, durable=durable)  # type: ignore[no-any-return]

    async def request(self, work: Work, request: object, *, durable: bool = True) -> Any:
        """The same for work that does many requests at once."""
        if self._connection.rewriting:
            raise _being_rewritten(self._path)
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._jobs.put(Job(work, request, durable, answer))
        return await answer

    def watch(self, wake: Callable[[], None]) -> None:
        """Call `wake` from the event loop whenever someone else has written to the file."""
        self._wake = wake
        # A job that does nothing, so that a writer who sleeps until one comes begins to look.
        self._jobs.put(Job(_do_each, lambda connection: None, False, self._loop.create_future()))

    async def stop(self) -> None:
        """Finish what was asked for, and end the thread. StoreUnavailable if the disk failed at the very end."""
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)
        if self._unsettled is not None:
            raise self._unsettled

    # -- on the thread -------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            group, more = self._next_group()
            with using_sqlite:
                if group:
                    self._commit(group)
                self._keep_fit(after_group=bool(group))
            if not more:
                break
        with using_sqlite:
            self._close()

    def _keep_fit(self, after_group: bool) -> None:
        """Between groups, when all have been answered. Nothing that goes wrong here may end the thread."""
        try:
            if after_group:
                self._connection.checkpoint()
            rewriting = self._connection.rewriting
            if rewriting and not self._jobs.empty():
                return  # those who wait are told first
            if rewriting or self._wake is not None:
                self._look(self._connection.opened())
        except Exception as error:  # noqa: BLE001 - the next group gets a new connection, or is told what is wrong
            self._connection.failed(error)

    def _next_group(self) -> tuple[list[Job], bool]:
        """The jobs that wait, after waiting for the first; False once the last has come."""
        group: list[Job] = []
        try:
            job = self._jobs.get(timeout=WATCH_SECONDS if self._wake or self._connection.rewriting else None)
            while job is not None:
                group.append(job)
                if len(group) == GROUP_MAX:
                    return group, True
                job = self._jobs.get_nowait()
        except queue.Empty:
            return group, True
        return group, False

    def _commit(self, group: Sequence[Job]) -> None:
        try:
            if self._connection.rewriting:
                raise _being_rewritten(self._path)
            with unavailable(self._path):
                results = self._transact(self._connection.opened(), group)
        except Exception as error:  # noqa: BLE001 - whatever it is, every job is answered and the thread goes on
            self._connection.failed(error)
            results = [_Failed(_copy(error)) for _ in group]
        self._tell(_resolve, group, results)

    def _transact(self, connection: sqlite3.Connection, group: Sequence[Job]) -> Sequence[Any]:
        self._connection.relax(not any(job.durable for job in group))
        connection.execute("BEGIN IMMEDIATE")
        try:
            results = _do_together(connection, group)
        except Exception as error:
            if file_failed(error):
                raise
            connection.execute("ROLLBACK")
            if len(group) == 1:
                return [_Failed(error)]
            connection.execute("BEGIN IMMEDIATE")
            results = [_do_alone(connection, job) for job in group]
        connection.execute("COMMIT")
        return results

    def _close(self) -> None:
        try:
            with unavailable(self._path):
                self._connection.close()
        except Exception as error:  # noqa: BLE001 - it is raised where the end is awaited
            self._unsettled = error

    def _look(self, connection: sqlite3.Connection) -> None:
        """The version of this connection counts the commits of all others, and none of its own."""
        (version,) = connection.execute("PRAGMA data_version").fetchone()
        if version != self._seen_version and self._wake is not None:
            self._seen_version = version
            self._tell(self._wake)

    def _tell(self, callback: Callable[..., None], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:
            pass  # the event loop is closed: nobody is left to be told


def _do_together(connection: sqlite3.Connection, group: Sequence[Job]) -> list[Any]:
    """Everything with no savepoints between: if one job fails, all are undone and done again one by one."""
    results: list[Any] = []
    for work, jobs in groupby(group, key=_work_of):
        results += work(connection, [job.request for job in jobs])
    return results


def _do_alone(connection: sqlite3.Connection, job: Job) -> Any:
    connection.execute("SAVEPOINT job")
    try:
        (result,) = job.work(connection, [job.request])
    except Exception as error:
        if file_failed(error):
            raise
        connection.execute("ROLLBACK TO job")
        result = _Failed(error)
    connection.execute("RELEASE job")
    return result


def _do_each(connection: sqlite3.Connection, works: Sequence[Callable[[sqlite3.Connection], Any]]) -> list[Any]:
    return [work(connection) for work in works]


def _work_of(job: Job) -> Work:
    return job.work


def _resolve(group: Sequence[Job], results: Sequence[Any]) -> None:
    for job, result in zip(group, results, strict=True):
        if job.answer.done():
            continue  # whoever asked has stopped waiting
        if isinstance(result, _Failed):
            job.answer.set_exception(result.error)
        else:
            job.answer.set_result(result)


def _copy(error: Exception) -> Exception:
    """One exception each: a shared one would collect the tracebacks of all who are told."""
    if isinstance(error, StoreUnavailable):
        told = StoreUnavailable(*error.args)
        told.__cause__ = error.__cause__
        return told
    return error


def _being_rewritten(path: str) -> StoreUnavailable:
    return StoreUnavailable(f"{path}: the disk failed, and the whole file is being written again; try again later")
