"""R8.3, R11.2: every list scans a range of its own index, in index order, whatever the planner estimates.

On PostgreSQL, the table statistics in these tests are missing or wrong, as they are on new and on busy tables. With
such statistics, PostgreSQL once listed one organization's dead letters by scanning those of all organizations.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg

from doorstep.stores.sql.postgres import PostgresStore
from doorstep.stores.sql.postgres.connections import Connection
from doorstep.stores.sql.sqlite.connections import migrate
from tests.support.matrix import each_case
from tests.unit.stores.explaining import nodes
from tests.unit.stores.list_statements import LISTED, Listed, text_of

BIG = {
    "doorstep_events",
    "doorstep_deliveries",
    "doorstep_attempts",
    "doorstep_audit",
    "doorstep_audit_subjects",
    "doorstep_endpoints",
    "doorstep_entities",
}

# -- SQLite ------------------------------------------------------------------------------------------------

_SQLITE = sqlite.dialect(paramstyle="qmark")
_ALIASES = BIG | {"next", "letter"}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    path = tmp_path_factory.mktemp("plans") / "doorstep.db"
    migrate(str(path))
    connection = sqlite3.connect(path)
    yield connection
    connection.close()


def sqlite_plan(file: sqlite3.Connection, text: str) -> list[str]:
    return [row[3] for row in file.execute(f"EXPLAIN QUERY PLAN {text}", [None] * text.count("?"))]


def faults_on_sqlite(plan: list[str], listed: Listed) -> list[str]:
    index = re.sub("^(doorstep_.*)_org_id_uid_key$", r"sqlite_autoindex_\1_1", listed.walks)
    way = "SEARCH" if listed.in_order else "(SEARCH|SCAN)"
    walked = [line for line in plan if re.match(rf"{way} \w+ USING (COVERING )?INDEX {index}\b", line)]
    scanned = [line for line in plan if (found := re.match(r"SCAN (\w+)", line)) and found[1] in _ALIASES]
    faults = [line for line in scanned if line not in walked]
    if not walked:
        faults.append(f"does not walk {index}")
    if listed.in_order:
        faults += [line for line in walked if not re.search(r">.*<", line)]
        faults += [line for line in plan if "TEMP B-TREE" in line]
    return faults


@each_case("listed", LISTED, ids=lambda listed: listed.name)
def test_on_sqlite_it_walks_its_index_between_two_places(file: sqlite3.Connection, listed: Listed) -> None:
    assert faults_on_sqlite(sqlite_plan(file, text_of(listed.statement, _SQLITE)), listed) == []


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("does not walk", "SELECT id FROM doorstep_deliveries WHERE org_id = ? ORDER BY settled_at, uid"),
        ("TEMP B-TREE", "SELECT id FROM doorstep_deliveries WHERE org_id = ? ORDER BY settled_at, uid"),
        ("SCAN", "SELECT id FROM doorstep_deliveries WHERE worker = ?"),
    ],
)
def test_a_list_that_does_not_is_caught(file: sqlite3.Connection, fault: str, text: str) -> None:
    listed = next(one for one in LISTED if one.name == "dead letters: matches")
    assert any(fault in found for found in faults_on_sqlite(sqlite_plan(file, text), listed))


# -- PostgreSQL --------------------------------------------------------------------------------------------

_POSTGRES = PGDialect_asyncpg()  # type: ignore[no-untyped-call]
ROWS = 20_000
UNATTENDED = [f"ALTER TABLE {table} SET (autovacuum_enabled = false)" for table in sorted(BIG)]
FILL = (
    """INSERT INTO doorstep_events (uid, org_id, event_type, status, delivery_count, open_count, done_count, created_at,
                                   correlation_id, metadata, payload)
       SELECT gen_random_uuid(), 1, 'user.created', 'delivered', 1, 0, 1, n, 'r', '', '' FROM generate_series(1, $1) n""",
    """INSERT INTO doorstep_deliveries (uid, org_id, event_id, endpoint_id, state, created_at, retries_max, settled_at)
       SELECT gen_random_uuid(), 1, n, 1 + n % 7, 'delivered', n, 3, n FROM generate_series(1, $1) n""",
    """INSERT INTO doorstep_attempts (delivery_id, number, move, late, org_id, endpoint_id, worker, started_at, finished_at,
                                     dns_us, connect_us, tls_us, first_byte_us, reason, detail, request_headers,
                                     response_headers, response_body)
       SELECT n, 1, 2, 0, 1, 1 + n % 7, 'w', n, n, 0, 0, 0, 0, '', '', '', '', '' FROM generate_series(1, $1) n""",
    """INSERT INTO doorstep_audit (org_id, at, actor, action, subjects, result, reason)
       SELECT 1, n, 'a', 'x', '[]', '', '' FROM generate_series(1, $1) n""",
    """INSERT INTO doorstep_audit_subjects (audit_id, subject, org_id)
       SELECT n, gen_random_uuid(), 1 FROM generate_series(1, $1) n""",
)
CHANGE = (
    "UPDATE doorstep_events SET status = 'failed', ended_at = 1, dead_count = 1, done_count = 0 WHERE id % 3 = 0",
    "UPDATE doorstep_events SET status = 'received', delivery_count = 0, done_count = 0 WHERE id % 3 = 1",
    "UPDATE doorstep_deliveries SET state = 'dead', cause = id % 7 WHERE id % 4 = 0",
    "UPDATE doorstep_deliveries SET state = 'archived', cause = id % 7 WHERE id % 4 = 1",
    "UPDATE doorstep_deliveries SET state = 'pending', due_at = id, first_failed_at = 1, settled_at = NULL WHERE id % 8 = 2",
    "UPDATE doorstep_deliveries SET state = 'pending', due_at = id, settled_at = NULL WHERE id % 8 = 6",
    "UPDATE doorstep_deliveries SET code = 'TIMEOUT' WHERE id % 4 < 3",
    "UPDATE doorstep_attempts SET category = 'transient', code = 'TIMEOUT' WHERE delivery_id % 4 < 3",
    "UPDATE doorstep_deliveries SET batch = TRUE WHERE id % 5 = 0",
)
"""Changes made after the statistics, if any, were taken. At that time, all deliveries were in the state `delivered`."""


@pytest.fixture
async def cold(postgres_store: PostgresStore) -> Any:
    async with postgres_store._cold.connection() as connection:
        await connection.execute("BEGIN; SET LOCAL doorstep.org = '*'")
        yield connection
        await connection.execute("ROLLBACK")


async def _fill(cold: Connection, *, analyzed: bool) -> None:
    for statement in UNATTENDED:
        await cold.execute(statement)
    await cold.execute("ALTER TABLE doorstep_deliveries DISABLE TRIGGER ALL")
    await cold.execute("ALTER TABLE doorstep_events DISABLE TRIGGER ALL")
    for statement in FILL:
        await cold.execute(statement, ROWS)
    if analyzed:
        await cold.execute("ANALYZE")
    for statement in CHANGE:
        await cold.execute(statement)
    await cold.execute("SET LOCAL doorstep.org = '1'")


_VALUES = {"boolean": "true", "uuid": f"'{UUID(int=5)}'", "bigint": "5", "integer": "5"}


async def _plan(cold: Connection, text: str) -> dict[str, Any]:
    """The plan that PostgreSQL makes for the prepared statement, whether it is custom or generic."""
    await cold.execute(f"PREPARE listed AS {text}")
    kinds = await cold.fetchval("SELECT parameter_types::text[] FROM pg_prepared_statements WHERE name = 'listed'")
    values = ", ".join(_VALUES.get(kind, "'x'") for kind in kinds)
    answer = await cold.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE listed({values})")
    await cold.execute("DEALLOCATE listed")
    plan: dict[str, Any] = json.loads(answer)[0]["Plan"]
    return plan


def faults_on_postgres(plan: dict[str, Any], listed: Listed) -> list[str]:
    used = list(nodes(plan))
    indexes = {node["Index Name"] for node in used if "Index Name" in node}
    others = {name for name in indexes if name.startswith(("doorstep_deliveries", "doorstep_events", "doorstep_audit"))}
    others -= {listed.walks, *listed.beside, "doorstep_events_pkey", "doorstep_deliveries_pkey", "doorstep_audit_pkey"}
    faults = [f"walks {name}" for name in sorted(others)]
    faults += [f"scans {node['Relation Name']}" for node in used if node["Node Type"] == "Seq Scan"]
    if listed.walks not in indexes:
        faults.append(f"does not walk {listed.walks}")
    if listed.in_order:
        faults += [node["Node Type"] for node in used if "Sort" in node["Node Type"]]
    return faults


@pytest.mark.parametrize("analyzed", [False, True], ids=["never analyzed", "analyzed when all was delivered"])
@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
async def test_on_postgres_it_walks_its_index_whatever_the_statistics_say(
    cold: Connection, analyzed: bool, mode: str
) -> None:
    await _fill(cold, analyzed=analyzed)
    await cold.execute(f"SET LOCAL plan_cache_mode = {mode}")
    faults = {}
    for listed in LISTED:
        if found := faults_on_postgres(await _plan(cold, text_of(listed.statement, _POSTGRES)), listed):
            faults[listed.name] = found
    assert faults == {}


async def test_without_its_settings_and_its_words_postgres_takes_the_wrong_way(cold: Connection) -> None:
    """The control: without the settings and hints of the store, the planner chooses a bad plan, and the check detects
    it."""
    await _fill(cold, analyzed=False)
    await cold.execute("SET LOCAL enable_seqscan = on; SET LOCAL enable_bitmapscan = on; SET LOCAL enable_sort = on")
    listed = next(one for one in LISTED if one.name == "dead letters: matches")
    loose = "SELECT id FROM doorstep_deliveries WHERE org_id = $1 AND state = 'dead' AND org_id > 0 ORDER BY settled_at"
    assert faults_on_postgres(await _plan(cold, loose), listed) != []
