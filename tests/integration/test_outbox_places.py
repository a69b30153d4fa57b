"""Doorstep's tables live in the application's own database: beside its tables, its migrations and its roles."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from textwrap import dedent
from urllib.parse import urlsplit

import asyncpg
import psycopg
import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine, inspect
from sqlalchemy.orm import Session

from doorstep import Doorstep
from doorstep.errors import ConfigError
from doorstep.stores.open import store_from_url
from tests.integration import outbox_shop as shop
from tests.support.postgres_server import PostgresServer

# -- roles -------------------------------------------------------------------------------------------------

SENDER = "shop_sender"


@pytest.fixture
def sender_url(postgres_url: str, postgres_server: PostgresServer) -> str:
    """The database URL for a role that may only insert into the outbox."""
    database = urlsplit(postgres_url).path[1:]
    postgres_server.sql(f"DO $$ BEGIN CREATE ROLE {SENDER} LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
    postgres_server.sql(f"GRANT INSERT ON doorstep_outbox TO {SENDER}", database=database)
    return postgres_server.url(database, role=SENDER)


async def test_a_role_with_nothing_but_insert_on_one_table_can_send_on_every_driver(
    postgres_url: str, sender_url: str
) -> None:
    async with shop.running(postgres_url) as (ds, arrived):
        with psycopg.connect(sender_url) as connection:
            ds.send_sync("order.paid", {"order": "psycopg"}, connection=connection)
        plain = await asyncpg.connect(sender_url)
        async with plain.transaction():
            await ds.send("order.paid", {"order": "asyncpg"}, connection=plain)
        await plain.close()
        engine = create_engine(sender_url.replace("postgresql:", "postgresql+psycopg:"))
        with Session(engine) as session, session.begin():
            ds.send_sync("order.paid", {"order": "sqlalchemy"}, connection=session)
        engine.dispose()
        await shop.until_forwarded(ds, arrived, 3)
        assert sorted(arrived) == ["asyncpg", "psycopg", "sqlalchemy"]


def test_that_role_sees_and_changes_nothing(sender_url: str) -> None:
    statements = ("SELECT uid FROM doorstep_outbox", "DELETE FROM doorstep_outbox", "SELECT uid FROM doorstep_orgs")
    for statement in statements:
        with psycopg.connect(sender_url) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(statement)  # type: ignore[arg-type]


async def test_a_role_that_may_read_the_table_still_sees_nobodys_rows(
    postgres_url: str, sender_url: str, postgres_server: PostgresServer
) -> None:
    database = urlsplit(postgres_url).path[1:]
    postgres_server.sql(f"GRANT SELECT, DELETE, UPDATE ON doorstep_outbox TO {SENDER}", database=database)
    postgres_server.sql(f"GRANT SELECT ON doorstep_orgs TO {SENDER}", database=database)
    ds = Doorstep(postgres_url)
    with psycopg.connect(sender_url) as connection:
        ds.send_sync("order.paid", {"order": "1"}, connection=connection)
        connection.commit()
        assert connection.execute("SELECT uid FROM doorstep_outbox").fetchall() == []
        assert connection.execute("DELETE FROM doorstep_outbox").rowcount == 0
    with psycopg.connect(postgres_url, options="-c doorstep.org=*") as engine:
        assert engine.execute("SELECT count(*) FROM doorstep_outbox").fetchone() == (1,)


def test_a_role_without_that_right_is_told_what_it_needs(postgres_url: str, postgres_server: PostgresServer) -> None:
    postgres_server.sql(
        "DO $$ BEGIN CREATE ROLE nobody_at_all LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$"
    )
    url = postgres_server.url(urlsplit(postgres_url).path[1:], role="nobody_at_all")
    with psycopg.connect(url) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege) as refused:
        Doorstep(postgres_url).send_sync("order.paid", {}, connection=connection)
    assert "needs INSERT" in "".join(refused.value.__notes__)


# -- schemas -----------------------------------------------------------------------------------------------


@pytest.fixture
def empty_database(postgres_server: PostgresServer) -> str:
    postgres_server.drop_database("shop")
    postgres_server.create_database("shop")
    return postgres_server.url("shop")


async def test_the_tables_can_live_in_a_schema_of_their_own(empty_database: str) -> None:
    async with shop.running(empty_database, f"{empty_database}?schema=delivery") as (ds, arrived):
        await shop.psycopg_connection(ds, empty_database, "1", "commit")
        await shop.asyncpg_connection(ds, empty_database, "2", "commit")
        await shop.sqlalchemy_session(ds, empty_database, "3", "savepoint")
        await shop.sqlalchemy_async_connection(ds, empty_database, "4", "rollback")
        await shop.until_forwarded(ds, arrived, 3)
        assert sorted(arrived) == ["1", "2", "3"]
        places = "SELECT DISTINCT schemaname FROM pg_tables WHERE tablename LIKE 'doorstep%'"
        assert await shop.execute(empty_database, places) == ["delivery"]
        assert await shop.execute(empty_database, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'") == [
            "orders"
        ]


async def test_two_doorsteps_can_share_a_database_in_schemas_of_their_own(empty_database: str) -> None:
    async with shop.running(empty_database, f"{empty_database}?schema=one") as (one, at_one):
        await shop.execute(empty_database, "DROP TABLE orders")
        async with shop.running(empty_database, f"{empty_database}?schema=two") as (two, at_two):
            await shop.psycopg_connection(one, empty_database, "for one", "commit")
            await shop.psycopg_connection(two, empty_database, "for two", "commit")
            await shop.until_forwarded(one, at_one, 1)
            await shop.until_forwarded(two, at_two, 1)
    assert (at_one, at_two) == (["for one"], ["for two"])


@pytest.mark.parametrize("name", ["", "Shop", "a-b", "1a", 'a"b', "a" * 64, "a&schema=b"])
def test_a_schema_that_is_no_plain_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="schema"):
        store_from_url(f"postgresql://127.0.0.1/shop?schema={name}")


# -- the application's own migrations ----------------------------------------------------------------------

ENV = """
    from alembic import context
    from sqlalchemy import create_engine

    with create_engine(context.config.get_main_option("sqlalchemy.url")).connect() as connection:
        context.configure(connection=connection)
        with context.begin_transaction():
            context.run_migrations()
