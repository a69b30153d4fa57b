"""The alert evaluator never reads the whole alert history: each of its statements uses an index."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from uuid import UUID

import pytest
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg

from doorstep.model.org import Org
from doorstep.model.rollup import HOUR
from doorstep.stores.sql.postgres import PostgresStore
from doorstep.stores.sql.postgres.connections import Connection
from doorstep.stores.sql.queries import alerts
from doorstep.stores.sql.queries.transaction import Step, execute, prepare
from doorstep.stores.sql.sqlite.connections import migrate
from tests.support.shortcuts import put
from tests.unit.stores.explaining import nodes, plan_of

ORG = UUID(int=1)
STEPS: dict[str, Step] = {
    "doorstep_alerts_open": execute(alerts._OPEN, org=ORG),
    "doorstep_alerts_pending": execute(alerts._PENDING, org=ORG),
    "doorstep_alerts_returning": execute(alerts._ENDED, org=ORG, after=20_000 * HOUR),
    "doorstep_alerts_review": execute(alerts._TO_REVIEW, now=HOUR),
    "doorstep_incidents_org": execute(alerts._ORGS),
}
"""Each statement, by the index that it must use."""
_DIALECT = PGDialect_asyncpg()  # type: ignore[no-untyped-call]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    path = tmp_path_factory.mktemp("plans") / "doorstep.db"
    migrate(str(path))
    connection = sqlite3.connect(path)
    yield connection
    connection.close()


@pytest.mark.parametrize("index", STEPS)
def test_on_sqlite_each_has_its_index(file: sqlite3.Connection, index: str) -> None:
    statement = prepare(STEPS[index], sqlite.dialect(paramstyle="qmark")).text
    plan = [row[3] for row in file.execute(f"EXPLAIN QUERY PLAN {statement}", [None] * statement.count("?"))]
    assert any(f"INDEX {index} " in line for line in plan), plan
    assert not any(line.startswith(("SCAN doorstep_alerts", "SCAN doorstep_incidents")) for line in plan), plan


FILL = (
    f"""INSERT INTO doorstep_alerts (uid, org_id, subject, rule, ended_at, review_at, version, document)
       SELECT gen_random_uuid(), 1, n::text, CASE WHEN n % 100 = 0 THEN 'oldest_due' ELSE 'dead_letter' END,
              CASE WHEN n % 1000 = 7 THEN NULL ELSE n * {HOUR}::bigint END,
              CASE WHEN n % 1000 IN (7, 8) THEN n * {HOUR}::bigint END, 1, '{{}}'
       FROM generate_series(1, 20000) n""",
    "INSERT INTO doorstep_incidents (org_id, document) SELECT 1 + n / 20000, '{}' FROM generate_series(1, 20000) n",
)


@pytest.fixture
async def filled(postgres_store: PostgresStore) -> AsyncIterator[Connection]:
    await put(postgres_store, Org(org_id=ORG, name="only", created_at=0))
    async with postgres_store._cold.connection() as connection:
        await connection.execute("BEGIN; SET LOCAL doorstep.org = '*'")
        for statement in FILL:
            await connection.execute(statement)
        await connection.execute("ANALYZE doorstep_alerts, doorstep_incidents")
        yield connection
        await connection.execute("ROLLBACK")


@pytest.mark.parametrize("index", STEPS)
async def test_on_postgres_each_has_its_index(filled: Connection, index: str) -> None:
    prepared = prepare(STEPS[index], _DIALECT)
    plan = await plan_of(filled, prepared.text, *prepared.arguments[0])
    assert index in {one.get("Index Name") for one in nodes(plan)}, plan
