"""The writer thread: which jobs share a commit, which are undone, and when a job gets its answer."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path

import pytest

from doorstep.errors import NotFound, StoreUnavailable
from doorstep.stores.sql.sqlite import checkpoints, connections, writer
from doorstep.stores.sql.sqlite.connections import connect
from doorstep.stores.sql.sqlite.writer import Writer
from tests.support.patience import PATIENCE_SECONDS
from tests.support.scene import until

Job = Callable[[sqlite3.Connection], object]


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "notes.db")
    connection = connect(path, create=True)
    connection.execute("CREATE TABLE notes (text TEXT UNIQUE)")
    connection.close()
    return path


@pytest.fixture
async def thread(path: str) -> AsyncIterator[Writer]:
    thread = Writer(path)
    thread.start()
    yield thread
    await thread.stop()


def note(text: str) -> Job:
    return lambda connection: connection.execute("INSERT INTO notes VALUES (?)", (text,)).rowcount


def notes(path: str) -> set[str]:
    connection = sqlite3.connect(path)
    found = {text for (text,) in connection.execute("SELECT text FROM notes")}
    connection.close()
    return found


class Gate:
    """A job that blocks the thread until the gate is opened, so that other jobs queue behind it."""

    def __init__(self) -> None:
        self._entered = threading.Event()
        self._open = threading.Event()
        self.statements: list[str] = []

    def __call__(self, connection: sqlite3.Connection) -> None:
        connection.set_trace_callback(self.statements.append)
        self._entered.set()
        assert self._open.wait(PATIENCE_SECONDS)

    async def close(self, thread: Writer) -> asyncio.Task[None]:
        """Let the thread run into the gate; return once it is blocked there."""
        held = asyncio.create_task(thread.run(self, durable=False))
        assert await asyncio.to_thread(self._entered.wait, 10)
        return held

    def open(self) -> None:
        self._open.set()

    @property
    def commits(self) -> int:
        return self.statements.count("COMMIT")


async def gathered(thread: Writer, *jobs: Job, durable: bool = True) -> tuple[Gate, list[object]]:
    """Run jobs in one group and return their results, including exceptions."""
    gate = Gate()
    held = await gate.close(thread)
    tasks = [asyncio.create_task(thread.run(job, durable=durable)) for job in jobs]
    await asyncio.sleep(0)  # lets every task queue its job; no time has to pass
    gate.open()
    await held
    return gate, list(await asyncio.gather(*tasks, return_exceptions=True))


async def test_what_waits_during_a_commit_shares_the_next_one(thread: Writer, path: str) -> None:
    gate, results = await gathered(thread, *(note(str(n)) for n in range(20)))
    assert results == [1] * 20
    assert gate.commits == 2
    assert len(notes(path)) == 20


async def test_a_job_is_answered_only_after_its_commit(thread: Writer) -> None:
    answered_at_commit: list[bool] = []

    def watch(statement: str) -> None:
        if statement == "COMMIT":
            answered_at_commit.append(task.done())

    def job(connection: sqlite3.Connection) -> str:
        connection.set_trace_callback(watch)
        return "done"

    task = asyncio.create_task(thread.run(job))
    assert await task == "done"
    assert answered_at_commit == [False]


async def test_a_job_that_fails_in_a_group_is_undone_alone(thread: Writer, path: str) -> None:
    def half_done(connection: sqlite3.Connection) -> None:
        note("half")(connection)
        raise NotFound("nothing to see")

    _, results = await gathered(thread, note("before"), half_done, note("after"))
    assert [type(result) for result in results] == [int, NotFound, int]
    assert notes(path) == {"before", "after"}


async def test_a_job_that_fails_by_itself_leaves_nothing(thread: Writer, path: str) -> None:
    def twice(connection: sqlite3.Connection) -> None:
        note("one")(connection)
        note("one")(connection)

    with pytest.raises(sqlite3.IntegrityError):
        await thread.run(twice)
    assert notes(path) == set()


async def test_a_full_disk_refuses_the_group_and_keeps_what_was_there(thread: Writer, path: str) -> None:
    await thread.run(note("early"))

    def fill(connection: sqlite3.Connection) -> None:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")
        connection.execute("INSERT INTO notes VALUES (?)", ("x" * 100_000,))

    _, results = await gathered(thread, note("beside"), fill)
    assert [type(result) for result in results] == [StoreUnavailable, StoreUnavailable]
    assert "disk is full" in str(results[0])
    assert notes(path) == {"early"}
    await thread.run(note("later"))
    assert notes(path) == {"early", "later"}


class FailingCommit(sqlite3.Connection):
    """A connection whose next commits fail as if the disk had refused them."""

    failures = 0

    def execute(self, sql: str, *parameters: object) -> sqlite3.Cursor:  # type: ignore[override]
        if sql == "COMMIT" and FailingCommit.failures:
            FailingCommit.failures -= 1
            raise sqlite3.OperationalError("disk I/O error")
        return super().execute(sql, *parameters)  # type: ignore[arg-type]


async def test_a_commit_that_the_disk_refuses_is_never_acknowledged_and_the_next_group_gets_a_new_connection(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[sqlite3.Connection] = []

    def failing(path: str) -> sqlite3.Connection:
        opened.append(sqlite3.connect(path, isolation_level=None, check_same_thread=False, factory=FailingCommit))
        return opened[-1]

    monkeypatch.setattr(writer, "connect", failing)
    monkeypatch.setattr(FailingCommit, "failures", 1)
    thread = Writer(path)
    thread.start()
    with pytest.raises(StoreUnavailable, match="disk I/O error"):
        await thread.run(note("lost"))
    assert await thread.run(note("kept")) == 1
    await thread.stop()
    assert notes(path) == {"kept"}
    assert len(opened) == 2


async def test_a_foreign_lock_makes_the_store_unavailable_until_it_is_gone(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "BUSY_SECONDS", 0.01)
    thread = Writer(path)
    thread.start()
    stranger = sqlite3.connect(path, isolation_level=None)
    stranger.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="locked"):
        await thread.run(note("too early"))
    stranger.execute("ROLLBACK")
    assert await thread.run(note("in time")) == 1
    stranger.close()
    await thread.stop()


def synchronous(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA synchronous").fetchone()[0])


FULL, NORMAL = 2, 1


async def test_only_a_group_without_any_durable_job_is_committed_without_waiting_for_the_disk(thread: Writer) -> None:
    assert await thread.run(synchronous) == FULL
    assert await thread.run(synchronous, durable=False) == NORMAL
    assert await thread.run(synchronous) == FULL
    gate = Gate()
    held = await gate.close(thread)
    mixed = [asyncio.create_task(thread.run(synchronous, durable=durable)) for durable in (False, True, False)]
    await asyncio.sleep(0)
    gate.open()
    assert await asyncio.gather(*mixed) == [FULL, FULL, FULL]
    await held


async def test_whoever_stops_waiting_does_not_disturb_the_others(thread: Writer, path: str) -> None:
    gate = Gate()
    held = await gate.close(thread)
    impatient, patient = (asyncio.create_task(thread.run(note(text))) for text in ("impatient", "patient"))
    await asyncio.sleep(0)
    impatient.cancel()
    gate.open()
    await held
    assert await patient == 1
    assert notes(path) == {"impatient", "patient"}


async def test_what_was_asked_for_before_the_end_is_still_done(path: str) -> None:
    thread = Writer(path)
    thread.start()
    tasks = [asyncio.create_task(thread.run(note(str(n)))) for n in range(5)]
    await asyncio.sleep(0)
    await thread.stop()
    assert await asyncio.gather(*tasks) == [1] * 5
    assert len(notes(path)) == 5


async def test_whatever_goes_wrong_between_groups_does_not_end_the_thread(
    thread: Writer, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def surprise(_: object) -> None:
        raise FileNotFoundError("the folder is gone")

    monkeypatch.setattr(writer.WritingConnection, "checkpoint", surprise)
    monkeypatch.setattr(Writer, "_check_for_changes", surprise)
    thread.watch(lambda: None)
    assert [await asyncio.wait_for(thread.run(note(text)), PATIENCE_SECONDS) for text in "abc"] == [1, 1, 1]
    assert notes(path) == {"a", "b", "c"}


async def test_while_the_whole_file_is_written_again_everybody_is_refused_at_once(
    thread: Writer, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    vacuuming, over = threading.Event(), threading.Event()

    def slowly(connection: sqlite3.Connection) -> None:
        vacuuming.set()
        assert over.wait(PATIENCE_SECONDS)

    monkeypatch.setattr(checkpoints, "rewrite_every_page", slowly)
    gate = Gate()
    held = await gate.close(thread)
    queued = [asyncio.create_task(thread.run(note(str(n)))) for n in range(3)]
    await asyncio.sleep(0)
    thread._connection._file_doubtful = thread._connection._checkpointer.rewrite_needed = True
    gate.open()
    await held
    for refused in (*queued, thread.run(note("late"))):
        with pytest.raises(StoreUnavailable, match="the whole file is being rewritten; try again later"):
            await refused
    assert await asyncio.to_thread(vacuuming.wait, 10)  # starts without any request
    with pytest.raises(StoreUnavailable, match="being rewritten"):
        await thread.run(note("later"))
    over.set()
    while thread._connection.rewriting:
        await asyncio.sleep(0)
    assert await thread.run(note("kept")) == 1
    assert notes(path) == {"kept"}


# -- changes by other processes --------------------------------------------------------------------------------


async def asleep(thread: Writer) -> None:
    """Wait until the writer no longer checks at intervals."""
    await until(lambda: thread._idle_checks > writer.CHECKS_BEFORE_SLEEP, "a writer that sleeps")
    await asyncio.sleep(2 * writer.WATCH_SECONDS)


async def test_a_writer_that_sleeps_is_woken_by_a_write_of_another_process_and_wakes_the_workers(
    thread: Writer, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "SLEEP_SECONDS", 1_000.0)
    monkeypatch.setattr(writer, "CHECKS_BEFORE_SLEEP", 3)
    woken = asyncio.Event()
    thread.watch(woken.set)
    for text in "abc":
        await asleep(thread)
        woken.clear()
        with closing(connect(path)) as other:
            other.execute("INSERT INTO notes VALUES (?)", (text,))
        await asyncio.wait_for(woken.wait(), PATIENCE_SECONDS)
    await thread.run(note("ours"))
    assert notes(path) == {"a", "b", "c", "ours"}


async def test_a_writer_that_sleeps_does_not_check_until_something_happens(
    thread: Writer, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "SLEEP_SECONDS", 1_000.0)
    monkeypatch.setattr(writer, "CHECKS_BEFORE_SLEEP", 3)
    thread.watch(lambda: None)
    await asleep(thread)
    checks = 0

    def count(_: Writer, __: object) -> bool:
        nonlocal checks
        checks += 1
        return False

    monkeypatch.setattr(Writer, "_check_for_changes", count)
    await asyncio.sleep(10 * writer.WATCH_SECONDS)
    assert checks == 0
    await asyncio.wait_for(thread.run(note("ours")), PATIENCE_SECONDS)


async def test_before_it_sleeps_the_writer_checks_for_writes_only_while_no_fork_is_possible(
    thread: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "SLEEP_SECONDS", 0.01)
    monkeypatch.setattr(writer, "CHECKS_BEFORE_SLEEP", 0)
    users: list[int] = []

    def record(_: Writer, __: object) -> bool:
        users.append(connections.fork_guard._users)
        return False

    monkeypatch.setattr(Writer, "_check_for_changes", record)
    thread.watch(lambda: None)
    await until(lambda: len(users) >= 10, "ten checks")
    assert 0 not in users


async def test_a_commit_while_the_connection_is_replaced_counts_as_a_change(path: str) -> None:
    thread = Writer(path)
    thread.watch(lambda: None)
    assert thread._check_for_changes(thread._connection.opened()), "the first check"
    assert not thread._check_for_changes(thread._connection.opened())
    with closing(connect(path)) as other:
        thread._connection.close_idle()
        other.execute("INSERT INTO notes VALUES ('a')")
    assert thread._check_for_changes(thread._connection.opened())
    thread._connection.close()
    thread._file_watch.close()


async def test_without_a_report_of_the_kernel_the_writer_still_checks_at_intervals(
    thread: Writer, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer.FileWatch, "set", lambda watch: False)
    monkeypatch.setattr(writer, "CHECKS_BEFORE_SLEEP", 3)
    woken = asyncio.Event()
    thread.watch(woken.set)
    await until(lambda: thread._idle_checks > 3, "many checks")
    woken.clear()
    with closing(connect(path)) as other:
        other.execute("INSERT INTO notes VALUES ('a')")
    await asyncio.wait_for(woken.wait(), PATIENCE_SECONDS)
