"""Bringing the schema up to date, and refusing one that is not."""

from __future__ import annotations

import asyncpg
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from doorstep.stores.sql import migrations
from doorstep.stores.sql.postgres.connections import Connection, unavailability
from doorstep.stores.sql.postgres_ddl import ALL_ORGS, MIGRATION_LOCK, SCOPE


async def migrate(url: str) -> None:
    """Run what is missing of the migrations, in one transaction. Of several at once, the others wait and find it done."""
    engine = create_async_engine("postgresql+asyncpg://", async_creator=lambda: _connect(url), poolclass=NullPool)
    with unavailability():
        async with engine.begin() as connection:
            await connection.execute(text(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})"))
            await connection.run_sync(migrations.upgrade)


async def check_schema(connection: Connection) -> None:
    """Raise ConfigError unless the schema is the one that this version works with."""
    present = await connection.fetchval("SELECT to_regclass($1)", migrations.VERSION_TABLE)
    found = await connection.fetchval(f"SELECT version_num FROM {migrations.VERSION_TABLE}") if present else None
    migrations.require_current(found, "the PostgreSQL database")


async def _connect(url: str) -> asyncpg.Connection[asyncpg.Record]:
    return await asyncpg.connect(url, server_settings={SCOPE: ALL_ORGS, "application_name": "doorstep migrate"})
