"""The log is moved into the file when it has grown, by us and nobody else, and never without end."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from doorstep.errors import StoreUnavailable
from doorstep.stores.sql.sqlite import checkpoints, connections, writing_connection
from doorstep.stores.sql.sqlite.checkpoints import Checkpointer
from doorstep.stores.sql.sqlite.connections import connect, connect_reader, unavailable
from doorstep.stores.sql.sqlite.writing_connection import WritingConnection

_PAGES = 10
_FRAME_BYTES = 4_096 + 24


@pytest.fixture(autouse=True)
def small_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "LOG_PAGES", _PAGES)
    monkeypatch.setattr(checkpoints, "LOG_PAGES_MAX", 8 * _PAGES)
    monkeypatch.setattr(checkpoints, "WAIT_MILLISECONDS", 1)


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "notes.db")
    connection = connect(path, create=True)
    connection.execute("CREATE TABLE notes (text TEXT)")
    connection.close()
    return path


@pytest.fixture
def connection(path: str) -> Iterator[sqlite3.Connection]:
    connection = connect(path)
    yield connection
    connection.close()


def write(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO notes VALUES (?)", ("x" * 3_000,))


def log_bytes(path: str) -> int:
    return Path(f"{path}-wal").stat().st_size


@pytest.mark.parametrize("opening", [connect, connect_reader])
def test_no_connection_of_ours_moves_the_log_inside_a_commit(path: str, opening: object) -> None:
    assert callable(opening)
    connection = opening(path)
    assert connection.execute("PRAGMA wal_autocheckpoint").fetchone() == (0,)
    connection.close()


def test_the_log_is_begun_anew_again_and_again_and_stays_short(path: str, connection: sqlite3.Connection) -> None:
    checkpointer = Checkpointer(path)
    for _ in range(40 * _PAGES):
        write(connection)
        checkpointer.run_if_due(connection)
    assert log_bytes(path) < 2 * _PAGES * _FRAME_BYTES


def test_a_log_that_a_reader_has_held_back_is_cut_when_the_reader_is_gone(
    path: str, connection: sqlite3.Connection
) -> None:
    checkpointer, reader = Checkpointer(path), connect_reader(path)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM notes").fetchone()
    for _ in range(12 * _PAGES):
        write(connection)
        checkpointer.run_if_due(connection)
    held_back = log_bytes(path)
    reader.close()
    for _ in range(12 * _PAGES):
        write(connection)
        checkpointer.run_if_due(connection)
    assert held_back > 12 * _PAGES * _FRAME_BYTES
    assert log_bytes(path) < 3 * _PAGES * _FRAME_BYTES


def test_a_reader_who_never_ends_is_not_waited_for_at_every_commit(path: str, connection: sqlite3.Connection) -> None:
    checkpointer, reader, moves = Checkpointer(path), connect_reader(path), list[str]()
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM notes").fetchone()
    connection.set_trace_callback(lambda text: moves.append(text) if "wal_checkpoint" in text else None)
    for _ in range(100 * _PAGES):
        write(connection)
        checkpointer.run_if_due(connection)
    reader.close()
    assert 10 < len(moves) < 30


class FailingCheckpoint(sqlite3.Connection):
    """A connection whose next checkpoints fail as if the disk had failed them; a real one: tests/faults."""

    failures = 0
    name = "SQLITE_IOERR_FSYNC"

    def execute(self, sql: str, *parameters: object) -> sqlite3.Cursor:  # type: ignore[override]
        if "wal_checkpoint" in sql and FailingCheckpoint.failures:
            FailingCheckpoint.failures -= 1
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorname = self.name
            error.sqlite_errorcode = getattr(sqlite3, self.name)
            raise error
        return super().execute(sql, *parameters)


@pytest.fixture
def failing(path: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[WritingConnection]:
    """A writing connection with a log that is due, on a disk that will fail as often as is told."""

    def open_failing(path: str) -> sqlite3.Connection:
        return sqlite3.connect(path, isolation_level=None, factory=FailingCheckpoint)

    monkeypatch.setattr(writing_connection, "connect", open_failing)
    writing = WritingConnection(path)
    writing.opened().execute("PRAGMA wal_autocheckpoint = 0")
    for _ in range(2 * _PAGES):
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


def test_closing_leaves_everything_in_the_file(path: str, tmp_path: Path) -> None:
    writing, other = WritingConnection(path), connect_reader(path)
    write(writing.opened())
    writing.close()
    alone = shutil.copy(path, tmp_path / "alone.db")
    other.close()
    copy = sqlite3.connect(alone)
    assert copy.execute("SELECT count(*) FROM notes").fetchone() == (1,)
    copy.close()


def test_healing_waits_for_readers_and_is_refused_while_they_stay(
    failing: WritingConnection, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "BUSY_SECONDS", 0.01)
    reader = connect_reader(path)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM notes").fetchone()
    write(failing.opened())
    monkeypatch.setattr(FailingCheckpoint, "failures", 1)
    failing.checkpoint()
    monkeypatch.setattr(writing_connection, "connect", connect)
    with pytest.raises(StoreUnavailable, match="reading"), unavailable(path):
        failing.opened()
    reader.close()
    write(failing.opened())
    failing.close()
