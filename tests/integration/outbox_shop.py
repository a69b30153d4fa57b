"""A shop program with its own tables in the database that it shares with Doorstep, using each kind of connection.

Each way of writing creates an order and sends its event in one transaction. The transaction ends as the caller asks:
"commit", "rollback", or "savepoint". With "savepoint", the order and its event are rolled back to a savepoint, and
another order is committed.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from typing import Any

import aiosqlite
import asyncpg
import psycopg
from pydantic import SecretStr
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from doorstep import Doorstep, Received, Settings
from tests.support.patience import PATIENCE_SECONDS

SECRET = "4qBnEXcwcHNkBPlZV3JKmUQz5yjhFqJEbY9LxnLIGoQ="
ORDERS = "CREATE TABLE orders (id TEXT PRIMARY KEY)"
ADD = "INSERT INTO orders VALUES ('{order}')"


Way = Callable[[Doorstep, str, str, str], Awaitable[None]]
"""Takes a Doorstep, the database URL, an order id, and how the transaction ends."""


@asynccontextmanager
async def running(url: str, database_url: str | None = None) -> AsyncIterator[tuple[Doorstep, list[str]]]:
    """A running Doorstep whose database also has the shop's table, and the orders whose events have arrived so far."""
    arrived: list[str] = []
    ds = Doorstep(Settings(database_url=database_url or url, secret_key=SecretStr(SECRET)))

    @ds.handler("order.*")
    async def take(event: Received) -> None:
        arrived.append(event.json()["order"])

    async with ds:
        await execute(url, ORDERS)
        yield ds, arrived


async def until_forwarded(ds: Doorstep, arrived: list[str], count: int) -> None:
    """Wait until this many events have arrived and the outbox is empty."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(arrived) < count or await ds.components.store.outbox(1):
            await asyncio.sleep(0.002)


async def execute(url: str, statement: str) -> list[str]:
    """Run a statement on a connection outside Doorstep and return the first column of its result."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as file:
            return [row[0] for row in file.execute(statement)]
    connection = await asyncpg.connect(url)
    try:
        return [row[0] for row in await connection.fetch(statement)]
    finally:
        await connection.close()


# -- blocking connections ----------------------------------------------------------------------------------


async def sqlite3_connection(ds: Doorstep, url: str, order: str, ending: str) -> None:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        if ending == "savepoint":
            connection.execute("BEGIN")
            connection.execute("SAVEPOINT part")
            _order(ds, connection, f"{order}-undone")
            connection.execute("ROLLBACK TO part")
        _order(ds, connection, order)
        connection.rollback() if ending == "rollback" else connection.commit()


async def psycopg_connection(ds: Doorstep, url: str, order: str, ending: str) -> None:
    with closing(psycopg.connect(url)) as connection:
        if ending == "savepoint":
            connection.execute("SAVEPOINT part")
            _order(ds, connection, f"{order}-undone")
            connection.execute("ROLLBACK TO part")
        _order(ds, connection, order)
        connection.rollback() if ending == "rollback" else connection.commit()


async def sqlalchemy_connection(ds: Doorstep, url: str, order: str, ending: str) -> None:
    engine = create_engine(_for_sqlalchemy(url))
    with engine.connect() as connection:
        if ending == "savepoint":
            with connection.begin_nested() as part:
                _order(ds, connection, f"{order}-undone", text)
                part.rollback()
        _order(ds, connection, order, text)
        connection.rollback() if ending == "rollback" else connection.commit()
    engine.dispose()


async def sqlalchemy_session(ds: Doorstep, url: str, order: str, ending: str) -> None:
    engine = create_engine(_for_sqlalchemy(url))
    with Session(engine) as session:
        _in_session(ds, session, order, ending)
    engine.dispose()


async def sqlalchemy_scoped_session(ds: Doorstep, url: str, order: str, ending: str) -> None:
    engine = create_engine(_for_sqlalchemy(url))
    session = scoped_session(sessionmaker(engine))
    _in_session(ds, session, order, ending)
    session.remove()
    engine.dispose()


def _in_session(ds: Doorstep, session: Session | scoped_session[Session], order: str, ending: str) -> None:
    if ending == "savepoint":
        with session.begin_nested() as part:
            _order(ds, session, f"{order}-undone", text)
            part.rollback()
    _order(ds, session, order, text)
    session.rollback() if ending == "rollback" else session.commit()


def _order(ds: Doorstep, connection: Any, order: str, worded: Callable[[str], object] = str) -> None:
    connection.execute(worded(ADD.format(order=order)))
    ds.send_sync("order.paid", {"order": order}, connection=connection)


