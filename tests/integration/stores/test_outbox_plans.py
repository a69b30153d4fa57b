"""The cost of reading the outbox grows neither with the history nor with the number of rejected events."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy.dialects import sqlite
from sqlalchemy.sql.base import Executable

from doorstep.stores.sql.postgres import PostgresStore
from doorstep.stores.sql.postgres import store as on_postgres
from doorstep.stores.sql.postgres.connections import _DIALECT as POSTGRESQL
from doorstep.stores.sql.queries import outbox as scripts
from doorstep.stores.sql.queries.transaction import Step, prepare
from doorstep.stores.sql.sqlite import store as on_sqlite
from doorstep.stores.sql.sqlite.connections import migrate
from tests.unit.stores.explaining import buffers, nodes, plan_of

ASIDE = 20_000
SET_ASIDE = "INSERT INTO doorstep_outbox (uid, org_uid, event_type, payload, options, created_at, refused_at) "
LOOKS: dict[str, tuple[Executable, dict[str, object]]] = {
    "sizes": (scripts._SIZES, {"floor": 0, "limit": 500}),
    "first": (scripts._FIRST, {"floor": 0, "last": 1_000_000}),
    "shown": (scripts._PENDING, {"org": uuid4(), "uids": [uuid4()]}),
}

# -- SQLite ------------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    migrate(str(tmp_path / "doorstep.db"))
    connection = sqlite3.connect(tmp_path / "doorstep.db")
    yield connection
    connection.close()


def plan(file: sqlite3.Connection, statement: str) -> str:
    arguments = [None] * statement.count("?")
    return "\n".join(row[3] for row in file.execute(f"EXPLAIN QUERY PLAN {statement}", arguments))


@pytest.mark.parametrize("name", LOOKS)
def test_on_sqlite_scripts_find_rows_by_the_index_of_what_waits_or_by_their_ids(
    file: sqlite3.Connection, name: str
) -> None:
    statement, values = LOOKS[name]
    found = plan(file, prepare(Step(statement, (values,)), sqlite.dialect(paramstyle="qmark")).text)
    assert "doorstep_outbox USING INDEX" in found
    assert "SCAN" not in found and "TEMP" not in found, found


def test_on_sqlite_the_forwarders_own_statements_do_so_too(file: sqlite3.Connection) -> None:
    assert "doorstep_outbox_posted" in plan(file, on_sqlite.ANY_POSTED)
    assert "(uid=?)" in plan(file, on_sqlite.CLEAR_OUTBOX)


# -- PostgreSQL --------------------------------------------------------------------------------------------


async def test_on_postgresql_a_look_touches_a_few_pages_however_much_was_rejected(
    postgres_store: PostgresStore,
) -> None:
    async with postgres_store._hot.connection() as connection:
        await connection.execute(
            SET_ASIDE
            + "SELECT gen_random_uuid(), gen_random_uuid(), 'a.b', '{}', '{}', n, n FROM generate_series(1, $1::int) n",
            ASIDE,
        )
        await connection.execute("ANALYZE doorstep_outbox")
        looks = [(on_postgres.ANY_POSTED, (0,)), (on_postgres.CLEAR_OUTBOX, ([uuid4()],))]
        for statement, values in LOOKS.values():
            prepared = prepare(Step(statement, (values,)), POSTGRESQL)
            looks.append((prepared.text, prepared.arguments[0]))
        touched = {text: await buffers(connection, text, *arguments) for text, arguments in looks}
        assert all(pages < 20 for pages in touched.values()), touched
        control = "SELECT 1 FROM doorstep_outbox WHERE event_type = $1"
        assert await buffers(connection, control, "x") > 200
        scans = [node for node in nodes(await plan_of(connection, control, "x")) if node["Node Type"] == "Seq Scan"]
        assert scans
