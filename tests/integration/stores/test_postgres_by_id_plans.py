"""R8.2, R8.3: rows requested by id are read through the id index, even if one organization owns all rows.

The schema tells PostgreSQL's planner to assume fifty organizations. With a higher number, the planner expects each
organization to have few rows. For a list of fifty ids, it once used the organization index, and read all 110,000 events
of the organization.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import bindparam
from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg

from doorstep.model.org import Org
from doorstep.stores.sql.postgres import PostgresStore
from doorstep.stores.sql.postgres.connections import Connection
from doorstep.stores.sql.queries import bulk, events
from doorstep.stores.sql.queries import rows as retrying
from doorstep.stores.sql.queries.rows import EVENT_WITH_STATUS
from doorstep.stores.sql.queries.transaction import Step, execute, prepare
from doorstep.stores.sql.schema import events as event_rows
from doorstep.stores.sql.schema import orgs
from tests.support.shortcuts import put
from tests.unit.stores.explaining import nodes

ROWS = 20_000
KEYS = list(range(100, 5_000, 100))
READ_MAX = 10 * len(KEYS)
ORG = UUID(int=1)
_DIALECT = PGDialect_asyncpg()  # type: ignore[no-untyped-call]

FILL = (
    """INSERT INTO doorstep_events (uid, org_id, event_type, status, delivery_count, open_count, done_count, created_at,
                                   correlation_id, metadata, payload)
       SELECT lpad(to_hex(n), 32, '0')::uuid, 1, 'a', 'delivered', 1, 0, 1, n, 'r', '{}', '1'
       FROM generate_series(1, $1) n""",
    """INSERT INTO doorstep_deliveries (uid, org_id, event_id, endpoint_id, state, created_at, retries_max, settled_at)
       SELECT gen_random_uuid(), 1, n, 1, 'delivered', n, 3, n FROM generate_series(1, $1) n""",
)
BY_ID: dict[str, Step] = {
    "events of a page": execute(events._EVENTS, keys=KEYS),
    "summaries": execute(events._THESE, org=ORG, uids=[UUID(int=key) for key in KEYS]),
    "figures": execute(retrying._RETRYING, keys=KEYS),
    "failures of a bulk operation": execute(bulk._DELIVERIES, keys=KEYS),
}


@pytest.fixture
async def cold(postgres_store: PostgresStore) -> AsyncIterator[Connection]:
    await put(postgres_store, Org(org_id=ORG, name="only", created_at=0))
    async with postgres_store._cold.connection() as connection:
        await connection.execute("BEGIN; SET LOCAL doorstep.org = '*'")
        for table in ("doorstep_events", "doorstep_deliveries"):
            await connection.execute(f"ALTER TABLE {table} DISABLE TRIGGER ALL")
        for statement in FILL:
            await connection.execute(statement, ROWS)
        await connection.execute("ANALYZE; SET LOCAL doorstep.org = '1'")
        yield connection
        await connection.execute("ROLLBACK")


@pytest.mark.parametrize("name", BY_ID)
async def test_fifty_ids_cost_fifty_look_ups(cold: Connection, name: str) -> None:
    for mode in ("force_custom_plan", "force_generic_plan"):
        await cold.execute(f"SET LOCAL plan_cache_mode = {mode}")
        assert await _rows_read(cold, BY_ID[name]) <= READ_MAX, mode


async def test_were_organizations_said_to_be_a_thousand_a_list_of_ids_would_cost_all_that_one_has(
    cold: Connection,
) -> None:
    """The control: if it fails, PostgreSQL's planner has improved, and the test above proves less."""
    await cold.execute("SET LOCAL doorstep.org = '*'")
    await cold.execute("ALTER TABLE doorstep_events ALTER COLUMN org_id SET (n_distinct = 1000)")
    await cold.execute("ANALYZE doorstep_events; SET LOCAL doorstep.org = '1'")
    joined = EVENT_WITH_STATUS.join(orgs, orgs.c.id == event_rows.c.org_id).where(
        event_rows.c.id.in_(bindparam("keys", expanding=True))
    )
    assert await _rows_read(cold, execute(joined, keys=KEYS)) >= ROWS


async def _rows_read(cold: Connection, step: Step) -> int:
    text, (arguments, *_), *_ = prepare(step, _DIALECT)
    answer = await cold.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}", *arguments)
    return sum(_read(node) for node in nodes(json.loads(answer)[0]["Plan"]))


def _read(node: dict[str, Any]) -> int:
    rows = node["Actual Rows"] + node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
    return int(rows * node["Actual Loops"])
