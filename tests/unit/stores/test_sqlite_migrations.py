"""The schema of a SQLite file: how it is created, and which files are refused."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

from doorstep.errors import ConfigError, StoreUnavailable
from doorstep.stores.sql import migrations
from doorstep.stores.sql.ddl import outbox_trigger_ddl, trigger_ddl
from doorstep.stores.sql.migrations import VERSION_TABLE, head
from doorstep.stores.sql.schema import VARIABLES, metadata
from doorstep.stores.sql.sqlite.store import SqliteStore
from tests.support.shortcuts import living_endpoints, routing_versions


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "doorstep.db")


def definitions(path: str) -> dict[str, str]:
    """Every table, index and trigger of a file as SQL with normalized spacing."""
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    connection.close()
    return {name: _parts(sql) for name, sql in rows if name != VERSION_TABLE}


def _parts(sql: str) -> str:
    """The definition with its columns and constraints sorted, since their order does not matter."""
    words = " ".join(sql.split())
    head, _, body = words.partition("(")
    return f"{head}({' , '.join(sorted(part.strip(' )') for part in body.split(', ')))}"


async def test_the_migrated_schema_is_exactly_the_one_that_the_code_describes(path: str, tmp_path: Path) -> None:
    await SqliteStore(path).migrate()
    described = str(tmp_path / "described.db")
    engine = create_engine(f"sqlite:///{described}")
    with engine.begin() as connection:
        metadata.create_all(connection)
        for statement in [*trigger_ddl("sqlite"), *outbox_trigger_ddl()]:
            connection.exec_driver_sql(statement)
    engine.dispose()
    assert definitions(path) == definitions(described)


async def test_the_marks_are_there_after_a_migration(path: str) -> None:
    await SqliteStore(path).migrate()
    connection = sqlite3.connect(path)
    assert dict(connection.execute("SELECT name, value FROM doorstep_variables")) == dict.fromkeys(VARIABLES, 0)
    connection.close()


async def test_migrating_again_changes_nothing(path: str) -> None:
    store = SqliteStore(path)
    await store.migrate()
    before = definitions(path)
    await store.migrate()
    assert definitions(path) == before


async def test_stores_that_migrate_at_once_wait_for_each_other(path: str) -> None:
    await asyncio.gather(*(SqliteStore(path).migrate() for _ in range(4)))
    store = SqliteStore(path)
    await store.open()
    assert await routing_versions(store) == {}
    await store.close()


async def test_a_file_without_our_tables_is_refused_with_the_command_to_run(path: str) -> None:
    with pytest.raises(ConfigError, match="run `doorstep migrate`"):
        await SqliteStore(path).open()
    assert not Path(path).exists()


async def test_a_schema_that_is_ahead_is_refused(path: str) -> None:
    await _at_revision(path, "9999")
    with pytest.raises(ConfigError, match=f"9999.*needs {head()}.*newer Doorstep"):
        await SqliteStore(path).open()


async def test_an_empty_database_is_behind(path: str) -> None:
    sqlite3.connect(path).close()
    Path(path).touch()
    with pytest.raises(ConfigError, match="no Doorstep tables"):
        await SqliteStore(path).open()


async def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        await SqliteStore(str(tmp_path / "nowhere" / "doorstep.db")).migrate()


async def test_a_file_that_is_no_database_is_unavailable(path: str) -> None:
    Path(path).write_bytes(b"this is a letter, not a database. " * 200)
    with pytest.raises(StoreUnavailable, match="not a database"):
        await SqliteStore(path).migrate()


async def test_the_tables_can_live_beside_those_of_the_program_that_embeds_us(path: str) -> None:
    connection = sqlite3.connect(path)
    for name in ("events", "keys", "audit", "alembic_version"):
        connection.execute(f"CREATE TABLE {name} (theirs TEXT)")
    connection.commit()
    connection.close()
    store = SqliteStore(path)
    await store.migrate()
    await store.open()
    assert await living_endpoints(store) == []
    await store.close()


async def _at_revision(path: str, revision: str) -> None:
    await SqliteStore(path).migrate()
    connection = sqlite3.connect(path)
    connection.execute(f"UPDATE {VERSION_TABLE} SET version_num = ?", (revision,))
    connection.commit()
    connection.close()


def test_the_revisions_that_are_known_by_the_names_of_their_files_are_those_that_alembic_knows() -> None:
    scripts = ScriptDirectory(str(Path(migrations.__file__).parent))
    assert [script.revision for script in scripts.walk_revisions()] == list(reversed(migrations.revisions()))
    assert scripts.get_current_head() == head()
