"""Finds the family of a connection, and lets it insert."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from importlib import import_module

from doorstep.model.outbox import OutboxMessage
from doorstep.stores.foreign import family_of
from doorstep.stores.sql.posting.row import TABLE, Letter, Slot

_HOMES = {
    "sqlite3": "sqlite_connections.insert",
    "aiosqlite": "sqlite_connections.insert_async",
    "psycopg": "psycopg_connections.insert",
    "psycopg_async": "psycopg_connections.insert_async",
    "asyncpg": "asyncpg_connections.insert",
    "sqlalchemy_connection": "sqlalchemy_connections.insert",
    "sqlalchemy_session": "sqlalchemy_connections.insert_in_session",
    "sqlalchemy_scoped": "sqlalchemy_connections.insert_in_scoped_session",
    "sqlalchemy_async_connection": "sqlalchemy_connections.insert_async",
    "sqlalchemy_async_session": "sqlalchemy_connections.insert_in_async_session",
    "sqlalchemy_async_scoped": "sqlalchemy_connections.insert_in_async_scoped_session",
    "django": "django_connections.insert",
}
"""By family: the module, and its function of a connection and a letter."""

_NO_SUCH_TABLE, _NOT_ALLOWED = "42P01", "42501"
_NO_TABLE_OF_SQLITE = re.compile(rf"no such table: (\w+\.)?{TABLE}\b")

_found: dict[str, Callable[[object, Letter], Awaitable[None] | None]] = {}


def post_on(connection: object, posting: OutboxMessage, slot: Slot, wake: Callable[[], None]) -> Awaitable[None] | None:
    """Insert a posting; to be awaited if the connection is one for asyncio."""
    name = family_of(connection).name
    insert = _found.get(name)
    if insert is None:
        module, _, function = _HOMES[name].partition(".")
        insert = _found[name] = getattr(import_module(f"doorstep.stores.sql.posting.{module}"), function)
    with _noted():
        inserting = insert(connection, Letter(posting, slot, wake))
    return None if inserting is None else _finish(inserting)


async def _finish(inserting: Awaitable[None]) -> None:
    with _noted():
        await inserting


@contextmanager
def _noted() -> Iterator[None]:
    """Let the driver's own errors pass, and say what to do about a table that is missing or may not be written to."""
    try:
        yield
    except Exception as error:
        if _is_shut(error):
            error.add_note(
                f"{TABLE} is the table of Doorstep that events are sent through on your own connection: its role needs"
                " INSERT on it; if it is not there, run `doorstep migrate` on this very database"
            )
        raise


def _is_shut(error: Exception) -> bool:
    """As PostgreSQL's codes say it, in whatever language it words them; SQLite has only words."""
    for one in (error, getattr(error, "orig", None), error.__cause__):
        code = getattr(one, "sqlstate", None) or getattr(one, "pgcode", None)
        if code is not None:
            return code in (_NO_SUCH_TABLE, _NOT_ALLOWED)
    return _NO_TABLE_OF_SQLITE.search(str(error)) is not None
