"""R11.2: frequent statements use indexes, and their cost does not grow with the history."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from doorstep.clock import SECOND
from doorstep.model.claim import Quota
from doorstep.model.rollup import FIGURES
from doorstep.stores.sql.postgres import PostgresStore, accept, claim, counters, settle
from doorstep.stores.sql.postgres.connections import Connection
from tests.support.builders import NOW, a_submission, an_endpoint, an_org
from tests.support.shortcuts import put, routing_versions
from tests.unit.stores.explaining import buffers, nodes, plan_of

FINISHED = 50_000
BIG = {"doorstep_events", "doorstep_deliveries", "doorstep_attempts", "doorstep_history", "doorstep_idempotency"}

FILL = (
    """INSERT INTO doorstep_events (uid, org_id, event_type, status, delivery_count, open_count, done_count, created_at,
                                   correlation_id, metadata, payload)
       SELECT gen_random_uuid(), 1, 'user.created', 'delivered', 1, 0, 1, n, 'r', '', '' FROM generate_series(1, $1::int) n""",
    """INSERT INTO doorstep_deliveries (uid, org_id, event_id, endpoint_id, state, created_at, retries_max, settled_at)
       SELECT gen_random_uuid(), 1, n, 1, 'delivered', n, 3, n FROM generate_series(1, $1::int) n""",
    """INSERT INTO doorstep_history (delivery_id, move, org_id, at, old_state, new_state, attempt, note)
       SELECT n + 1000000, 1, 1, n, 'in_progress', 'delivered', 1, '' FROM generate_series(1, $1::int) n""",
    """INSERT INTO doorstep_idempotency (org_id, key, fingerprint, event_uid, event_created_at, delivery_count, created_at)
       SELECT 1, n::text, '', gen_random_uuid(), n, 1, n FROM generate_series(1, $1::int) n""",
)
_OFFER = ([1], [UUID(int=1)], [UUID(int=2)], [10], [None], [0], [1_000_000], [], 0, [NOW])
_CLAIM = (NOW, NOW + SECOND, "w", "claimed", 5)
_NO_EVENTS = (*([] for _ in range(20)), NOW, 0, [], [], NOW, "w", "claimed by w", [1], [0])

HOT: dict[str, tuple[str, tuple[object, ...]]] = {
    "accept": (accept.ACCEPT, _NO_EVENTS),
    "take keys": (accept.TAKE_KEYS, ([], [], [], [], [], [], NOW, NOW)),
    "read keys": (accept.READ_KEYS, ([1], ["k"])),
    "read events": (accept.READ_EVENTS, ([1], [UUID(int=1)])),
    "claim": (claim.CLAIM, (*_CLAIM, *_OFFER)),
    "claim within limits": (claim.CLAIM, (*_CLAIM, *_OFFER[:4], [3], *_OFFER[5:])),
    "claim on recovery": (claim.CLAIM_ON_RECOVERY, (*_CLAIM, *_OFFER)),
    "sweep": (claim.SWEEP, ()),
    "sweep of a worker": (claim.SWEEP_NEAR, (NOW, 10)),
    "look": (claim.SWEEP_FROM_FLOORS, ([1], [0])),
    "expired": (claim.EXPIRED, (NOW, 100)),
    "settle": (settle.SETTLE, (NOW, *([] for _ in range(24)))),
    "settle one": (settle.SETTLE_ONE, (NOW, *([] for _ in range(24)), 1, NOW, 0, 1, 1, [0] * len(FIGURES))),
    "settle events": (settle.SETTLE_EVENTS, (NOW, [1], [1], [0])),
    "release": (settle.RELEASE, (NOW, [1], [1], ["n"], [NOW])),
    "tick": (counters.ADD, (NOW, 0, [1], [1], *([1] for _ in FIGURES))),
}


@pytest.fixture
async def hot(postgres_store: PostgresStore) -> AsyncIterator[Connection]:
    async with postgres_store._hot.connection() as connection:
        yield connection


async def _fill(connection: Connection, count: int = FINISHED) -> None:
    for statement in FILL:
        await connection.execute(statement, count)
    await connection.execute("ANALYZE")


async def _scanned(connection: Connection, statement: str, *arguments: object) -> set[str]:
    """The big tables that the plan reads with a sequential scan."""
    plan = await plan_of(connection, statement, *arguments)
    return {node["Relation Name"] for node in nodes(plan) if node["Node Type"] == "Seq Scan"} & BIG


@pytest.mark.parametrize("size", [0, FINISHED])
async def test_hot_statements_never_scan_a_table_however_small_it_was_when_they_were_planned(
    hot: Connection, size: int
) -> None:
    await _fill(hot, size)
    assert {name: found for name, (sql, args) in HOT.items() if (found := await _scanned(hot, sql, *args))} == {}


async def test_the_check_finds_a_statement_that_has_no_index(hot: Connection) -> None:
    await _fill(hot, 1_000)
    assert await _scanned(hot, "SELECT 1 FROM doorstep_deliveries WHERE worker = $1", "w") == {"doorstep_deliveries"}


async def test_claiming_and_sweeping_touch_as_many_pages_after_50000_finished_deliveries_as_before(
    postgres_store: PostgresStore,
) -> None:
    endpoint_id = await _with_waiting(postgres_store)
    offer = ([1], [endpoint_id], [endpoint_id], [10], [None], [0], [1_000_000], [], 0, [NOW])
    async with postgres_store._hot.connection() as connection:
        before = [
            await buffers(connection, claim.SWEEP),
            await buffers(connection, claim.CLAIM, *_CLAIM, *offer),
        ]
        await _fill(connection)
        after = [
            await buffers(connection, claim.SWEEP),
            await buffers(connection, claim.CLAIM, *_CLAIM, *offer),
        ]
    # One more index level costs one more page per lookup; a scan would read thousands of pages.
    assert all(now <= 2 * then + 10 for now, then in zip(after, before, strict=True)), (before, after)


async def _with_waiting(store: PostgresStore) -> UUID:
    org = an_org()
    await put(store, org)
    endpoint = an_endpoint(org.org_id)
    await put(store, endpoint, 0)
    made = [a_submission(org.org_id, [endpoint.endpoint_id]) for _ in range(20)]
    await store.accept(made, await routing_versions(store), NOW)
    warm = await store.claim([Quota(endpoint.endpoint_id, 1)], NOW, NOW + SECOND, "w")
    assert len(warm) == 1
    return endpoint.endpoint_id
