"""A SQLite file with one table, and a write-ahead log that counts as long after a few pages."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from doorstep.stores.sql.sqlite import checkpoints
from doorstep.stores.sql.sqlite.connections import connect

PAGES = 10


def make_notes(folder: Path) -> str:
    path = str(folder / "notes.db")
    connection = connect(path, create=True)
    connection.execute("CREATE TABLE notes (text TEXT)")
    connection.close()
    return path


def shorten_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "LOG_PAGES", PAGES)
    monkeypatch.setattr(checkpoints, "LOG_PAGES_MAX", 8 * PAGES)
    monkeypatch.setattr(checkpoints, "WAIT_MILLISECONDS", 1)


def write(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO notes VALUES (?)", ("x" * 3_000,))


def log_bytes(path: str) -> int:
    return Path(f"{path}-wal").stat().st_size
