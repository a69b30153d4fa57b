"""Reports and metrics scrapes never scan a table that grows with history: their statements find all rows by an
index."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator, Iterator
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg

from doorstep.clock import DAY
from doorstep.model.org import Org
from doorstep.model.rollup import FIGURES, HOUR, TREND, Span
from doorstep.policy.reports import BURN_FIGURES
from doorstep.stores.sql.postgres import PostgresStore
from doorstep.stores.sql.postgres.connections import Connection
from doorstep.stores.sql.queries import endpoints, figures
from doorstep.stores.sql.queries import figures as rollups
from doorstep.stores.sql.queries.transaction import Step, execute, prepare
from doorstep.stores.sql.sqlite.connections import migrate
from tests.support.matrix import each_case
from tests.support.shortcuts import put
from tests.unit.stores.explaining import nodes

ORG = UUID(int=1)
ENDPOINTS = [UUID(int=number) for number in range(1, 51)]
KEYS = list(range(1, 51))
ROWS = 20_000
HISTORY = ("doorstep_events", "doorstep_deliveries", "doorstep_rollups", "doorstep_attempts", "doorstep_circuits")
_DIALECT = PGDialect_asyncpg()  # type: ignore[no-untyped-call]
_MONTH = rollups._bounds(Span.HOUR, 0, 30 * DAY)
_EVER = rollups._bounds(*rollups._EVER)
STEPS: dict[str, Step] = {
    "series of all": execute(rollups._steps_of_whole_org(FIGURES, True), org=0, **_MONTH),
    "series of an organization": execute(rollups._steps_of_whole_org(FIGURES, False), org=1, **_MONTH),
    "series of an endpoint": execute(rollups._steps_of_endpoints(FIGURES, False), org=1, keys=[1], **_MONTH),
    "sums of endpoints": execute(rollups._sums_of_endpoints(FIGURES, False), org=1, keys=KEYS, **_MONTH),
    "some sums of endpoints": execute(rollups._sums_of_endpoints(BURN_FIGURES, False), org=1, keys=KEYS, **_MONTH),
    "levels of endpoints": execute(rollups._sums_of_endpoints(FIGURES, False), org=1, keys=KEYS, **_EVER),
    "levels of endpoints anywhere": execute(rollups._sums_of_endpoints(FIGURES, True), keys=KEYS, **_EVER),
    "trends of endpoints": execute(rollups._steps_of_endpoints(TREND, False), org=1, keys=KEYS, **_MONTH),
    "keys of endpoints anywhere": execute(rollups._KEYS_ANYWHERE, uids=ENDPOINTS),
    "circuits anywhere": execute(endpoints._CIRCUITS_ANYWHERE, uids=ENDPOINTS),
    "circuits": execute(endpoints._CIRCUITS, org=ORG, uids=ENDPOINTS),
    "the busiest endpoints": execute(figures._BUSIEST, limit=20, reserved=ORG),
    "who is disabled": execute(endpoints._DISABLED, org=ORG, limit=20),
    "whose circuit is not closed": execute(endpoints._CIRCUIT_NOT_CLOSED, org=ORG, limit=20),
    "who lost something": execute(endpoints._WITH_DEAD_LETTERS, org=ORG, since=0, examined=480, limit=20),
    "the oldest that wait": execute(endpoints._OLDEST, org=ORG, uids=ENDPOINTS),
}
each_step = each_case("step", STEPS.values(), ids=list(STEPS))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    path = tmp_path_factory.mktemp("plans") / "doorstep.db"
    migrate(str(path))
    connection = sqlite3.connect(path)
    yield connection
    connection.close()


@each_step
def test_on_sqlite_each_finds_its_rows_by_an_index(file: sqlite3.Connection, step: Step) -> None:
    assert scanned(file, prepare(step, sqlite.dialect(paramstyle="qmark")).text) == []


def test_on_sqlite_a_scan_would_be_noticed(file: sqlite3.Connection) -> None:
    assert scanned(file, "SELECT count(*) FROM doorstep_events WHERE status = 'failed'")


def scanned(file: sqlite3.Connection, statement: str) -> list[str]:
    plan = [row[3] for row in file.execute(f"EXPLAIN QUERY PLAN {statement}", [None] * statement.count("?"))]
    return [line for line in plan if line.startswith("SCAN") and line.split()[1] in HISTORY]


FILL = (
    """INSERT INTO doorstep_endpoints (uid, org_id, state, version, document)
       SELECT lpad(to_hex(n), 32, '0')::uuid, 1, 'active', 1, '{}' FROM generate_series(1, 50) n WHERE $1 > 0""",
    """INSERT INTO doorstep_deliveries (uid, org_id, event_id, endpoint_id, state, due_at, created_at, retries_max)
       SELECT gen_random_uuid(), 1, n, n % 50 + 1, 'pending', n, n, 3 FROM generate_series(1, $1 / 2) n""",
    """INSERT INTO doorstep_deliveries (uid, org_id, event_id, endpoint_id, state, created_at, settled_at, retries_max)
       SELECT gen_random_uuid(), 1, n, n % 50 + 1, 'delivered', n, n, 3 FROM generate_series(1, $1) n""",
    f"""INSERT INTO doorstep_rollups (org_id, endpoint_id, span, at, succeeded)
       SELECT 1, n % 200, 'hour', n / 200 * {HOUR}::bigint, 1 FROM generate_series(1, 10 * $1) n""",
)


@pytest.fixture
async def filled(postgres_store: PostgresStore) -> AsyncIterator[Connection]:
    await put(postgres_store, Org(org_id=ORG, name="only", created_at=0))
    async with postgres_store._cold.connection() as connection:
        await connection.execute("BEGIN; SET LOCAL doorstep.org = '*'")
        await connection.execute("ALTER TABLE doorstep_deliveries DISABLE TRIGGER ALL")
        for statement in FILL:
            await connection.execute(statement, ROWS)
        await connection.execute("ANALYZE")
        yield connection
        await connection.execute("ROLLBACK")


async def test_on_postgres_each_finds_its_rows_by_an_index(filled: Connection) -> None:
    found = {name: await sequential(filled, step) for name, step in STEPS.items()}
    assert found == {name: [] for name in STEPS}
    assert await sequential(filled, execute(text("SELECT state, count(*) FROM doorstep_deliveries GROUP BY state"))), (
        "a scan is noticed"
    )


async def test_on_postgres_a_plan_for_any_endpoints_would_look_through_all_of_them(filled: Connection) -> None:
    """This is why each list of endpoints gets its own plan. If this test fails, PostgreSQL's planner has improved."""
    assert rollups._CUSTOM_PLAN in asked_before_sums()
    prepared = prepare(STEPS["sums of endpoints"], _DIALECT)
    await filled.execute(f"SET LOCAL plan_cache_mode = force_generic_plan; PREPARE sums AS {prepared.text}")
    values = ", ".join(f"'{value}'" for value in prepared.arguments[0])
    answer: Any = await filled.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE sums({values})")
    conditions = [one.get("Index Cond", "") for one in nodes(json.loads(answer)[0]["Plan"])]
    assert not any("endpoint_id" in condition for condition in conditions)


def asked_before_sums() -> list[Any]:
    """The statements that run before the sums are queried."""
    script = rollups.figures(ORG, ENDPOINTS[:1], None, None, FIGURES)
    steps = [next(script), script.send([(1,)]), script.send([(ENDPOINTS[0], 1)])]
    return [step.statement for step in steps]


async def sequential(connection: Connection, step: Step) -> list[str]:
    """The history tables that PostgreSQL reads with a sequential scan for a statement."""
    prepared = prepare(step, _DIALECT)
    answer: Any = await connection.fetchval(f"EXPLAIN (FORMAT JSON) {prepared.text}", *prepared.arguments[0])
    plan = json.loads(answer)[0]["Plan"]
    return [
        one["Relation Name"]
        for one in nodes(plan)
        if one["Node Type"] == "Seq Scan" and one["Relation Name"] in HISTORY
    ]