"""
REVISION = """
    from alembic import op

    revision, down_revision = "a1", None

    def upgrade():
        op.execute("CREATE TABLE invoices (id TEXT PRIMARY KEY)")

    def downgrade():
        op.execute("DROP TABLE invoices")
"""


@pytest.fixture
def history(tmp_path: Path) -> Config:
    """The Alembic history of an application, with one revision."""
    folder = tmp_path / "migrations"
    (folder / "versions").mkdir(parents=True)
    (folder / "env.py").write_text(dedent(ENV))
    (folder / "versions" / "a1.py").write_text(dedent(REVISION))
    config = Config()
    config.set_main_option("script_location", str(folder))
    return config


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.parametrize("first", ["application", "doorstep"])
async def test_the_applications_own_migrations_and_ours_do_not_notice_each_other(
    kind: str, first: str, history: Config, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    file = f"sqlite:///{tmp_path / 'shop.db'}"
    url = file if kind == "sqlite" else request.getfixturevalue("empty_database")
    plain = url.replace("postgresql:", "postgresql+psycopg:")
    history.set_main_option("sqlalchemy.url", plain)
    if first == "application":
        command.upgrade(history, "head")
    async with shop.running(url) as (ds, arrived):
        command.upgrade(history, "head")
        await ds._store.migrate()
        engine = create_engine(plain)
        tables = set(inspect(engine).get_table_names())
        engine.dispose()
        assert {"alembic_version", "doorstep_version", "invoices", "doorstep_outbox"} <= tables
        command.downgrade(history, "base")
        await shop.WAYS[kind][0](ds, url, "1", "commit")
        await shop.until_forwarded(ds, arrived, 1)


async def test_our_tables_come_into_a_file_that_the_application_has_used_before(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE customers (id TEXT)")
        connection.execute("INSERT INTO customers VALUES ('c-1')")
        connection.commit()
    async with shop.running(f"sqlite:///{path}") as (ds, arrived):
        await shop.sqlite3_connection(ds, f"sqlite:///{path}", "1", "commit")
        await shop.until_forwarded(ds, arrived, 1)
        assert await shop.execute(f"sqlite:///{path}", "SELECT id FROM customers") == ["c-1"]
