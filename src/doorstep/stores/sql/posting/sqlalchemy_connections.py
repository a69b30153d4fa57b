"""Connections and sessions of SQLAlchemy, blocking and asyncio ones.

A session tells when it has committed. A connection does not (its event comes before), so there it is said too early.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any

from sqlalchemy import Insert, column, event, table
from sqlalchemy import insert as insert_into
from sqlalchemy.engine import Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

from doorstep.stores.sql.posting.row import COLUMNS, TABLE, Letter
from doorstep.stores.sql.schema import outbox
from doorstep.stores.transactions import check_transaction

_WAKES = "doorstep_wakes"
"""Under this name a session remembers whom it wakes."""


def insert(connection: Connection, letter: Letter) -> None:
    _insert(connection, letter)
    letter.wake()


def insert_in_session(session: Session, letter: Letter) -> None:
    _insert(session.connection(), letter)
    _wake_after_commit(session, letter.wake)


def insert_in_scoped_session(scoped: Any, letter: Letter) -> None:
    insert_in_session(scoped(), letter)


async def insert_async(connection: AsyncConnection, letter: Letter) -> None:
    await connection.run_sync(_insert, letter)
    letter.wake()


async def insert_in_async_session(session: AsyncSession, letter: Letter) -> None:
    await session.run_sync(insert_in_session, letter)


def insert_in_async_scoped_session(scoped: Any, letter: Letter) -> Awaitable[None]:
    return insert_in_async_session(scoped(), letter)


def _insert(connection: Connection, letter: Letter) -> None:
    letter.check_dialect(connection.dialect.name)
    check_transaction(connection)
    row = dict(zip(COLUMNS, letter.values(), strict=True))
    connection.execute(_statement(letter.slot.schema), row)


@lru_cache
def _statement(schema: str | None) -> Insert:
    """Into a table without a known primary key: else SQLAlchemy would ask for the new key, which a sender may not see."""
    columns = [column(name, outbox.c[name].type) for name in COLUMNS]
    return insert_into(table(TABLE, *columns, schema=schema))


def _wake_after_commit(session: Session, wake: Callable[[], None]) -> None:
    """At each commit of the session from now on, because a savepoint's counts as one to SQLAlchemy."""
    wakes = session.info.setdefault(_WAKES, set())
    if wake not in wakes:
        wakes.add(wake)
        event.listen(session, "after_commit", lambda _: wake())
