"""Connections to the file: how they are opened, and which of their errors mean that the store is unavailable."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from doorstep.errors import StoreUnavailable

CACHE_KIBIBYTES = 32 * 1024
"""Pages kept by the writing connection; with SQLite's own 2 MiB a large file is read again and again."""
READER_CACHE_KIBIBYTES = 4 * 1024
"""Pages kept by a reading one: it mostly seeks, and there are several of them."""
BUSY_SECONDS = 5.0
"""How long to wait for another process that is writing to the same file."""
LOG_BYTES_MAX = 64 * 2**20
"""A log that a burst made longer is cut back to this after a checkpoint."""
_CHUNK_BYTES = 2**20
STATEMENTS_KEPT = 512
"""Prepared statements a connection keeps; a batch has up to eight sizes of each."""


def connect(path: str, *, create: bool = False) -> sqlite3.Connection:
    """A connection in WAL mode that may be handed between threads, without implicit transactions."""
    mode = "rwc" if create else "rw"
    connection = sqlite3.connect(
        f"file:{quote(str(Path(path).absolute()))}?mode={mode}",
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=STATEMENTS_KEPT,
    )
    try:
        _configure(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def connect_reader(path: str) -> sqlite3.Connection:
    """A connection that cannot write. Not opened read-only: a reader must be able to recover the log after a crash."""
    connection = connect(path)
    connection.execute("PRAGMA query_only = ON")
    connection.execute(f"PRAGMA cache_size = -{READER_CACHE_KIBIBYTES}")
    return connection


@contextmanager
def unavailable(path: str) -> Iterator[None]:
    """Turn what the file or the disk did into StoreUnavailable; what a statement broke (a bug) passes through."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if not file_failed(error):
            raise
        raise StoreUnavailable(f"{path}: {error}") from error


def file_failed(error: BaseException) -> bool:
    """Whether the file, the disk or a foreign lock is at fault (also a damaged file), not what we asked of it."""
    return isinstance(error, sqlite3.OperationalError) or type(error) is sqlite3.DatabaseError


def disk_failed(error: BaseException) -> bool:
    """Whether the system could not read, write or sync, so that nobody knows what is on the disk."""
    cause = error.__cause__ or error
    return isinstance(cause, sqlite3.Error) and str(getattr(cause, "sqlite_errorname", "")).startswith("SQLITE_IOERR")


def disk_full(error: BaseException) -> bool:
    """Whether there was no room, which is known at once and loses nothing that was there."""
    return isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL


def rewrite_log(connection: sqlite3.Connection, path: str) -> None:
    """Write the bytes of the log once more where they are, and sync them.

    A checkpoint instead would do harm: the file would then be newer than a log with a hole in it, and the two are
    put together after a power cut. The write lock keeps everyone else from changing the log meanwhile.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        log = os.open(f"{path}-wal", os.O_RDWR)
        try:
            _write_again(log)
        finally:
            os.close(log)
    except OSError as error:
        raise sqlite3.OperationalError(f"the log cannot be written again: {error.strerror}") from error
    finally:
        connection.execute("ROLLBACK")


def _write_again(file: int) -> None:
    offset = 0
    while chunk := os.pread(file, _CHUNK_BYTES, offset):
        offset += os.pwrite(file, chunk, offset)
    os.fsync(file)


def _configure(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute(f"PRAGMA cache_size = -{CACHE_KIBIBYTES}")
    connection.execute("PRAGMA wal_autocheckpoint = 0")  # see checkpoints.py
    connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES_MAX}")
