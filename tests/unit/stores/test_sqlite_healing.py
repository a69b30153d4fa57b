"""After a disk failure at a checkpoint, all doubtful pages are rewritten once, before any other work is done."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from doorstep.errors import StoreUnavailable
from doorstep.stores.sql.sqlite import checkpoints, writer
from doorstep.stores.sql.sqlite.connections import connect, connect_reader, unavailable
from doorstep.stores.sql.sqlite.writer import WritingConnection
from tests.unit.stores.notes import PAGES, log_bytes, make_notes, shorten_log, write


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    shorten_log(monkeypatch)
    return make_notes(tmp_path)


class FailingCheckpoint(sqlite3.Connection):
    """A connection whose next checkpoints fail as if the disk had failed. tests/faults has real disk failures."""

    failures = 0
    name = "SQLITE_IOERR_FSYNC"
    vacuums = 0

    def execute(self, sql: str, *parameters: object) -> sqlite3.Cursor:  # type: ignore[override]
        if sql == "VACUUM":
            FailingCheckpoint.vacuums += 1
        if "wal_checkpoint" in sql and FailingCheckpoint.failures:
            FailingCheckpoint.failures -= 1
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorname = self.name
            error.sqlite_errorcode = getattr(sqlite3, self.name)
            raise error
        return super().execute(sql, *parameters)


@pytest.fixture
def failing(path: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[WritingConnection]:
    """A writing connection whose log is due for a checkpoint, on a disk that fails as often as the test sets."""

    def open_failing(path: str) -> sqlite3.Connection:
        connection = sqlite3.connect(path, isolation_level=None, factory=FailingCheckpoint)
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        return connection

    monkeypatch.setattr(writer, "connect", open_failing)
    monkeypatch.setattr(FailingCheckpoint, "vacuums", 0)
    writing = WritingConnection(path, count(step=10).__next__)  # each reading of the clock is ten seconds later
    write(writing.opened())
    writing._checkpointer.run(writing.opened())  # from here on, writes by others can be detected
    for _ in range(2 * PAGES):
        write(writing.opened())
    yield writing
    monkeypatch.setattr(FailingCheckpoint, "failures", 0)


def test_after_a_checkpoint_that_the_disk_failed_nothing_is_done_until_one_succeeds(
    failing: WritingConnection, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FailingCheckpoint, "failures", 3)
    failing.checkpoint()
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="disk I/O error"), unavailable(path):
            failing.opened()
    write(failing.opened())
    assert FailingCheckpoint.failures == 0
    failing.close()


def test_a_checkpoint_that_finds_no_room_stops_nobody(
    failing: WritingConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FailingCheckpoint, "failures", 2)
    monkeypatch.setattr(FailingCheckpoint, "name", "SQLITE_FULL")
    before = failing.opened()
    failing.checkpoint()
    assert failing.opened() is before
    failing.close()


def test_a_disk_that_fails_to_the_very_end_is_told_when_the_file_is_closed(
    failing: WritingConnection, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FailingCheckpoint, "failures", 2)
    with pytest.raises(StoreUnavailable, match="disk I/O error"), unavailable(path):
        failing.close()


@contextmanager
def someone_reading(path: str) -> Iterator[None]:
    reader = connect_reader(path)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM notes").fetchone()
    yield
    reader.close()


def fail_checkpoint(writing: WritingConnection, monkeypatch: pytest.MonkeyPatch, times: int = 1) -> None:
    for _ in range(2 * PAGES):
        write(writing.opened())
    monkeypatch.setattr(FailingCheckpoint, "failures", times)
    writing.checkpoint()


def test_healing_is_refused_while_readers_stay(
    failing: WritingConnection, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with someone_reading(path):
        fail_checkpoint(failing, monkeypatch)
        with pytest.raises(StoreUnavailable, match="reading"), unavailable(path):
            failing.opened()
    write(failing.opened())
    assert FailingCheckpoint.vacuums == 0
    failing.close()


def test_a_reader_who_stays_does_not_have_the_whole_file_written_again_and_again(
    failing: WritingConnection, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with someone_reading(path):
        write(failing.opened())
        failing.checkpoint()  # the reader stops it halfway
        fail_checkpoint(failing, monkeypatch)
        assert failing.rewriting
        lengths = []
        for _ in range(5):
            with pytest.raises(StoreUnavailable, match="reading"), unavailable(path):
                failing.opened()
            lengths.append(log_bytes(path))
            assert not failing.rewriting
    assert len(set(lengths)) == 1 and FailingCheckpoint.vacuums == 1
    write(failing.opened())
    failing.close()


def test_a_disk_that_goes_on_failing_does_not_have_the_whole_file_written_each_time(
    failing: WritingConnection, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bystander = connect_reader(path)  # without it, closing the last connection removes the log
    with someone_reading(path):
        write(failing.opened())
        failing.checkpoint()
    fail_checkpoint(failing, monkeypatch, times=6)
    for _ in range(5):
        with pytest.raises(StoreUnavailable, match="disk I/O error"), unavailable(path):
            _use(failing)
    write(failing.opened())
    assert FailingCheckpoint.vacuums == 1
    failing.close()
    bystander.close()


def _use(writing: WritingConnection) -> None:
    """Open the connection as the writer does: a connection that fails is discarded."""
    try:
        writing.opened()
    except sqlite3.Error as error:
        writing.failed(error)
        raise


@pytest.mark.parametrize("others_write", [False, True])
def test_after_others_have_written_nobody_knows_what_they_have_moved_and_the_whole_file_is_written_again(
    failing: WritingConnection, path: str, monkeypatch: pytest.MonkeyPatch, others_write: bool
) -> None:
    if others_write:
        other = sqlite3.connect(path, isolation_level=None)
        write(other)
        other.close()
    fail_checkpoint(failing, monkeypatch)
    assert failing.rewriting is others_write
    write(failing.opened())
    assert FailingCheckpoint.vacuums == others_write
    failing.close()


def test_tries_to_heal_have_pauses_between_them(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    now, tries = 0.0, 0

    def fail(*_: object) -> None:
        nonlocal tries
        tries += 1
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(writer, "rewrite_log", fail)
    writing = WritingConnection(path, lambda: now)
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorname = "SQLITE_IOERR_FSYNC"
    writing.failed(error)
    for _ in range(1_000):  # as often as an idle writer checks in 25 s
        with pytest.raises(sqlite3.OperationalError, match="disk I/O error"):
            writing.opened()
        now += 0.025
    assert 25 <= tries <= 35


def test_the_whole_file_is_not_written_again_in_memory(path: str) -> None:
    connection, statements = connect(path), list[str]()
    connection.set_trace_callback(statements.append)
    checkpoints.rewrite_every_page(connection)
    assert statements[0] == "PRAGMA temp_store = FILE" and "VACUUM" in statements
    assert connection.execute("PRAGMA temp_store").fetchone() == (2,)  # temporary data is in memory again
    connection.close()
