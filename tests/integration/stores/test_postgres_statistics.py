"""The engine's statements read only the rows that they need, whatever PostgreSQL's statistics about the tables say.

Statistics are missing on new tables and outdated on busy ones. With such statistics, PostgreSQL once searched for
operators' retries among all waiting deliveries: with 100,000 deliveries waiting for a dead endpoint, each claim took 15
ms instead of 1 ms, which delayed every other endpoint's deliveries too. So these tests count the rows that each plan
reads; they do not check the shape of the plan.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar
from uuid import UUID

import pytest

from doorstep.clock import DAY, SECOND, Instant
from doorstep.model.claim import Settlement
from doorstep.stores.sql.postgres import PostgresStore, accept, claim, settle
from doorstep.stores.sql.postgres.connections import Connection
from doorstep.stores.store import Retention
from tests.support.builders import NOW, a_claim, an_endpoint, an_org, success
from tests.support.shortcuts import living_endpoints, put

T = TypeVar("T")

WAITING = 8_000
"""Deliveries that wait for the first endpoint: forty times as many rows as any statement here may read."""
READ_MAX = 200
BATCH = 10
LONG_AGO: Instant = NOW - 30 * DAY

# -- the tables ---------------------------------------------------------------------------------------------

UNATTENDED = (
    "ALTER TABLE doorstep_events SET (autovacuum_enabled = false)",
    "ALTER TABLE doorstep_idempotency SET (autovacuum_enabled = false)",
    "ALTER TABLE doorstep_deliveries SET (autovacuum_enabled = false)",
    "ALTER TABLE doorstep_deliveries DISABLE TRIGGER doorstep_deliveries_state_change",
)
"""Autovacuum must not refresh the statistics, and a single UPDATE must be able to put deliveries into any state."""

EVENTS = """
INSERT INTO doorstep_events (uid, org_id, event_type, status, delivery_count, open_count, created_at, correlation_id,
                             metadata, payload)
SELECT lpad(to_hex(n), 32, '0')::uuid, 1, 'user.created', 'queued', 1, 1, n, 'r', '', ''
FROM generate_series($1::int, $2::int) n
"""

IDEMPOTENCY = """
INSERT INTO doorstep_idempotency (org_id, key, fingerprint, event_uid, event_created_at, delivery_count, created_at)
SELECT 1, n::text, '', gen_random_uuid(), n, 1, n FROM generate_series($1::int, $2::int) n
"""

DELIVERIES = f"""
INSERT INTO doorstep_deliveries (uid, org_id, event_id, endpoint_id, state, due_at, created_at, retries_max, settled_at,
                                 forced)
SELECT gen_random_uuid(), 1, n, 1, $3::text, CASE WHEN $3 IN ('pending', 'in_progress') THEN {LONG_AGO} + n END, n, 3,
       CASE WHEN $3 IN ('pending', 'in_progress') THEN NULL ELSE {LONG_AGO} + n END, $4
