"""Connections of the program's own, in which it posts events: which kinds there are, told by the names of their classes.

Nothing is imported to find out, so a program needs no library that it does not use.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any, NamedTuple, Protocol

from doorstep.errors import InvalidInput


class Omitted(Enum):
    """What stands for a connection that was left out. Not None: so looks a session that was forgotten to be made."""

    CONNECTION = "connection"


class AsyncConnection(Protocol):
    """Told from a blocking connection by what its `execute` gives, for those who check types."""

    @property
    def execute(self) -> Callable[..., Awaitable[Any]]: ...


class Family(NamedTuple):
    """Connections that are treated alike."""

    name: str
    asynchronous: bool = False
    """Who posts on one awaits it."""


_FAMILIES = {
    "sqlite3.Connection": Family("sqlite3"),
    "aiosqlite.Connection": Family("aiosqlite", asynchronous=True),
    "psycopg.Connection": Family("psycopg"),
    "psycopg.AsyncConnection": Family("psycopg_async", asynchronous=True),
    "asyncpg.Connection": Family("asyncpg", asynchronous=True),
    "asyncpg.PoolConnectionProxy": Family("asyncpg", asynchronous=True),
    "sqlalchemy.Connection": Family("sqlalchemy_connection"),
    "sqlalchemy.Session": Family("sqlalchemy_session"),
    "sqlalchemy.scoped_session": Family("sqlalchemy_scoped"),
    "sqlalchemy.AsyncConnection": Family("sqlalchemy_async_connection", asynchronous=True),
    "sqlalchemy.AsyncSession": Family("sqlalchemy_async_session", asynchronous=True),
    "sqlalchemy.async_scoped_session": Family("sqlalchemy_async_scoped", asynchronous=True),
    "django.BaseDatabaseWrapper": Family("django"),
    "django.ConnectionProxy": Family("django"),
}
"""By library and class; subclasses count too (SQLModel's session is one of SQLAlchemy's)."""


def family_of(connection: object) -> Family:
    """The family that a connection belongs to; InvalidInput for anything else."""
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
