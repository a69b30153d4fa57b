"""Inserts a message into the outbox on the application's own connection, inside its open transaction.

There is one insert function for each family of connections. No database library, including SQLAlchemy, is imported
before the application passes one of that library's connections.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import msgspec

from doorstep.errors import InvalidInput
from doorstep.model.outbox import OutboxMessage
from doorstep.stores.app_connections import check_transaction, family_of

if TYPE_CHECKING:
    from sqlalchemy import Insert
    from sqlalchemy.engine import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
    from sqlalchemy.orm import Session

TABLE = "doorstep_outbox"
COLUMNS = ("uid", "org_uid", "event_type", "payload", "options", "created_at")
SQLITE, POSTGRESQL = "sqlite", "postgresql"


class OutboxTable(NamedTuple):
    """The dialect and schema of a store's outbox table."""

    dialect: str
    schema: str | None = None
    """The PostgreSQL schema. None means the first schema in the connection's search path that contains the table."""


class OutboxRow(NamedTuple):
    """A message for an outbox, and the function that wakes the forwarder."""

    message: OutboxMessage
    table: OutboxTable
    wake: Callable[[], None]

    def check_dialect(self, dialect: str) -> None:
        """Reject a connection to another kind of database: the forwarder would never find the message there."""
        if dialect != self.table.dialect:
            raise InvalidInput(
                "connection",
                f"must be a connection to the {self.table.dialect} database of Doorstep, got one to {dialect}",
            )

    def statement(self, *placeholders: str) -> str:
        """The INSERT statement, with six placeholders in the style of the driver."""
        return _insert_text(self.table.schema, placeholders)

    def values(self) -> tuple[object, ...]:
        """The values of the row in the order of COLUMNS, with ids as the dialect stores them."""
        values = values_of(self.message)
        if self.table.dialect == POSTGRESQL:
            return values
        return tuple(value.bytes if isinstance(value, UUID) else value for value in values)


def insert_on(
    connection: object, message: OutboxMessage, table: OutboxTable, wake: Callable[[], None]
) -> Awaitable[None] | None:
    """Insert a message. Returns an awaitable if the connection is an asyncio connection."""
    insert = _INSERTS[family_of(connection).name]
    with _explained():
        inserting = insert(connection, OutboxRow(message, table, wake))
    return None if inserting is None else _finish(inserting)


async def _finish(inserting: Awaitable[None]) -> None:
    with _explained():
        await inserting


def values_of(message: OutboxMessage) -> tuple[object, ...]:
    """The values of a message in the order of COLUMNS."""
    return (
        message.event_id,
        message.org_id,
        message.event_type,
        message.payload,
        msgspec.json.encode(message.options).decode(),
        message.created_at,
    )


@lru_cache
def _insert_text(schema: str | None, placeholders: tuple[str, ...]) -> str:
    table = TABLE if schema is None else f'"{schema}".{TABLE}'
    return f"INSERT INTO {table} ({', '.join(COLUMNS)}) VALUES ({', '.join(placeholders)})"


# -- drivers -----------------------------------------------------------------------------------------------

_QMARK, _FORMAT, _NUMBERED = ("?",) * 6, ("%s",) * 6, ("$1", "$2", "$3", "$4", "$5", "$6")


def _checked(
    connection: Any, row: OutboxRow, dialect: str, placeholders: tuple[str, ...]
) -> tuple[str, tuple[Any, ...]]:
    """The statement and its values. Raises an error if the connection has the wrong dialect or no open transaction."""
    row.check_dialect(dialect)
    check_transaction(connection)
    return row.statement(*placeholders), row.values()


def _blocking(dialect: str, placeholders: tuple[str, ...], connection: Any, row: OutboxRow) -> None:
    connection.execute(*_checked(connection, row, dialect, placeholders))
    row.wake()


async def _aiosqlite(connection: Any, row: OutboxRow) -> None:
    async with connection.execute(*_checked(connection, row, SQLITE, _QMARK)):
        row.wake()


async def _psycopg_async(connection: Any, row: OutboxRow) -> None:
    await connection.execute(*_checked(connection, row, POSTGRESQL, _FORMAT))
    row.wake()


async def _asyncpg(connection: Any, row: OutboxRow) -> None:
    statement, values = _checked(connection, row, POSTGRESQL, _NUMBERED)
    await connection.execute(statement, *values)
    row.wake()


