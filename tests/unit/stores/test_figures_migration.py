"""An installation of before begins to count with what it has."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

from doorstep.model.delivery import DeliveryState
from doorstep.stores.sql import migrations
from doorstep.stores.sql.sqlite.store import SqliteStore
from tests.builders import a_submission
from tests.contract.scene import Scene
from tests.recounting import LEVELS, all_events, recount


async def test_the_levels_of_an_upgraded_file_are_those_of_its_rows(tmp_path: Path) -> None:
    lived, old = str(tmp_path / "lived.db"), str(tmp_path / "old.db")
    scene = await _live(SqliteStore(lived))
    _migrate_to("0001", old)
    _copy(lived, old)
    store = SqliteStore(old)
    await store.migrate()
    await store.open()
    counted = await recount(store, scene.org_id, await all_events(store, scene.org_id))
    owners = [owner for owner in counted if owner is not None]
    found = {**await store.levels(scene.org_id, owners), None: await store.totals(scene.org_id)}
    for owner, right in counted.items():
        assert [getattr(found[owner], name) for name in LEVELS] == [getattr(right, name) for name in LEVELS]
    assert any(getattr(found[None], name) for name in LEVELS) and found[None].created == 0
    await store.close()


_FIRST_MARKS = ("routing", "events", "deliveries", "outbox")


async def _live(store: SqliteStore) -> Scene:
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


def _migrate_to(revision: str, path: str) -> None:
    scripts = ScriptDirectory(str(Path(migrations.__file__).parent))
    steps = {"version_table": migrations.VERSION_TABLE, "fn": lambda at, _: scripts._upgrade_revs(revision, at)}
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        context = MigrationContext.configure(connection, opts=steps)
        context.run_migrations(op=Operations(context))
    engine.dispose()


def _copy(source: str, target: str) -> None:
    """The rows of all tables that both files have, as far as they have the same columns."""
    with closing(sqlite3.connect(target)) as connection:
        connection.execute("ATTACH ? AS source", (source,))
        names = "SELECT name FROM {}.sqlite_master WHERE type = 'table' AND name <> ?"
        tables = connection.execute(names.format("main"), (migrations.VERSION_TABLE,)).fetchall()
        for (table,) in tables:
            columns = ", ".join(row[1] for row in connection.execute(f"PRAGMA main.table_info({table})"))
            connection.execute(f"INSERT OR REPLACE INTO main.{table} ({columns}) SELECT {columns} FROM source.{table}")
        connection.execute(f"DELETE FROM main.doorstep_marks WHERE name NOT IN {_FIRST_MARKS}")
        connection.commit()
