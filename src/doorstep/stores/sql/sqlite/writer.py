"""The only thread that writes. It takes all jobs that arrived during the last commit, and commits them as one group.

No job returns a result before its commit. If a job fails, only that job is rolled back. If the file or the disk fails,
the whole group is rolled back and the connection is replaced, so no result is based on pages that exist only in memory.

Checkpoints run between groups. After a disk error in a checkpoint, no job runs until all pages that may have been lost
are repaired. While the whole file is being rewritten, new jobs are rejected immediately.
"""

from __future__ import annotations

import asyncio
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar, cast

from doorstep.errors import StoreUnavailable
from doorstep.stores.sql.sqlite.checkpoints import Checkpointer
from doorstep.stores.sql.sqlite.connections import (
    connect,
    disk_failed,
    disk_full,
    file_failed,
    fork_guard,
    unavailable,
)
from doorstep.stores.sql.sqlite.file_watch import FileWatch

T = TypeVar("T")

WATCH_SECONDS = 0.025
"""How often the writer checks whether another process has written; a check takes about 5 µs. A process that does nothing
else would wake up 40 times a second for it, so the writer checks only as long as anybody writes, and for a while after.
Then it sleeps until the kernel reports a write (file_watch.py)."""
CHECKS_BEFORE_SLEEP = 80
"""The number of checks, after the last write of another process, before the writer sleeps. They take two seconds. A
commit becomes visible only some time after its last write to the file, because the sync comes between."""
SLEEP_SECONDS = 5.0
"""The longest sleep. If a commit becomes visible later than expected, no write reports it."""
_FIRST_SLEEP_SECONDS = 0.2
"""The longest sleep after a write of this process. Another process may have written meanwhile, when the kernel reported
nothing, and its commit becomes visible only after its sync."""
GROUP_MAX = 256
"""The maximum number of jobs in a group. It limits how long the first job in a group waits for the last."""

Work = Callable[[sqlite3.Connection, Sequence[Any]], Sequence[Any]]
"""A function that handles a list of requests and returns a result for each. Consecutive requests for the same function
share one call."""


class Job(NamedTuple):
    work: Work
    request: Any
    durable: bool
    """Whether the job must be on stable storage before it returns. Claims and settlements need not be: if a power cut
    undoes one of them, a delivery is repeated, but no delivery is lost."""
    answer: asyncio.Future[Any]


class _Failed(NamedTuple):
    """The result of a job that raised an exception."""

    error: Exception


