"""Emptying the PostgreSQL database that most tests share leaves nothing from one test for the next."""

from __future__ import annotations

import asyncpg
import pytest

from doorstep.stores.sql.postgres import PostgresStore
from tests.contract.scene import Scene
from tests.support.fixtures_postgres import EmptiedDatabase
from tests.support.postgres_server import PostgresServer

_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
_NUMBERS = "SELECT sequencename, last_value FROM pg_sequences ORDER BY sequencename"


async def test_an_emptied_database_holds_exactly_what_a_fresh_one_does(
    postgres_server: PostgresServer, emptied_database: EmptiedDatabase, postgres_url: str
) -> None:
    await _use(emptied_database.url)
    used = _contents(postgres_server, emptied_database.url)
    emptied_database.empty()
    fresh = _contents(postgres_server, postgres_url)
    assert used != fresh, "otherwise there was nothing to empty"
    assert _contents(postgres_server, emptied_database.url) == fresh


async def test_a_session_that_a_test_left_behind_is_ended(emptied_database: EmptiedDatabase) -> None:
    left = await asyncpg.connect(emptied_database.url)
    await left.execute("BEGIN; LOCK TABLE doorstep_deliveries")
    emptied_database.empty()
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, ConnectionError)):
        await left.execute("COMMIT")


async def _use(url: str) -> None:
    store = PostgresStore(url)
    await store.open()
    scene = await Scene(store).prepare()
    await scene.accept(3)
    first, second, _ = await scene.claim()
    await scene.deliver(first)
    await scene.fail(second)
    await store.close()


def _contents(server: PostgresServer, url: str) -> dict[str, str]:
    """The rows of every table, and the current value of every sequence."""
    database = url.rsplit("/", 1)[1]
    tables = server.sql(_TABLES, database=database).split()
    statements = {name: f"SELECT * FROM {name} ORDER BY 1" for name in tables} | {"numbers": _NUMBERS}
    return {name: server.sql(statement, database=database) for name, statement in statements.items()}
