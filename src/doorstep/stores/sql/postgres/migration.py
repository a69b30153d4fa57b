"""Bringing the schema up to date, and refusing one that is not."""

from __future__ import annotations

from functools import partial

import asyncpg
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import NullPool

from doorstep.stores.sql import migrations
from doorstep.stores.sql.postgres.connections import Connection, unavailability
from doorstep.stores.sql.postgres_ddl import ALL_ORGS, MIGRATION_LOCK, SCOPE


async def migrate(url: str, schema: str | None) -> None:
    """Run what is missing of the migrations, in one transaction. Of several at once, the others wait and find it done."""
    connect = partial(_connect, url, schema)
    engine = create_async_engine("postgresql+asyncpg://", async_creator=connect, poolclass=NullPool)
    with unavailability():
        async with engine.begin() as connection:
            await connection.execute(text(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})"))
            if schema is not None:
                await _make_schema(connection, schema)
            await connection.run_sync(migrations.upgrade)


async def check_schema(connection: Connection) -> None:
    """Raise ConfigError unless the schema is the one that this version works with."""
    present = await connection.fetchval("SELECT to_regclass($1)", migrations.VERSION_TABLE)
    found = await connection.fetchval(f"SELECT version_num FROM {migrations.VERSION_TABLE}") if present else None
    migrations.require_current(found, "the PostgreSQL database")


async def _make_schema(connection: AsyncConnection, schema: str) -> None:
    """Only where it is missing: IF NOT EXISTS would need the right to create one even where it is there."""
    if await connection.scalar(text("SELECT to_regnamespace(:schema) IS NULL"), {"schema": schema}):
        await connection.execute(text(f"CREATE SCHEMA {schema}"))


async def _connect(url: str, schema: str | None) -> asyncpg.Connection[asyncpg.Record]:
    place = {} if schema is None else {"search_path": schema}
    return await asyncpg.connect(
        url, server_settings={SCOPE: ALL_ORGS, "application_name": "doorstep migrate", **place}
    )