class Writer:
    """Runs jobs on the one writing connection, in the order in which they arrive."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._connection = WritingConnection(path)
        self._close_error: Exception | None = None
        self._wake: Callable[[], None] | None = None
        self._idle_checks = 0
        self._maintain_at = 0.0
        self._unmaintained = False
        """Whether groups were committed since the last maintenance."""
        self._loop = asyncio.get_running_loop()
        self._file_watch = FileWatch(f"{path}-wal", self._loop, self._check_soon)
        self._thread = threading.Thread(target=self._run, name="doorstep-writer", daemon=True)
        fork_guard.register(self._connection)

    def start(self) -> None:
        self._thread.start()

    async def run(self, work: Callable[[sqlite3.Connection], T], *, durable: bool = True) -> T:
        """Run `work` in the next group. Returns its result after the commit."""
        return await self.request(_run_each, work, durable=durable)  # type: ignore[no-any-return]

    async def request(self, work: Work, request: object, *, durable: bool = True) -> Any:
        """Run `work`, which can handle many requests at once, for this request. Returns after the commit."""
        if self._connection.rewriting:
            raise _being_rewritten(self._path)
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._jobs.put(Job(work, request, durable, answer))
        return await answer

    def watch(self, wake: Callable[[], None]) -> None:
        """Call `wake` in the event loop whenever another connection has written to the file."""
        self._wake = wake
        self._check_soon()

    def _check_soon(self) -> None:
        """End the writer's wait with a job that does nothing, so that it starts to check for writes."""
        self._jobs.put(_NOTHING)

    async def stop(self) -> None:
        """Finish all jobs and end the thread. Raises StoreUnavailable if closing the file fails."""
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)
        self._file_watch.close()
        if self._close_error is not None:
            raise self._close_error

    # -- on the thread -------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            group, more = self._next_group()
            with fork_guard:
                if group:
                    self._commit(group)
                self._maintain(after_group=bool(group))
            if not more:
                break
        with fork_guard:
            self._close()

    def _maintain(self, after_group: bool) -> None:
        """Between groups, run checkpoints, repairs and the check for changes, but not after each of many small groups.
        No error here may end the thread."""
        self._unmaintained |= after_group
        rewriting = self._connection.rewriting
        if after_group and not rewriting and time.monotonic() < self._maintain_at:
            return
        self._maintain_at = time.monotonic() + WATCH_SECONDS
        try:
            if self._unmaintained:
                self._connection.checkpoint()
                self._unmaintained = False
            rewriting = self._connection.rewriting
            if rewriting and not self._jobs.empty():
                return  # reject the waiting jobs first
            if rewriting or self._wake is not None:
                changed = self._check_for_changes(self._connection.opened())
                # After a write of this process, one check is left: it says nothing about other processes.
                quiet = min(self._idle_checks, CHECKS_BEFORE_SLEEP - 1) if after_group else self._idle_checks + 1
                self._idle_checks = 0 if changed else quiet
        except Exception as error:  # noqa: BLE001 - the next group opens a new connection or fails with the same error
            self._connection.failed(error)

    def _next_group(self) -> tuple[list[Job], bool]:
        """Block until a job is available, then return it together with all other queued jobs. The second value is False
        if the thread must end."""
        group: list[Job] = []
        try:
            job = self._first_job()
            self._file_watch.unset()  # before this process itself writes
            while job is not None:
                if job is _NOTHING:
                    self._idle_checks = 0
                else:
                    group.append(job)
                if len(group) == GROUP_MAX:
                    return group, True
                job = self._jobs.get_nowait()
        except queue.Empty:
            return group, True
        return group, False

    def _first_job(self) -> Job | None:
        """Wait for a job. Raises queue.Empty when it is time to check whether another process has written."""
        if self._wake is None and not self._connection.rewriting:
            return self._jobs.get(timeout=WATCH_SECONDS if self._unmaintained else None)
        if self._idle_checks < CHECKS_BEFORE_SLEEP or self._connection.rewriting:
            self._file_watch.unset()
            return self._jobs.get(timeout=WATCH_SECONDS)
        watched = self._file_watch.set()
        if self._has_changed():  # what was written before the watch was set
            self._idle_checks = 0
            raise queue.Empty
        if not watched:
            return self._jobs.get(timeout=WATCH_SECONDS)
        first = self._idle_checks == CHECKS_BEFORE_SLEEP
        return self._jobs.get(timeout=_FIRST_SLEEP_SECONDS if first else SLEEP_SECONDS)

    def _has_changed(self) -> bool:
        """Check for changes. An error counts as a change, after which checks are frequent again."""
        with fork_guard:
            try:
                return self._check_for_changes(self._connection.opened())
            except Exception as error:  # noqa: BLE001 - no error here may end the thread
                self._connection.failed(error)
                return True

    def _commit(self, group: Sequence[Job]) -> None:
        try:
            if self._connection.rewriting:
                raise _being_rewritten(self._path)
            with unavailable(self._path):
                results = self._transact(self._connection.opened(), group)
        except Exception as error:  # noqa: BLE001 - every job must get a result, and the thread must continue
            self._connection.failed(error)
            results = [_Failed(_copy(error)) for _ in group]
        self._call_in_loop(_resolve, group, results)

    def _transact(self, connection: sqlite3.Connection, group: Sequence[Job]) -> Sequence[Any]:
        self._connection.relax(not any(job.durable for job in group))
        connection.execute("BEGIN IMMEDIATE")
        try:
            results = _run_together(connection, group)
        except Exception as error:
            if file_failed(error):
                raise
            connection.execute("ROLLBACK")
            if len(group) == 1:
                return [_Failed(error)]
            connection.execute("BEGIN IMMEDIATE")
            results = [_run_alone(connection, job) for job in group]
        connection.execute("COMMIT")
        return results

    def _close(self) -> None:
        try:
            with unavailable(self._path):
                self._connection.close()
        except Exception as error:  # noqa: BLE001 - `stop` raises it
            self._close_error = error

    def _check_for_changes(self, connection: sqlite3.Connection) -> bool:
        """Wake the workers if another connection has committed, and return whether it has. Only commits of other
        connections change `data_version`."""
        (version,) = connection.execute("PRAGMA data_version").fetchone()
        if version != self._connection.seen_version and self._wake is not None:
            self._connection.seen_version = version
            self._call_in_loop(self._wake)
            return True
        return False

    def _call_in_loop(self, callback: Callable[..., None], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:
            pass  # the event loop is closed, so no caller is waiting any more


_NOTHING = Job(lambda connection, requests: (), None, False, cast("asyncio.Future[Any]", None))
"""A job that is not run."""


def _run_together(connection: sqlite3.Connection, group: Sequence[Job]) -> list[Any]:
    """Run all jobs without savepoints. If one fails, the caller rolls all of them back and reruns them one by one."""
    results: list[Any] = []
    for work, jobs in groupby(group, key=attrgetter("work")):
        results += work(connection, [job.request for job in jobs])
    return results


def _run_alone(connection: sqlite3.Connection, job: Job) -> Any:
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


def _run_each(connection: sqlite3.Connection, works: Sequence[Callable[[sqlite3.Connection], Any]]) -> list[Any]:
    return [work(connection) for work in works]


def _resolve(group: Sequence[Job], results: Sequence[Any]) -> None:
    for job, result in zip(group, results, strict=True):
        if job.answer.done():
            continue  # the caller has stopped waiting
        if isinstance(result, _Failed):
            job.answer.set_exception(result.error)
        else:
            job.answer.set_result(result)


def _copy(error: Exception) -> Exception:
    """A separate exception for each job. A shared one would collect the tracebacks of all jobs."""
    if isinstance(error, StoreUnavailable):
        copy = StoreUnavailable(*error.args)
        copy.__cause__ = error.__cause__
        return copy
    return error


def _being_rewritten(path: str) -> StoreUnavailable:
    return StoreUnavailable(f"{path}: the disk failed, and the whole file is being rewritten; try again later")


# -- the writing connection --------------------------------------------------------------------------------

_PAUSE_SECONDS = 0.05
_PAUSE_SECONDS_MAX = 1.0
"""The pause between attempts to repair doubles each time. It is never shorter than the duration of the last attempt,
because rewriting may take minutes."""
_CHUNK_BYTES = 2**20
_NO_VERSION = -1
"""Each connection counts `data_version` from the same number, so a new one says nothing about what was committed before.
The first check of a connection therefore counts as a change."""


class WritingConnection:
    """The one connection that writes. It is opened when it is needed and replaced after an error. Lost data is repaired
    before the connection is used again.

    After a failed sync, Linux discards the data that it could not write, and the next sync reports success. So the data
    may be lost even if later syncs succeed, and it is rewritten before anything else is done. Only the writer's thread
    uses this class.
    """

    def __init__(self, path: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._monotonic = monotonic
        self._connection: sqlite3.Connection | None = None
        self._checkpointer = Checkpointer(path)
        self._relaxed = False
        self._log_doubtful = False
        self._file_doubtful = False
        self._pause_seconds = 0.0
        self._repair_at = 0.0
        self._last_error = ""
        self.seen_version = _NO_VERSION
        """The last `data_version` of this connection that the writer has seen."""

    @property
    def rewriting(self) -> bool:
        """Whether the whole file must be rewritten. Callers should not wait for that."""
        return self._file_doubtful and self._checkpointer.rewrite_needed

    def opened(self) -> sqlite3.Connection:
        """The connection, opened and repaired if necessary."""
        if self._monotonic() < self._repair_at:
            raise sqlite3.OperationalError(self._last_error)
        if self._connection is None:
            self._connection = connect(self._path)
            self._relaxed = False
            self.seen_version = _NO_VERSION
        if self._log_doubtful or self._file_doubtful:
            self._repair(self._connection)
        return self._connection

    def relax(self, relaxed: bool) -> None:
        """Set whether commits may return before their data is synced to disk. A durable commit also makes earlier
        relaxed commits durable, because the log is sequential."""
        if relaxed is not self._relaxed:
            self.opened().execute(f"PRAGMA synchronous = {'NORMAL' if relaxed else 'FULL'}")
            self._relaxed = relaxed

    def failed(self, error: BaseException) -> None:
        """Record an error and discard the connection. The next use opens a new one."""
        self._log_doubtful |= disk_failed(error)
        self._discard()

    def checkpoint(self) -> None:
        """Run a checkpoint if one is due. If the disk fails, the next call of `opened` repairs the file or raises."""
        self._run_checkpoint(self._checkpointer.run_if_due)

    def close_idle(self) -> None:
        """Run a checkpoint and close the connection until the next use. Without this checkpoint, SQLite would run one
        while closing, and would hide its disk errors."""
        self._run_checkpoint(self._checkpointer.run)
        self._discard()

    def close(self) -> None:
        """Run a last checkpoint, so that the file is complete. Raises if lost pages cannot be repaired."""
        self._run_checkpoint(self._checkpointer.run)
        self._repair_at = 0.0  # repair now: there will be no later attempt
        try:
            if self._log_doubtful or self._file_doubtful:
                self.opened()
        finally:
            self._discard()

    def _repair(self, connection: sqlite3.Connection) -> None:
        started = self._monotonic()
        try:
            self._rewrite_doubtful(connection)
        except sqlite3.Error as error:
            self._pause(self._monotonic() - started)
            self._last_error = str(error)
            raise
        self._pause_seconds = 0.0

    def _rewrite_doubtful(self, connection: sqlite3.Connection) -> None:
        if self._log_doubtful:
            # Relaxed commits before the failed sync may be lost, and with them all later commits.
            rewrite_log(connection, self._path)
            self._log_doubtful = False
        if self._file_doubtful:
            self._checkpointer.repair(connection)
            self._file_doubtful = False

    def _pause(self, taken_seconds: float) -> None:
        self._pause_seconds = min(max(_PAUSE_SECONDS, 2 * self._pause_seconds), _PAUSE_SECONDS_MAX)
        self._repair_at = self._monotonic() + max(self._pause_seconds, taken_seconds)

    def _run_checkpoint(self, run: Callable[[sqlite3.Connection], None]) -> None:
        if self._connection is None:
            return
        try:
            run(self._connection)
        except sqlite3.Error as error:
            if not disk_full(error):  # a full disk loses no data, and commits continue while the log has room
                self._file_doubtful |= disk_failed(error)
                self.failed(error)

    def _discard(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except sqlite3.Error:
                pass  # the connection is discarded anyway


def rewrite_log(connection: sqlite3.Connection, path: str) -> None:
    """Rewrite the bytes of the log in place, and sync them.

    A checkpoint would do harm here. The log may have a gap on disk, and a checkpoint would make the file newer than the
    log. After a power cut, SQLite would then combine a newer file with an older log. Holding the write lock keeps other
    processes from changing the log in the meantime.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        log = os.open(f"{path}-wal", os.O_RDWR)
        try:
            _rewrite(log)
        finally:
            os.close(log)
    except OSError as error:
        raise sqlite3.OperationalError(f"the log cannot be rewritten: {error.strerror}") from error
    finally:
        connection.execute("ROLLBACK")


def _rewrite(file: int) -> None:
    offset = 0
    while chunk := os.pread(file, _CHUNK_BYTES, offset):
        offset += os.pwrite(file, chunk, offset)
    os.fsync(file)