FROM generate_series($1::int, $2::int) n
"""
"""Inserts all deliveries in one state, so that statistics can be taken of that state."""

_TEN_FROM = f"WHERE id > {{0}} AND id <= {{0}} + {BATCH}"
SCENE = (
    f"UPDATE doorstep_deliveries SET state = 'pending', due_at = {LONG_AGO} + id, settled_at = NULL, forced = false",
    "UPDATE doorstep_deliveries SET forced = true " + _TEN_FROM.format(0),
    f"UPDATE doorstep_deliveries SET state = 'in_progress', token = 1, due_at = {LONG_AGO} " + _TEN_FROM.format(100),
    f"UPDATE doorstep_deliveries SET state = 'dead', due_at = NULL, settled_at = {LONG_AGO} " + _TEN_FROM.format(200),
    f"UPDATE doorstep_deliveries SET state = 'delivered', due_at = NULL, settled_at = {LONG_AGO} "
    + _TEN_FROM.format(300),
    "UPDATE doorstep_deliveries SET endpoint_id = 2 " + _TEN_FROM.format(400),
)
"""The data that the statements run against: a long queue for one endpoint, and ten deliveries of every other kind."""

KNOWN: dict[str, tuple[str, bool] | None] = {
    "never taken": None,
    "taken while all waited": ("pending", False),
    "taken while all were retried by an operator": ("pending", True),
    "taken while all were in progress": ("in_progress", False),
    "taken while all were delivered": ("delivered", False),
    "taken while all were dead": ("dead", False),
}
"""When the statistics were taken: the state of all deliveries at that time, and whether an operator had requested
them."""

# -- the statements -----------------------------------------------------------------------------------------

_KEYS, _TOKENS = [*range(101, 101 + BATCH)], [1] * BATCH
_CLAIM = (NOW, NOW + SECOND, "w", "claimed", BATCH, [2], [UUID(int=1)], [UUID(int=2)], [BATCH])
_SETTLE = settle._settle_arrays([Settlement.delivered(a_claim(key=key), success(NOW)) for key in _KEYS])

HOT: dict[str, tuple[str, tuple[object, ...], int]] = {
    "claim": (claim.CLAIM, (*_CLAIM, [None], [0], [1_000_000], [], 0, [NOW]), 2 * BATCH),
    "claim within limits": (claim.CLAIM, (*_CLAIM, [5], [0], [1_000_000], [], 0, [NOW]), BATCH + 5),
    "claim of nothing": (claim.CLAIM, (*_CLAIM[:4], 0, [], [], [], [], [], [], [], [], 0, []), 0),
    "sweep": (claim.SWEEP, (), 2),
    "sweep of a worker": (claim.SWEEP_NEAR, (NOW, 10), 2),
    "look": (claim.SWEEP_FROM_FLOORS, ([1, 2], [0, 0]), 2),
    "expired": (claim.EXPIRED, (NOW, BATCH), BATCH),
    "settle": (settle.SETTLE, (NOW, *_SETTLE), BATCH),
    "settle events": (settle.SETTLE_EVENTS, (NOW, _KEYS, _TOKENS, [0] * BATCH), BATCH),
    "release": (settle.RELEASE, (NOW, _KEYS, _TOKENS, ["w"] * BATCH, [NOW] * BATCH), BATCH),
    "read keys": (accept.READ_KEYS, ([1] * BATCH, [str(key) for key in _KEYS]), BATCH),
    "read events": (accept.READ_EVENTS, ([1] * BATCH, [UUID(int=key) for key in _KEYS]), BATCH),
}
"""Each statement, its arguments, and how many rows it must return, so that none passes by finding nothing."""

READ = "SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::int FROM pg_stat_xact_user_tables"
"""How many rows the current transaction has read, by sequential scans and through indexes."""


@pytest.fixture(params=KNOWN)
async def misled(postgres_store: PostgresStore, request: pytest.FixtureRequest) -> PostgresStore:
    """A store whose planner has outdated statistics about the tables, or none."""
    await _run(postgres_store, UNATTENDED)
    known = KNOWN[request.param]
    state, forced = known or ("pending", False)
    await _fill(postgres_store, state, forced=forced)
    if known:
        await _run(postgres_store, ["ANALYZE"])
    await _set_scene(postgres_store)
    return postgres_store


async def test_hot_statements_read_only_what_they_need_whatever_the_statistics(misled: PostgresStore) -> None:
    assert await _reading_too_much(misled) == []


@pytest.mark.parametrize("rows", [0, 50, 500])
@pytest.mark.parametrize("state", ["pending", "delivered"])
async def test_hot_statements_read_only_what_they_need_even_if_planned_while_the_tables_were_small(
    postgres_store: PostgresStore, state: str, rows: int
) -> None:
    await _run(postgres_store, UNATTENDED)
    await _fill(postgres_store, state, 1, rows)
    async with postgres_store._hot.connection() as connection:  # plans belong to the pool's only connection
        await connection.execute("ANALYZE")
        for statement, arguments, _ in HOT.values():
            await _counted(connection, partial(connection.fetch, statement, *arguments))
    await _fill(postgres_store, state, rows + 1, WAITING)
    await _set_scene(postgres_store)
    assert await _reading_too_much(postgres_store) == []


async def test_burying_archiving_and_cleaning_read_only_what_they_need_whatever_the_statistics(
    misled: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    async def run(work: Callable[[Connection], Awaitable[T]], begin: str) -> T:
        async with connections.connection() as connection:
            result, count = await _counted(connection, partial(work, connection), begin)
            read.append(count)
            return result

    connections, a_week_ago = misled._hot, NOW - 7 * DAY
    endpoint_id = (await living_endpoints(misled))[0].endpoint_id
    monkeypatch.setattr(connections, "run", run)
    assert len((await misled.dead_letter_waiting(endpoint_id, "GONE", "it is gone", NOW, BATCH)).moves) == BATCH
    assert len((await misled.archive(a_week_ago, NOW, BATCH)).moves) == BATCH
    assert (await misled.clean(Retention(settled_before=a_week_ago), NOW, BATCH)).deliveries == BATCH
    assert len(read) == 3
    assert max(read) <= READ_MAX, read


async def test_the_check_finds_the_claim_that_looks_for_retries_among_all_that_waits(
    postgres_store: PostgresStore,
) -> None:
    """The control: the earlier form of the statement, which let the planner use the index of all waiting deliveries."""
    await _run(postgres_store, UNATTENDED)
    await _fill(postgres_store, "delivered")
    await _run(postgres_store, ["ANALYZE"])
    await _set_scene(postgres_store)
    statement, arguments, answered = HOT["claim"]
    offering = statement.replace("d.state IS NOT DISTINCT FROM 'pending'", "d.state = 'pending'")
    async with postgres_store._hot.connection() as connection:
        rows, read = await _counted(connection, partial(connection.fetch, offering, *arguments))
    assert len(rows) == answered
    assert read > WAITING / 2


async def _fill(store: PostgresStore, state: str, first: int = 1, last: int = WAITING, *, forced: bool = False) -> None:
    async with store._hot.connection() as connection:
        await connection.execute(EVENTS, first, last)
        await connection.execute(IDEMPOTENCY, first, last)
        await connection.execute(DELIVERIES, first, last, state, forced)


async def _set_scene(store: PostgresStore) -> None:
    org = an_org()
    await put(store, org)
    for _ in range(2):
        await put(store, an_endpoint(org.org_id), 0)
    await _run(store, SCENE)


async def _run(store: PostgresStore, statements: Sequence[str]) -> None:
    async with store._hot.connection() as connection:
        for statement in statements:
            await connection.execute(statement)


async def _reading_too_much(store: PostgresStore) -> list[tuple[str, int]]:
    counts = []
    async with store._hot.connection() as connection:
        for name, (statement, arguments, answered) in HOT.items():
            rows, read = await _counted(connection, partial(connection.fetch, statement, *arguments))
            assert len(rows) == answered, name
            counts.append((name, read))
    return [(name, read) for name, read in counts if read > READ_MAX]


async def _counted(connection: Connection, work: Callable[[], Awaitable[T]], begin: str = "BEGIN") -> tuple[T, int]:
    """Run `work` and return its result and how many rows it read; its changes are rolled back."""
    await connection.execute(begin)
    try:
        before = await connection.fetchval(READ)
        result = await work()
        return result, await connection.fetchval(READ) - before
    finally:
        await connection.execute("ROLLBACK")
