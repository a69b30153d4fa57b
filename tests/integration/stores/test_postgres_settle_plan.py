"""Settling finds its rows by their keys, whatever the planner estimates about how many deliveries are in progress.

Statistics are mostly taken while no delivery is in progress. From such statistics, PostgreSQL once concluded that the
index of deliveries in progress was empty, and scanned that index for every row: 500 results took 2,300 ms instead of
22, and workers were blocked.
"""

from __future__ import annotations

import asyncpg
import pytest

from doorstep.stores.sql.postgres import settle

_ROWS = 20_000
_FILL = f"""
INSERT INTO doorstep_deliveries (uid, org_id, event_id, endpoint_id, state, due_at, created_at, retries_max)
SELECT gen_random_uuid(), 1, i, 1, 'pending', i, i, 3 FROM generate_series(1, {_ROWS}) AS i
"""


@pytest.mark.parametrize("statement", ["SETTLE", "RELEASE"])
async def test_settling_does_not_walk_the_index_of_what_is_in_progress(postgres_url: str, statement: str) -> None:
    connection = await _analyzed_while_idle(postgres_url)
    assert "doorstep_deliveries_in_progress" not in await _plan(connection, getattr(settle, statement))
    await connection.close()


async def test_the_index_is_walked_when_the_statement_offers_it(postgres_url: str) -> None:
    """The control: the statement that once caused the slow plan, to prove that the test above can fail."""
    connection = await _analyzed_while_idle(postgres_url)
    offered = settle.SETTLE.replace("d.state IS NOT DISTINCT FROM 'in_progress'", "d.state = 'in_progress'")
    assert "doorstep_deliveries_in_progress" in await _plan(connection, offered)
    await connection.close()


async def _analyzed_while_idle(url: str) -> asyncpg.Connection:
    connection = await asyncpg.connect(url.replace("doorstep@", "postgres@"))
    await connection.execute(_FILL)
    await connection.execute("ANALYZE doorstep_deliveries")
    return connection


async def _plan(connection: asyncpg.Connection, statement: str) -> str:
    """The generic plan, which a statement gets once it has been run repeatedly."""
    await connection.execute("SET plan_cache_mode = force_generic_plan")
    prepared = await connection.prepare(statement)
    nothing = [0 if "[" not in kind.name else [] for kind in prepared.get_parameters()]
    return str(await prepared.explain(*nothing))
