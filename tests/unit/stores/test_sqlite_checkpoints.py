"""SQLite checkpoints: only Doorstep moves a grown log into the file, and a lasting reader delays few commits."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from doorstep.stores.sql.sqlite.checkpoints import Checkpointer
from doorstep.stores.sql.sqlite.connections import PAGE_BYTES, connect, connect_reader
from doorstep.stores.sql.sqlite.writer import WritingConnection
from tests.unit.stores.notes import PAGES, log_bytes, make_notes, shorten_log, write

FRAME_BYTES = PAGE_BYTES + 24


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    shorten_log(monkeypatch)
    return make_notes(tmp_path)


@pytest.fixture
def connection(path: str) -> Iterator[sqlite3.Connection]:
    connection = connect(path)
    yield connection
    connection.close()


@pytest.mark.parametrize("opening", [connect, connect_reader])
def test_no_connection_of_ours_moves_the_log_inside_a_commit(path: str, opening: object) -> None:
    assert callable(opening)
    connection = opening(path)
    assert connection.execute("PRAGMA wal_autocheckpoint").fetchone() == (0,)
    connection.close()


def test_the_log_is_begun_anew_again_and_again_and_stays_short(path: str, connection: sqlite3.Connection) -> None:
    checkpointer = Checkpointer(path)
    for _ in range(40 * PAGES):
        write(connection)
        checkpointer.run_if_due(connection)
    assert log_bytes(path) < 2 * PAGES * FRAME_BYTES


def test_a_log_that_a_reader_has_held_back_is_cut_when_the_reader_is_gone(
    path: str, connection: sqlite3.Connection
) -> None:
    checkpointer, reader = Checkpointer(path), connect_reader(path)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM notes").fetchone()
    for _ in range(12 * PAGES):
        write(connection)
        checkpointer.run_if_due(connection)
    held_back = log_bytes(path)
    reader.close()
    for _ in range(12 * PAGES):
        write(connection)
        checkpointer.run_if_due(connection)
    assert held_back > 12 * PAGES * FRAME_BYTES
    assert log_bytes(path) < 3 * PAGES * FRAME_BYTES


def test_a_reader_who_never_ends_is_not_waited_for_at_every_commit(path: str, connection: sqlite3.Connection) -> None:
    checkpointer, reader, moves = Checkpointer(path), connect_reader(path), list[str]()
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM notes").fetchone()
    connection.set_trace_callback(lambda text: moves.append(text) if "wal_checkpoint" in text else None)
    for _ in range(100 * PAGES):
        write(connection)
        checkpointer.run_if_due(connection)
    reader.close()
    assert 10 < len(moves) < 30


def test_closing_leaves_everything_in_the_file(path: str, tmp_path: Path) -> None:
    writing, other = WritingConnection(path), connect_reader(path)
    write(writing.opened())
    writing.close()
    alone = shutil.copy(path, tmp_path / "alone.db")
    other.close()
    copy = sqlite3.connect(alone)
    assert copy.execute("SELECT count(*) FROM notes").fetchone() == (1,)
    copy.close()
