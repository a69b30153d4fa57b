"""The application's own database connections, which it can use to send events through the outbox. This module
recognizes the supported kinds and checks that a connection is in a transaction, so that a rollback also undoes the
event.

The kind of a connection is recognized by its class name. No database library is imported, so an application needs only
the libraries that it uses.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

from doorstep.errors import InvalidInput


class Omitted(Enum):
    """The default value of `connection`. The default is not None, because a program that forgot to create a session may
    pass None by mistake."""

    CONNECTION = "connection"


def family_of(connection: object) -> Family:
    """The family of a connection; InvalidInput if the object is not a supported connection."""
    for one in type(connection).__mro__:
        family = _FAMILIES.get(f"{one.__module__.partition('.')[0]}.{one.__name__}")
        if family is not None:
            return family
    kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
    if connection is None:
        kind = "None; leave it out to send without one"
    raise InvalidInput(
        "connection",
        "must be a connection of sqlite3, aiosqlite, psycopg, asyncpg or Django, or a connection or session of"
        f" SQLAlchemy, got {kind}",
    )


def check_transaction(connection: Any) -> None:
    """Raise InvalidInput if an insert on this connection would be committed immediately. `connection` is a blocking
    connection or session, or an asyncpg connection.

    Called just before the insert. With SQLAlchemy, the driver's connection is checked too, because it may be in
    autocommit mode even if SQLAlchemy is not.
    """
    if family_of(connection).autocommits(connection):
        raise InvalidInput(
            "connection",
            "must be in a transaction, or the event would be sent even if your change is rolled back; begin one, or"
            " send without a connection",
        )


async def check_transaction_async(connection: Any) -> None:
    """Like `check_transaction`, for an asyncio connection or session."""
    name = family_of(connection).name
    if name == "sqlalchemy_async_scoped":
        connection = connection()
    if name.startswith("sqlalchemy"):
        await connection.run_sync(check_transaction)
    else:
        check_transaction(connection)


# -- families ----------------------------------------------------------------------------------------------


class Family(NamedTuple):
    """A family of connection classes that are handled in the same way."""

    name: str
    autocommits: Callable[[Any], bool]
    """Whether an insert on the connection would be committed immediately."""
    asynchronous: bool = False
    """Whether its methods must be awaited."""


def _sqlite(connection: Any) -> bool:
    """Without autocommit, the insert itself begins a transaction if none is open."""
    autocommit = connection.isolation_level is None or getattr(connection, "autocommit", None) is True
    return autocommit and not connection.in_transaction


_IDLE = 0
"""libpq's status of a connection that is not in a transaction."""


def _psycopg(connection: Any) -> bool:
    """Without autocommit, the insert begins a transaction if none is open."""
    return bool(connection.autocommit) and connection.info.transaction_status == _IDLE


def _asyncpg(connection: Any) -> bool:
    return not connection.is_in_transaction()


def _django(connection: Any) -> bool:
    return bool(connection.get_autocommit())


def _sqlalchemy(connection: Any) -> bool:
    """Autocommit can be set as an execution option, on the engine, or on the driver's connection. Some programs begin
    the driver's transaction in a SQLAlchemy event hook, as recommended for SQLite. So this function first begins a
    SQLAlchemy transaction, which runs the hook, and then checks the driver."""
    of_engine = getattr(connection.dialect, "_on_connect_isolation_level", None)
    if connection.get_execution_options().get("isolation_level", of_engine) == "AUTOCOMMIT":
        return True
    if not connection.in_transaction():
        connection.begin()
    driver = connection.connection.driver_connection
    if hasattr(driver, "in_transaction"):  # sqlite3, aiosqlite
        return _sqlite(driver)
    return hasattr(driver, "autocommit") and hasattr(driver, "info") and _psycopg(driver)


def _session(session: Any) -> bool:
    return _sqlalchemy(session.connection())


_FAMILIES = {
    "sqlite3.Connection": Family("sqlite3", _sqlite),
    "aiosqlite.Connection": Family("aiosqlite", _sqlite, asynchronous=True),
    "psycopg.Connection": Family("psycopg", _psycopg),
    "psycopg.AsyncConnection": Family("psycopg_async", _psycopg, asynchronous=True),
    "asyncpg.Connection": Family("asyncpg", _asyncpg, asynchronous=True),
    "asyncpg.PoolConnectionProxy": Family("asyncpg", _asyncpg, asynchronous=True),
    "sqlalchemy.Connection": Family("sqlalchemy_connection", _sqlalchemy),
    "sqlalchemy.Session": Family("sqlalchemy_session", _session),
    "sqlalchemy.scoped_session": Family("sqlalchemy_scoped", lambda scoped: _session(scoped())),
    "sqlalchemy.AsyncConnection": Family("sqlalchemy_async_connection", _sqlalchemy, asynchronous=True),
    "sqlalchemy.AsyncSession": Family("sqlalchemy_async_session", _session, asynchronous=True),
    "sqlalchemy.async_scoped_session": Family("sqlalchemy_async_scoped", _session, asynchronous=True),
    "django.BaseDatabaseWrapper": Family("django", _django),
    "django.ConnectionProxy": Family("django", _django),
}
"""Families by library and class. Subclasses are recognized too: SQLModel's session is a subclass of SQLAlchemy's.
SQLAlchemy's asyncio connections and sessions are checked through their blocking counterparts."""
