"""The cost of an ordering group does not depend on its length, nor on PostgreSQL's statistics about the tables."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from doorstep.clock import Instant
from doorstep.stores.sql.postgres import PostgresStore, accept, connections
from doorstep.stores.sql.postgres.connections import Connection
from doorstep.stores.sql.queries.moves import unblock
from doorstep.stores.sql.schema import NEVER
from tests.support.builders import NOW

LENGTH = 8_000
READ_MAX = 100
READ = "SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::int FROM pg_stat_xact_user_tables"
UNATTENDED = (
    "ALTER TABLE doorstep_events SET (autovacuum_enabled = false)",
    "ALTER TABLE doorstep_deliveries SET (autovacuum_enabled = false)",
)
FILL = (
    f"""INSERT INTO doorstep_events (uid, org_id, event_type, status, delivery_count, open_count, created_at,
                                     correlation_id, metadata, payload)
        SELECT gen_random_uuid(), 1, 'a', 'received', 1, 1, n, 'r', '', '' FROM generate_series(1, {LENGTH}) n""",
    f"""INSERT INTO doorstep_deliveries (uid, org_id, event_id, endpoint_id, state, due_at, created_at, retries_max)
        SELECT lpad(to_hex(n), 32, '0')::uuid, 1, n, 1, 'pending', {NOW}, n, 3 FROM generate_series(1, {LENGTH}) n""",
)
KEYED = {
    "never taken": None,
    "taken while none had a key": "NULL",
    "taken while all had the same": "'a'",
    "taken while each had its own": "id::text",
}
"""When the statistics were taken, described by the ordering keys at that time."""


@pytest.fixture(params=KEYED)
async def line(postgres_store: PostgresStore, request: pytest.FixtureRequest) -> AsyncIterator[PostgresStore]:
    """One ordering group of thousands of deliveries, the first of which has just ended. The planner's statistics are
    outdated or missing."""
    keys = KEYED[request.param]
    async with postgres_store._hot.connection() as connection:
        for statement in (*UNATTENDED, *FILL):
            await connection.execute(statement)
        if keys is not None:
            await connection.execute(f"UPDATE doorstep_deliveries SET ordering_key = {keys}")
            await connection.execute("ANALYZE")
        await connection.execute(f"UPDATE doorstep_deliveries SET ordering_key = 'a', due_at = {NEVER}")
        await connection.execute("UPDATE doorstep_deliveries SET state = 'cancelled', due_at = NULL WHERE id = 1")
    yield postgres_store


@pytest.mark.parametrize("pool", ["_hot", "_cold"])
async def test_letting_the_next_go_reads_only_what_it_needs(line: PostgresStore, pool: str) -> None:
    async with getattr(line, pool).connection() as connection:
        await connection.execute(connections.begin_transaction(None, reading=False))
        before = await _read(connection)
        await connections.run_transaction(connection, lambda: unblock([1], NOW + 1))
        assert await _read(connection) - before <= READ_MAX
        assert await _due_at(connection, 2) == NOW + 1
        assert await _due_at(connection, 3) == NEVER
        await connection.execute("ROLLBACK")


async def test_blocking_one_that_comes_in_behind_reads_only_what_it_needs(line: PostgresStore) -> None:
    async with line._hot.connection() as connection:
        await connection.execute("BEGIN")
        await connection.execute(
            f"""INSERT INTO doorstep_deliveries (uid, org_id, event_id, endpoint_id, state, due_at, created_at, retries_max,
                                                 ordering_key)
                VALUES (lpad('ffffff', 32, '0')::uuid, 1, 1, 1, 'pending', {NOW}, 1, 3, 'a')"""
        )
        (uid, key) = await connection.fetchrow("SELECT uid, id FROM doorstep_deliveries ORDER BY id DESC LIMIT 1")  # type: ignore[misc]
        before = await _read(connection)
        await connection.execute(accept.BLOCK, [1], [uid])
        assert await _read(connection) - before <= READ_MAX
        assert await _due_at(connection, key) == NEVER
        await connection.execute("ROLLBACK")


async def test_the_check_finds_a_statement_that_walks_the_line(line: PostgresStore) -> None:
    async with line._hot.connection() as connection, connection.transaction():
        before = await _read(connection)
        await connection.execute("SELECT count(worker) FROM doorstep_deliveries WHERE ordering_key = 'a'")
        assert await _read(connection) - before > READ_MAX


async def _read(connection: Connection) -> int:
    """How many rows this transaction has read so far."""
    return int(await connection.fetchval(READ))


async def _due_at(connection: Connection, key: int) -> Instant:
    return int(await connection.fetchval("SELECT due_at FROM doorstep_deliveries WHERE id = $1", key))
