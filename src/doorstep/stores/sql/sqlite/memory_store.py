"""MemoryStore: an in-memory SQLite database that belongs to one store and is lost when the store is closed.

All threads share its one connection. Its methods never suspend, because they wait neither for a disk nor for another
task. The testing sandbox relies on that: it calls them without an event loop.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any, TypeVar

from doorstep.errors import StoreUnavailable
from doorstep.model.outbox import OutboxMessage
from doorstep.stores.app_connections import check_transaction, check_transaction_async, family_of
from doorstep.stores.program_sql import NO_DEFINITIONS, Sql, SqlDefinitions, define
from doorstep.stores.sql.ddl import schema_ddl
from doorstep.stores.sql.queries import outbox
from doorstep.stores.sql.sqlite.connections import STATEMENTS_KEPT, fork_guard, run_transaction, unavailable
from doorstep.stores.sql.sqlite.store import SqliteVerbs
from doorstep.stores.sql.sqlite.writer import Work
from doorstep.stores.store import Topic

T = TypeVar("T")

URL = "memory://"


class MemoryStore(SqliteVerbs):
    """A Store for tests and experiments. It runs the same statements as a SqliteStore but persists nothing."""

    def __init__(self) -> None:
        # No method both creates and looks up an organization or endpoint, so look-ups see only committed rows.
        super().__init__(lambda query, values: self._present().connection.execute(query, values).fetchall())
        self._database: _Database | None = None
        self._is_open = False
        self._wakes: dict[Topic, list[Callable[[], None]]] = {topic: [] for topic in Topic}

    # -- life cycle ----------------------------------------------------------------------------------------

    async def open(self) -> None:
        self._present()
        self._is_open = True

    async def close(self) -> None:
        database, self._database = self._database, None
        self._is_open = False
        self._keys.forget()
        if database is not None:
            database.close()

    async def migrate(self, definitions: SqlDefinitions = NO_DEFINITIONS) -> None:
        """Run the definitions. The database is created with the current schema."""
        if definitions:
            self._present().do(lambda connection: define(connection.execute, Sql("sqlite"), definitions))

    def on_wakeup(self, topic: Topic, wake: Callable[[], None]) -> None:
        self._wakes[topic].append(wake)

    def wake_others(self, topic: Topic) -> None:
        """Wake the workers of this process. No other process shares the database."""
        for wake in self._wakes[topic]:
            wake()

    def _announce_change(self) -> None:
        self.wake_others(Topic.INCIDENTS)

    # -- the outbox ----------------------------------------------------------------------------------------

    def post_on(self, connection: object, message: OutboxMessage, wake: Callable[[], None]) -> Awaitable[None] | None:
        """Post the message immediately. It stays posted even if the application's transaction is rolled back later,
        because this store cannot take part in a transaction of another database."""
        if family_of(connection).asynchronous:
            return self._post_when_awaited(connection, message, wake)
        check_transaction(connection)
        self._post(message, wake)
        return None

    async def _post_when_awaited(self, connection: object, message: OutboxMessage, wake: Callable[[], None]) -> None:
        await check_transaction_async(connection)
        self._post(message, wake)

    def _post(self, message: OutboxMessage, wake: Callable[[], None]) -> None:
        """Post a message. This is allowed even before the store is opened."""
        self._present().do(lambda connection: run_transaction(connection, outbox.post([message])))
        self.wake_others(Topic.OUTBOX)
        wake()

    # -- the database --------------------------------------------------------------------------------------

    def _present(self) -> _Database:
        if self._database is None:
            self._database = _Database()
        return self._database

    def _opened_writer(self) -> _Database:
        if not self._is_open:
            raise _not_open()
        return self._present()

    _opened_readers = _opened_writer


class _Database:
    """Runs each job immediately, in its own transaction. It replaces both the writer and the readers of a
    SqliteStore."""

    def __init__(self) -> None:
        self.connection = _connect()
        self._lock = threading.Lock()
        self._closed = False
        with fork_guard:
            _template().backup(self.connection)

    async def run(self, work: Callable[[sqlite3.Connection], T], *, durable: bool = True) -> T:
        return self.do(work)

    async def request(self, work: Work, request: object, *, durable: bool = True) -> Any:
        (result,) = self.do(lambda connection: work(connection, [request]))
        return result

    def do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with fork_guard, unavailable(URL), self._lock:
            if self._closed:  # another thread has just closed it
                raise _not_open()
            self.connection.execute("BEGIN")
            try:
                result = work(self.connection)
            except BaseException:
                self.connection.execute("ROLLBACK")
                raise
            self.connection.execute("COMMIT")
            return result

    def close(self) -> None:
        with fork_guard, self._lock:
            self._closed = True
            self.connection.close()


def _not_open() -> StoreUnavailable:
    return StoreUnavailable(f"{URL} is not open")


@cache
def _template() -> sqlite3.Connection:
    """An empty database to copy. A copy takes 0.4 ms, while executing the DDL takes 2 ms."""
    connection = _connect()
    connection.executescript(";\n".join(schema_ddl("sqlite")))
    return connection


def _connect() -> sqlite3.Connection:
    connection = sqlite3.connect(
        ":memory:", isolation_level=None, check_same_thread=False, cached_statements=STATEMENTS_KEPT
    )
    connection.execute("PRAGMA foreign_keys = ON")
    return connection
