"""Connections to the SQLite file: opening, errors, forks, reads, scripts and migration."""

from __future__ import annotations

import asyncio
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol, TypeVar
from urllib.parse import quote
from uuid import UUID
from weakref import WeakSet

from sqlalchemy import create_engine
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from doorstep.errors import ConfigError, StoreUnavailable
from doorstep.stores.program_sql import NO_DEFINITIONS, Sql, SqlDefinitions, define
from doorstep.stores.sql.migrations import require_current, revision_of, upgrade
from doorstep.stores.sql.queries.transaction import Prepared, Row, Rows, Step, Transaction, prepare

T = TypeVar("T")

PAGE_BYTES = 2_048
"""The size of a page in a new file. Each of the two transactions of a single event changes a row or a few in 12 pages,
which are written whole. With SQLite's default of 4 KiB, an event writes 120 KB, with 2 KiB 65 KB, and with 1 KiB 46 KB.
Events in batches of 200 cost the same CPU with 2 KiB as with 4 KiB (67 µs), but a fifth more with 1 KiB, and counting
10,000 events takes 8.6, 10.8 or 15.3 ms."""
CACHE_KIBIBYTES = 16 * 1024
"""The page cache of the writing connection. With SQLite's default of 2 MiB, this connection would often reread pages of
a large file."""
READER_CACHE_KIBIBYTES = 4 * 1024
"""The page cache of each reading connection. It is small, because readers mostly seek and there are several of them."""
BUSY_SECONDS = 5.0
"""The maximum time that a connection waits while another process is writing to the same file."""
LOG_BYTES_MAX = 64 * 2**20
"""The size to which a longer log is truncated after a checkpoint."""
STATEMENTS_KEPT = 512
"""The number of prepared statements kept per connection. A statement that writes many rows has up to eight SQL texts,
one for each number of rows that it can write at once."""
READERS = 3
"""The number of reading threads. Reads seldom wait for the disk, so more threads would not make them faster."""


def connect(path: str, *, create: bool = False) -> sqlite3.Connection:
    """Open a connection in WAL mode, without implicit transactions. Several threads may use it in turn."""
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
        if create:
            connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")  # no effect on an existing file
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIBIBYTES}")
        connection.execute("PRAGMA wal_autocheckpoint = 0")  # see checkpoints.py
        connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES_MAX}")
    except BaseException:
        connection.close()
        raise
    return connection


def connect_reader(path: str) -> sqlite3.Connection:
    """A connection that cannot write. The file itself is opened for writing, because a reader must be able to recover
    the log after a crash."""
    connection = connect(path)
    connection.execute("PRAGMA query_only = ON")
    connection.execute(f"PRAGMA cache_size = -{READER_CACHE_KIBIBYTES}")
    return connection


# -- errors ------------------------------------------------------------------------------------------------


@contextmanager
def unavailable(path: str) -> Iterator[None]:
    """Re-raise file and disk errors as StoreUnavailable. Errors in a statement are bugs and are raised unchanged."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if not file_failed(error):
            raise
        raise StoreUnavailable(f"{path}: {error}") from error


def file_failed(error: BaseException) -> bool:
    """Whether the error was caused by the disk, by the file (which may be damaged) or by another program's lock, and
    not by our statement."""
    return isinstance(error, sqlite3.OperationalError) or type(error) is sqlite3.DatabaseError


def disk_failed(error: BaseException) -> bool:
    """Whether the operating system failed to read, write or sync, so that the content of the disk is unknown."""
    cause = error.__cause__ or error
    return isinstance(cause, sqlite3.Error) and str(getattr(cause, "sqlite_errorname", "")).startswith("SQLITE_IOERR")


def disk_full(error: BaseException) -> bool:
    """Whether the disk is full. Unlike other disk errors, this error is reported immediately and loses no data."""
    return isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL


# -- forks -------------------------------------------------------------------------------------------------


class ConnectionOwner(Protocol):
    """Keeps idle connections open."""

    def close_idle(self) -> None:
        """Close the idle connections. Called only while no connection is in use."""


class ForkGuard:
    """Makes forks safe. Every use of a connection, in any thread, must be inside `with fork_guard:`. Do not nest it.

    SQLite records in memory which locks the process holds on a file. A forked process inherits this record but not the
    locks, so the connections that it opens are unprotected. When the parent closes the file, SQLite deletes the log
    that the child is still writing to, and with it events that were already accepted. If the fork happens during a
    commit, the child also inherits a lock that is never released.

    So a fork waits until no connection is in use, and closes the idle ones. The next use opens new connections.
    """

    def __init__(self) -> None:
        self._owners: WeakSet[ConnectionOwner] = WeakSet()
        self._forking = threading.Lock()
        self._reset()

    def _reset(self) -> None:
        self._changed = threading.Condition()
        self._users = 0
        self._stopped = False

    def register(self, owner: ConnectionOwner) -> None:
        """Close the idle connections of this owner before a fork."""
        self._owners.add(owner)

    def __enter__(self) -> None:
        with self._changed:
            while self._stopped:
                self._changed.wait()
            self._users += 1

    def __exit__(self, *exc: object) -> None:
        with self._changed:
            self._users -= 1
            if not self._users:
                self._changed.notify_all()

    def before_fork(self) -> None:
        self._forking.acquire()
        with self._changed:
            self._stopped = True
            while self._users:
                self._changed.wait()
        for owner in list(self._owners):
            with suppress(Exception):  # an error cannot prevent the fork
                owner.close_idle()

    def after_fork_in_parent(self) -> None:
        with self._changed:
            self._stopped = False
            self._changed.notify_all()
        self._forking.release()

    def after_fork_in_child(self) -> None:
        """Reset the guard. The child has no other threads that could be waiting for it."""
        self._reset()
        self._forking.release()


fork_guard = ForkGuard()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=fork_guard.before_fork,
        after_in_parent=fork_guard.after_fork_in_parent,
        after_in_child=fork_guard.after_fork_in_child,
    )


# -- reading -----------------------------------------------------------------------------------------------


class Readers:
    """A few threads that read while the writer writes. Each call has its own connection and sees one snapshot."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._threads = ThreadPoolExecutor(READERS, thread_name_prefix="doorstep-reader")
        self._idle: queue.SimpleQueue[sqlite3.Connection] = queue.SimpleQueue()
        fork_guard.register(self)

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._read, work)

    async def stop(self) -> None:
        await asyncio.to_thread(self._threads.shutdown)
        with fork_guard:
            self.close_idle()

    def close_idle(self) -> None:
        while not self._idle.empty():
            self._idle.get().close()

    def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with fork_guard, unavailable(self._path):
            connection = self._take()
            try:
                connection.execute("BEGIN")
                result = work(connection)
                connection.execute("COMMIT")
            except sqlite3.Error:
                connection.close()
                raise
            except BaseException:
                connection.execute("ROLLBACK")
                self._idle.put(connection)
                raise
            self._idle.put(connection)
            return result

    def _take(self) -> sqlite3.Connection:
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            return connect_reader(self._path)