# -- asyncio connections -----------------------------------------------------------------------------------


async def aiosqlite_connection(ds: Doorstep, url: str, order: str, ending: str) -> None:
    async with aiosqlite.connect(url.removeprefix("sqlite:///")) as connection:
        if ending == "savepoint":
            await connection.execute("BEGIN")
            await connection.execute("SAVEPOINT part")
            await _order_async(ds, connection, f"{order}-undone")
            await connection.execute("ROLLBACK TO part")
        await _order_async(ds, connection, order)
        await (connection.rollback() if ending == "rollback" else connection.commit())


async def psycopg_async_connection(ds: Doorstep, url: str, order: str, ending: str) -> None:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        if ending == "savepoint":
            async with connection.transaction(force_rollback=True):
                await _order_async(ds, connection, f"{order}-undone")
        await _order_async(ds, connection, order)
        if ending == "rollback":
            await connection.rollback()


async def asyncpg_connection(ds: Doorstep, url: str, order: str, ending: str) -> None:
    connection = await asyncpg.connect(url)
    await _in_asyncpg(ds, connection, order, ending)
    await connection.close()


async def asyncpg_pooled_connection(ds: Doorstep, url: str, order: str, ending: str) -> None:
    async with asyncpg.create_pool(url, min_size=1) as pool, pool.acquire() as connection:
        await _in_asyncpg(ds, connection, order, ending)


async def _in_asyncpg(ds: Doorstep, connection: Any, order: str, ending: str) -> None:
    whole = connection.transaction()
    await whole.start()
    if ending == "savepoint":
        part = connection.transaction()
        await part.start()
        await _order_async(ds, connection, f"{order}-undone")
        await part.rollback()
    await _order_async(ds, connection, order)
    await (whole.rollback() if ending == "rollback" else whole.commit())


async def sqlalchemy_async_connection(ds: Doorstep, url: str, order: str, ending: str) -> None:
    engine = create_async_engine(_for_async_sqlalchemy(url))
    async with engine.connect() as connection:
        if ending == "savepoint":
            async with connection.begin_nested() as part:
                await _order_async(ds, connection, f"{order}-undone", text)
                await part.rollback()
        await _order_async(ds, connection, order, text)
        await (connection.rollback() if ending == "rollback" else connection.commit())
    await engine.dispose()


async def sqlalchemy_async_session(ds: Doorstep, url: str, order: str, ending: str) -> None:
    engine = create_async_engine(_for_async_sqlalchemy(url))
    async with AsyncSession(engine) as session:
        await _in_async_session(ds, session, order, ending)
    await engine.dispose()


async def sqlalchemy_async_scoped_session(ds: Doorstep, url: str, order: str, ending: str) -> None:
    engine = create_async_engine(_for_async_sqlalchemy(url))
    session = async_scoped_session(async_sessionmaker(engine), scopefunc=lambda: 1)
    await _in_async_session(ds, session, order, ending)
    await session.remove()
    await engine.dispose()


async def _in_async_session(ds: Doorstep, session: Any, order: str, ending: str) -> None:
    if ending == "savepoint":
        async with session.begin_nested() as part:
            await _order_async(ds, session, f"{order}-undone", text)
            await part.rollback()
    await _order_async(ds, session, order, text)
    await (session.rollback() if ending == "rollback" else session.commit())


async def _order_async(ds: Doorstep, connection: Any, order: str, worded: Callable[[str], object] = str) -> None:
    await connection.execute(worded(ADD.format(order=order)))
    await ds.send("order.paid", {"order": order}, connection=connection)


def _for_sqlalchemy(url: str) -> str:
    return url.replace("postgresql:", "postgresql+psycopg:")


def _for_async_sqlalchemy(url: str) -> str:
    return url.replace("postgresql:", "postgresql+asyncpg:").replace("sqlite:", "sqlite+aiosqlite:")


WAYS: dict[str, list[Way]] = {
    "sqlite": [
        sqlite3_connection,
        aiosqlite_connection,
        sqlalchemy_connection,
        sqlalchemy_session,
        sqlalchemy_scoped_session,
        sqlalchemy_async_connection,
        sqlalchemy_async_session,
        sqlalchemy_async_scoped_session,
    ],
    "postgres": [
        psycopg_connection,
        psycopg_async_connection,
        asyncpg_connection,
        asyncpg_pooled_connection,
        sqlalchemy_connection,
        sqlalchemy_session,
        sqlalchemy_scoped_session,
        sqlalchemy_async_connection,
        sqlalchemy_async_session,
        sqlalchemy_async_scoped_session,
    ],
}