def _django(connection: Any, row: OutboxRow) -> None:
    """Insert on a Django connection, which must be inside `transaction.atomic` or have autocommit turned off."""
    statement, values = _checked(connection, row, connection.vendor, _FORMAT)
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
    if connection.in_atomic_block:
        connection.on_commit(row.wake, robust=True)  # runs after the outermost commit, and never after a rollback
    else:
        row.wake()


# -- SQLAlchemy --------------------------------------------------------------------------------------------

_WAKES = "doorstep_wakes"
"""The key in a session's `info` for the functions to call after a commit."""


def _sqlalchemy(connection: Connection, row: OutboxRow) -> None:
    """Insert a row, and wake the forwarder before the commit. Using the connection's commit event would not help,
    because it also fires before the commit."""
    _execute(connection, row)
    row.wake()


def _session(session: Session, row: OutboxRow) -> None:
    """Insert a row, and wake the forwarder after the commit. Sessions have an event that fires after a commit."""
    _execute(session.connection(), row)
    _wake_after_commit(session, row.wake)


async def _sqlalchemy_async(connection: AsyncConnection, row: OutboxRow) -> None:
    await connection.run_sync(_execute, row)
    row.wake()


async def _session_async(session: AsyncSession, row: OutboxRow) -> None:
    await session.run_sync(_session, row)


def _execute(connection: Connection, row: OutboxRow) -> None:
    row.check_dialect(connection.dialect.name)
    check_transaction(connection)
    connection.execute(_insert_statement(row.table.schema), dict(zip(COLUMNS, row.values(), strict=True)))


@lru_cache
def _insert_statement(schema: str | None) -> Insert:
    """An INSERT into a table declared without a primary key. With a primary key, SQLAlchemy would read the new key
    back, which needs a privilege that senders do not have."""
    from sqlalchemy import column, insert, table

    from doorstep.stores.sql.schema import outbox

    columns = [column(name, outbox.c[name].type) for name in COLUMNS]
    return insert(table(TABLE, *columns, schema=schema))


def _wake_after_commit(session: Session, wake: Callable[[], None]) -> None:
    """Call `wake` after every later commit of the session, not only the next one: SQLAlchemy also reports the release
    of a savepoint as a commit."""
    from sqlalchemy import event

    wakes = session.info.setdefault(_WAKES, set())
    if wake not in wakes:
        wakes.add(wake)
        event.listen(session, "after_commit", lambda _: wake())


_INSERTS: dict[str, Callable[[Any, OutboxRow], Awaitable[None] | None]] = {
    "sqlite3": partial(_blocking, SQLITE, _QMARK),
    "aiosqlite": _aiosqlite,
    "psycopg": partial(_blocking, POSTGRESQL, _FORMAT),
    "psycopg_async": _psycopg_async,
    "asyncpg": _asyncpg,
    "sqlalchemy_connection": _sqlalchemy,
    "sqlalchemy_session": _session,
    "sqlalchemy_scoped": lambda scoped, row: _session(scoped(), row),
    "sqlalchemy_async_connection": _sqlalchemy_async,
    "sqlalchemy_async_session": _session_async,
    "sqlalchemy_async_scoped": lambda scoped, row: _session_async(scoped(), row),
    "django": _django,
}
"""Insert functions by connection family (stores/app_connections.py)."""


# -- errors ------------------------------------------------------------------------------------------------

_UNDEFINED_TABLE, _INSUFFICIENT_PRIVILEGE = "42P01", "42501"
_NO_SUCH_TABLE = re.compile(rf"no such table: (\w+\.)?{TABLE}\b")


@contextmanager
def _explained() -> Iterator[None]:
    """Re-raise the driver's errors. If the table is missing or not writable, add a note that says what to do."""
    try:
        yield
    except Exception as error:
        if _is_inaccessible(error):
            error.add_note(
                f"to send an event on your own connection, Doorstep inserts a row into {TABLE}; the connection's"
                " role needs INSERT on this table; if it does not exist, run `doorstep migrate` on this database"
            )
        raise


def _is_inaccessible(error: Exception) -> bool:
    """Whether the table is missing or not writable. PostgreSQL has error codes, which do not depend on the server's
    language; SQLite has only messages."""
    for one in (error, getattr(error, "orig", None), error.__cause__):
        code = getattr(one, "sqlstate", None) or getattr(one, "pgcode", None)
        if code is not None:
            return code in (_UNDEFINED_TABLE, _INSUFFICIENT_PRIVILEGE)
    return _NO_SUCH_TABLE.search(str(error)) is not None