# -- scripts of queries/ -----------------------------------------------------------------------------------

_DIALECT = sqlite.dialect(paramstyle="qmark")


def run_transaction(connection: sqlite3.Connection, script: Transaction[T]) -> T:
    """Run a script to its end, inside the current transaction of `connection`."""
    try:
        step = next(script)
        while True:
            step = script.send(_rows(connection, step))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def _rows(connection: sqlite3.Connection, step: Step) -> Rows:
    prepared = prepare(step, _DIALECT)
    if len(prepared.arguments) == 1:
        rows = _fetched(connection, prepared.text, _driver_values(prepared.arguments[0]))
        return [_model_values(row, prepared) for row in rows] if prepared.uid_columns or prepared.bool_columns else rows
    if prepared.arguments:
        connection.executemany(prepared.text, map(_driver_values, prepared.arguments))
    return []


def _fetched(connection: sqlite3.Connection, text: str, arguments: tuple[object, ...]) -> Rows:
    """Run a query. SQLite accepts any bytes as text, and an outbox row with invalid text must not keep other rows from
    being read. If a text is not valid UTF-8, the query is repeated with the invalid bytes escaped, so that the row can
    be rejected later."""
    try:
        return connection.execute(text, arguments).fetchall()
    except sqlite3.OperationalError as error:
        if "decode to UTF-8" not in str(error) or not text.startswith("SELECT"):
            raise
    connection.text_factory = lambda written: written.decode(errors="backslashreplace")
    try:
        return connection.execute(text, arguments).fetchall()
    finally:
        connection.text_factory = str


def _driver_values(arguments: tuple[object, ...]) -> tuple[object, ...]:
    return tuple(value.bytes if isinstance(value, UUID) else value for value in arguments)


def _model_values(row: Row, prepared: Prepared) -> Row:
    values = list(row)
    for index in prepared.uid_columns:
        if values[index] is not None:
            values[index] = UUID(bytes=values[index])
    for index in prepared.bool_columns:
        values[index] = bool(values[index])
    return tuple(values)


# -- migration ---------------------------------------------------------------------------------------------


def migrate(path: str, definitions: SqlDefinitions = NO_DEFINITIONS) -> None:
    """Create the file if necessary, and upgrade its schema and the definitions of the program. If several processes
    migrate at the same time, they take turns."""
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        raise ConfigError(f"the folder of the database does not exist: {folder}; create it or change the database URL")
    with _alembic_connection(path) as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        upgrade(connection)
        define(connection.exec_driver_sql, Sql("sqlite"), definitions)
        connection.commit()


def require_migrated(path: str) -> None:
    """Raise ConfigError unless the file has exactly the schema that this version needs."""
    if not Path(path).exists():
        require_current(None, path)
    with _alembic_connection(path) as connection:
        require_current(revision_of(connection), path)


@contextmanager
def _alembic_connection(path: str) -> Iterator[Connection]:
    """A SQLAlchemy connection for Alembic, on top of one of our own connections. Errors from the driver are raised
    without SQLAlchemy's wrapper."""
    with fork_guard, unavailable(path):
        driver = connect(path, create=True)
        engine = create_engine("sqlite://", creator=lambda: driver, poolclass=NullPool)
        try:
            with engine.connect() as connection:
                yield connection
        except DBAPIError as error:
            raise error.orig or error from error
        finally:
            driver.close()
