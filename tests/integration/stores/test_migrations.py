"""Migrations on both databases: the migrated schema matches the code, and an outdated database is upgraded."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import create_engine, text

from doorstep.errors import ConfigError
from doorstep.stores.open import store_from_url
from doorstep.stores.sql import migrations
from doorstep.stores.sql.schema import metadata
from tests.support.builders import an_org
from tests.support.postgres_server import PostgresServer
from tests.support.shortcuts import put

REVISION = f"SELECT version_num FROM {migrations.VERSION_TABLE}"
NEXT_REVISION = """
revision = "0002"
down_revision = "0001"

def upgrade(op):
    op.execute("CREATE TABLE doorstep_next AS SELECT count(*) AS organizations FROM doorstep_orgs")
"""


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'doorstep.db'}"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    server.create_database("to_migrate")
    yield server.url("to_migrate")
    server.drop_database("to_migrate")


@pytest.fixture
def next_version(tmp_path: Path) -> Path:
    """The migrations folder of a later Doorstep version, which has one more revision."""
    folder = tmp_path / "migrations"
    shutil.copytree(migrations.FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "versions" / "0002_next.py").write_text(NEXT_REVISION)
    return folder


async def test_alembic_finds_nothing_to_change_after_a_migration(url: str) -> None:
    await store_from_url(url).migrate()
    engine = create_engine(_driven(url))
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": migrations.VERSION_TABLE})
        assert compare_metadata(context, metadata) == []
    engine.dispose()


async def test_a_database_that_is_behind_is_refused_until_it_is_migrated(
    url: str, next_version: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _with_an_organization(url)
    monkeypatch.setattr(migrations, "FOLDER", next_version)
    store = store_from_url(url)
    with pytest.raises(ConfigError, match="is at schema 0001, this version needs 0002; run `doorstep migrate`"):
        await store.open()
    await store.migrate()
    await store.open()
    await store.close()
    assert _read(url, "SELECT organizations FROM doorstep_next") == 1, "the new revision found the rows of before"
    assert _read(url, REVISION) == "0002"


async def test_a_database_that_a_newer_version_migrated_is_refused_and_left_alone(
    url: str, next_version: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as newer:
        newer.setattr(migrations, "FOLDER", next_version)
        await _with_an_organization(url)
    with pytest.raises(ConfigError, match="at schema 0002, which this version does not know.*newer Doorstep"):
        await store_from_url(url).open()
    assert _read(url, REVISION) == "0002"


async def _with_an_organization(url: str) -> None:
    store = store_from_url(url)
    await store.migrate()
    await store.open()
    await put(store, an_org())
    await store.close()


def _read(url: str, query: str) -> object:
    engine = create_engine(_driven(url))
    with engine.connect() as connection:
        found: object = connection.scalar(text(query))
    engine.dispose()
    return found


def _driven(url: str) -> str:
    """The URL in SQLAlchemy's form; on PostgreSQL, with the option that gives the engine access to all
    organizations."""
    if url.startswith("sqlite"):
        return url
    return f"{url.replace('postgresql://', 'postgresql+psycopg://')}?options=-cdoorstep.org%3D*"
