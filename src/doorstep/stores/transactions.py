"""Whether a connection of the program's own is in a transaction, so that what is posted on it can be taken back.

Asked of the connection just before the insert; of SQLAlchemy's also of the driver beneath, which may commit each
statement whatever SQLAlchemy believes. As in foreign.py, nothing is imported to find out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from doorstep.errors import InvalidInput
from doorstep.stores.foreign import family_of

_IDLE = 0
"""What libpq calls a connection that is in no transaction."""


def check_transaction(connection: Any) -> None:
    """InvalidInput for a blocking connection or session (or asyncpg's) on which each statement is committed by itself."""
    if _COMMITS_EACH[family_of(connection).name](connection):
        raise InvalidInput(
            "connection",
            "must be in a transaction, or the event would be there without it; begin one, or send without a connection",
        )


async def check_transaction_async(connection: Any) -> None:
    """The same for one of asyncio."""
    name = family_of(connection).name
    if name == "sqlalchemy_async_scoped":
        connection = connection()
    if name.startswith("sqlalchemy"):
        await connection.run_sync(check_transaction)
    else:
        check_transaction(connection)


def _sqlite(connection: Any) -> bool:
    """In most modes the insert itself begins a transaction, where none has been."""
    by_itself = connection.isolation_level is None or getattr(connection, "autocommit", None) is True
    return by_itself and not connection.in_transaction


def _psycopg(connection: Any) -> bool:
    """Unless it commits each statement by itself, the insert begins a transaction where none has been."""
    return bool(connection.autocommit) and connection.info.transaction_status == _IDLE


def _asyncpg(connection: Any) -> bool:
    return not connection.is_in_transaction()


def _django(connection: Any) -> bool:
    return bool(connection.get_autocommit())


def _sqlalchemy(connection: Any) -> bool:
    """As it was told to, by option or when its engine was made; or as its driver was, unless the program begins by
    itself when SQLAlchemy says so, as is advised for SQLite: hence it must have begun."""
    of_engine = getattr(connection.dialect, "_on_connect_isolation_level", None)
    if connection.get_execution_options().get("isolation_level", of_engine) == "AUTOCOMMIT":
        return True
    if not connection.in_transaction():
        connection.begin()
    return _driver_commits_each(connection.connection.driver_connection)


def _driver_commits_each(driver: Any) -> bool:
    if hasattr(driver, "in_transaction"):  # sqlite3, aiosqlite
        return _sqlite(driver)
    return hasattr(driver, "autocommit") and hasattr(driver, "info") and _psycopg(driver)


def _session(session: Any) -> bool:
    return _sqlalchemy(session.connection())


def _scoped(scoped: Any) -> bool:
    return _session(scoped())


_COMMITS_EACH: dict[str, Callable[[Any], bool]] = {
    "sqlite3": _sqlite,
    "aiosqlite": _sqlite,
    "psycopg": _psycopg,
    "psycopg_async": _psycopg,
    "asyncpg": _asyncpg,
    "sqlalchemy_connection": _sqlalchemy,
    "sqlalchemy_session": _session,
    "sqlalchemy_scoped": _scoped,
    "django": _django,
}
"""By family; SQLAlchemy's asyncio ones are asked through their blocking half."""
