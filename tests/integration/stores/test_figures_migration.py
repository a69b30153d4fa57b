"""An installation of before begins to count with what it has."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from doorstep.model.delivery import DeliveryState
from doorstep.stores.sql import migrations
from doorstep.stores.sql.postgres import PostgresStore
from doorstep.stores.sql.sqlite.store import SqliteStore
from doorstep.stores.store import Store
from tests.contract.scene import Scene
from tests.support.builders import a_submission
from tests.support.postgres_server import PostgresServer
from tests.support.recounting import LEVELS, all_events, recount
from tests.unit.stores.old_databases import driven, migrate_to


async def test_the_levels_of_an_upgraded_file_are_those_of_its_rows(tmp_path: Path) -> None:
    lived, old = str(tmp_path / "lived.db"), str(tmp_path / "old.db")
    scene = await _live(SqliteStore(lived))
    migrate_to("0001", f"sqlite:///{old}")
    _copy_file(lived, old)
    await _upgraded_counts_what_there_is(SqliteStore(old), scene)


async def test_the_levels_of_an_upgraded_postgres_database_are_those_of_its_rows(
    postgres_server: PostgresServer, postgres_url: str, old_database: str
) -> None:
    scene = await _live(PostgresStore(postgres_url))
    migrate_to("0001", driven(postgres_server.url(old_database)))
    lived = postgres_url.rpartition("/")[2]
    _copy_database(*(postgres_server.url(name, role="postgres") for name in (lived, old_database)))
    await _upgraded_counts_what_there_is(PostgresStore(postgres_server.url(old_database)), scene)


@pytest.fixture
def old_database(postgres_server: PostgresServer) -> Iterator[str]:
    postgres_server.create_database("of_before")
    yield "of_before"
    postgres_server.drop_database("of_before")


async def _upgraded_counts_what_there_is(store: SqliteStore | PostgresStore, scene: Scene) -> None:
    await store.migrate()
    await store.open()
    try:
        await _check_levels(store, scene)
        await store.fold(scene.now, 1_000)
        await _check_levels(store, scene)
    finally:
        await store.close()


async def _check_levels(store: Store, scene: Scene) -> None:
    counted = await recount(store, scene.org_id, await all_events(store, scene.org_id))
    owners = [owner for owner in counted if owner is not None]
    found = {**await store.levels(scene.org_id, owners), None: await store.totals(scene.org_id)}
    for owner, right in counted.items():
        assert [getattr(found[owner], name) for name in LEVELS] == [getattr(right, name) for name in LEVELS]
    assert any(getattr(found[None], name) for name in LEVELS) and found[None].created == 0
    assert await store.totals() == found[None]


_FIRST_MARKS = ("routing", "events", "deliveries", "outbox")


async def _live(store: SqliteStore | PostgresStore) -> Scene:
    """A delivery in every state, an event of the inbox and one that was deleted."""
    await store.migrate()
    await store.open()
    scene = await Scene(store).prepare()
    for state in DeliveryState:
        await scene.in_state(state)
    await scene.submit(a_submission(scene.org_id))
    (gone,) = await scene.accept()
    await store.delete_event(scene.org_id, gone.event.event_id, "ops", scene.now)
    await store.close()
    return scene


# Both copy the rows of all tables that the old database has, as far as these have the same columns.


def _copy_file(source: str, target: str) -> None:
    with closing(sqlite3.connect(target)) as connection:
        connection.execute("ATTACH ? AS source", (source,))
        names = "SELECT name FROM {}.sqlite_master WHERE type = 'table' AND name <> ?"
        tables = connection.execute(names.format("main"), (migrations.VERSION_TABLE,)).fetchall()
        for (table,) in tables:
            columns = ", ".join(row[1] for row in connection.execute(f"PRAGMA main.table_info({table})"))
            connection.execute(f"INSERT OR REPLACE INTO main.{table} ({columns}) SELECT {columns} FROM source.{table}")
        connection.execute(f"DELETE FROM main.doorstep_marks WHERE name NOT IN {_FIRST_MARKS}")
        connection.commit()


def _copy_database(source: str, target: str) -> None:
    with psycopg.connect(source) as lived, psycopg.connect(target) as old:
        old.execute("SET session_replication_role = replica")
        named = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> %s"
        for (name,) in old.execute(named, (migrations.VERSION_TABLE,)).fetchall():
            described = old.execute(sql.SQL("SELECT * FROM {} LIMIT 0").format(sql.Identifier(name))).description or []
            table, columns = sql.Identifier(name), sql.SQL(", ").join(sql.Identifier(one.name) for one in described)
            old.execute(sql.SQL("DELETE FROM {}").format(table))
            rows = lived.execute(sql.SQL("SELECT {} FROM {}").format(columns, table)).fetchall()
            with old.cursor().copy(sql.SQL("COPY {} ({}) FROM STDIN").format(table, columns)) as copied:
                for row in rows:
                    copied.write_row(row)
        old.execute("DELETE FROM doorstep_marks WHERE name <> ALL(%s)", (list(_FIRST_MARKS),))
