"""PostgresStore: the methods of stores/store.py, on one PostgreSQL database shared by any number of machines.

There are two groups of methods, each with its own connection pool. Both may use only indexes, never table scans.

- The hot methods (accept, claim, settle and the like) see all organizations. Each connection plans a hot statement
  once. A plan that was made while a table was small must not scan the table after it has grown.
- The cold methods see only the organization that they are called for. PostgreSQL chooses which index they use.

Hot statements must not depend on statistics either, because statistics are outdated precisely when the load changes. So
they find a row with `id = ANY (ARRAY[key])`. With a plain `id = key`, PostgreSQL may assume that the table is small or
that few rows match. It then scans the whole index of the primary key and compares every entry with the batch.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar
from uuid import UUID

import asyncpg

from doorstep.clock import SECOND, Instant
from doorstep.errors import StoreUnavailable
from doorstep.model.claim import Claim, Lane, Lease, Quota, Settled, Settlement
from doorstep.model.delivery import DeliveryState
from doorstep.model.event import Receipt, Submission, any_left
from doorstep.model.outbox import OutboxMessage
from doorstep.stores.limits import check_submission
from doorstep.stores.program_sql import NO_DEFINITIONS, SqlDefinitions
from doorstep.stores.sql.ddl import ALL_ORGS, OUTBOX_POSTER, OUTBOX_SLEEPER, SCOPE, task_lock
from doorstep.stores.sql.keys import PostgresKeys
from doorstep.stores.sql.outbox_insert import POSTGRESQL, OutboxTable, insert_on
from doorstep.stores.sql.postgres import accept, claim, counters, database_users, settle
from doorstep.stores.sql.postgres.claim import EndpointQuota
from doorstep.stores.sql.postgres.connections import (
    Connection,
    Connections,
    begin_transaction,
    check_schema,
    migrate,
    refusal,
    run_transaction,
)
from doorstep.stores.sql.postgres.floors import DueFloors, OutboxFloor
from doorstep.stores.sql.postgres.wakeups import CHANGED, POSTED, WORK, Wakeups
from doorstep.stores.sql.queries.outbox import outbox_above
from doorstep.stores.sql.queries.rows import lane_from
from doorstep.stores.sql.queries.transaction import Transaction
from doorstep.stores.sql.schema import FORWARDABLE
from doorstep.stores.sql.verbs import Mode, SqlVerbs
from doorstep.stores.store import Features, Task, Topic

T = TypeVar("T")

CONNECTIONS_MAX = 8
"""The maximum number of connections in each of the two pools of a process. One more connection listens for wake-ups."""
CONNECTIONS_READY = 4
"""The number of connections opened when a process starts: one each for accept, claim, settle and reclaim, which run
concurrently."""
COMMAND_SECONDS = 15.0
"""The timeout of a statement. It keeps callers from waiting forever for a frozen server; normally, statements are much
faster."""

_INDEXES_ONLY = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}
_HOT = {SCOPE: ALL_ORGS, "plan_cache_mode": "force_generic_plan", **_INDEXES_ONLY}
_OFTEN = (accept.ACCEPT, claim.SWEEP, claim.CLAIM, settle.SETTLE, settle.SETTLE_ONE, settle.SETTLE_EVENTS, counters.ADD)
"""The frequent statements. They are planned in advance on the connections that are opened at startup."""
BYPASSES_RLS = "SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user"
ANY_POSTED = f"SELECT true FROM doorstep_outbox WHERE {FORWARDABLE} AND id > $1 ORDER BY id LIMIT 1"
ANY_INCIDENT = "SELECT true FROM doorstep_incidents LIMIT 1"
CLEAR_OUTBOX = "DELETE FROM doorstep_outbox WHERE uid = ANY ($1::uuid[])"

_CHANNELS = {Topic.DELIVERIES: WORK, Topic.OUTBOX: POSTED, Topic.INCIDENTS: CHANGED}
"""The notification channel of each topic."""


class PostgresStore(SqlVerbs):
    """A Store on PostgreSQL 15 or newer. A connection pooler in front of the server must use session pooling."""

    features = Features(many_machines=True, notices_posts=False, announces_work=True)
    aggregate_max = 5_000
    """Aggregating 5,000 counters takes 0.1 s if many belong to the same endpoint, and 0.4 s if each belongs to a
    different one. That is 10,000 to 50,000 counters per second."""

    def __init__(
        self,
        url: str,
        *,
        schema: str | None = None,
        connections_max: int = CONNECTIONS_MAX,
        connections_ready: int = 0,
        command_seconds: float = COMMAND_SECONDS,
    ) -> None:
        self._url = url
        self._outbox_table = OutboxTable(POSTGRESQL, schema)
        self._settings = _settings(command_seconds) | ({} if schema is None else {"search_path": schema})
        self._connections_ready = min(connections_ready, connections_max)
        self._command_seconds = command_seconds
        self._hot = Connections(url, self._settings | _HOT, connections_max, command_seconds)
        self._cold = Connections(url, self._settings | _INDEXES_ONLY, connections_max, command_seconds)
        self._keys = PostgresKeys(self._hot.fetch)
        self._due_floors = DueFloors()
        self._outbox_floor = OutboxFloor()
        self._wakeups = Wakeups(self._connect_listener)
        self._own_wakes: list[Callable[[], None]] = []
        """Called after changes by this process."""

    # -- life cycle ----------------------------------------------------------------------------------------

    async def open(self) -> None:
        await self._hot.open()
        await self._cold.open()
        try:
            await self._check_database()
        except BaseException:
            self._disconnect()
            raise
        await self._hot.warm_up(self._connections_ready, _OFTEN)
        await self._cold.warm_up(self._connections_ready // 2, ())
        self._wakeups.start()

    async def close(self) -> None:
        unsent = await self._wakeups.stop()
        with suppress(StoreUnavailable):
            for channel in unsent:
                await self._hot.fetch(f"NOTIFY {channel}")
        self._disconnect()

    async def migrate(self, definitions: SqlDefinitions = NO_DEFINITIONS) -> None:
        await migrate(self._url, self._outbox_table.schema, definitions)

    async def grant_users(self, role: str) -> None:
        """Let the members of a database role read, and act, with SQL (database_users.py). The store need not be open."""
        connections = Connections(self._url, self._settings | {SCOPE: ALL_ORGS}, 1, self._command_seconds)
        await connections.open()
        try:
            with refusal():
                await connections.run(lambda connection: database_users.grant_users(connection, role))
        finally:
            connections.close()

    async def time(self) -> Instant:
        ((microseconds,),) = await self._hot.fetch("SELECT extract(epoch FROM clock_timestamp()) * 1000000")
        return int(microseconds)

    def on_wakeup(self, topic: Topic, wake: Callable[[], None]) -> None:
        self._wakeups.add(wake, _CHANNELS[topic])
        if topic is Topic.DELIVERIES:
            self._wakeups.add(wake, CHANGED)  # of an endpoint, perhaps
        if topic is Topic.INCIDENTS:
            self._own_wakes.append(wake)

    def wake_others(self, topic: Topic) -> None:
        self._wakeups.notify(_CHANNELS[topic])

    def _announce_change(self) -> None:
        for wake in self._own_wakes:
            wake()
        self._wakeups.notify_seldom(CHANGED)

    # -- the path of an event ------------------------------------------------------------------------------

    async def accept(
        self, submissions: Sequence[Submission], routing: Mapping[UUID, int], now: Instant, lease: Lease | None = None
    ) -> list[Receipt]:
        orgs = await self._keys.org_keys({one.event.org_id for one in submissions})
        owed = {one.endpoint_id for submission in submissions for one in submission.deliveries}
        call = accept.AcceptCall(submissions, routing, orgs, await self._keys.addresses(owed))
        for submission in submissions:
            check_submission(submission)
        receipts = await self._hot.run(lambda connection: call.write(connection, now, lease), accept.BEGIN_ACCEPT)
        if any_left(submissions, receipts):
            self._wakeups.notify()
        return receipts

    async def due_lanes(self, now: Instant, later_max: int | None = None) -> list[Lane]:
        async with self._hot.connection() as connection:
            rows = await self._sweep(connection, now, later_max)
        addresses = await self._keys.by_key({row[0] for row in rows})
        return [lane_from(addresses[row[0]], row) for row in rows]

    async def claim(
        self,
        quotas: Sequence[Quota],
        now: Instant,
        lease_until: Instant,
        worker: str,
        forced_max: int = 0,
        unserved: Sequence[UUID] = (),
    ) -> list[Claim]:
        call = claim.ClaimCall(await self._endpoint_quotas(quotas), now, lease_until, worker, forced_max, unserved)
        if call.limited:
            rows = await self._hot.run(call.take_within_limits)
        elif len(call.statements) > 1:
            rows = await self._hot.run(call.take)
        else:
            rows = await self._hot.run(call.take, begin="")
        if self._due_floors.needed:
            oldest_first = {one.address.key for one in call.quotas if one.oldest_first}
            taken = [(row["endpoint_id"], row["was_due_at"]) for row in rows if row["endpoint_id"] in oldest_first]
            self._due_floors.claimed(taken, now)
        return claim.claims_of(rows)

    async def settle(self, settlements: Sequence[Settlement], now: Instant) -> Settled:
        settled = await self._settle(settlements, now)
        states = {one.state for one in settlements}
        if DeliveryState.PENDING in states:
            self._wakeups.notify_seldom(WORK)  # if this process dies, another makes the retries
        if DeliveryState.DEAD in states:
            self._announce_change()
        return settled

    async def _settle(self, settlements: Sequence[Settlement], now: Instant) -> Settled:
        addresses = await self._keys.addresses({settlement.claim.endpoint_id for settlement in settlements})
        owners = {endpoint_id: address.owner for endpoint_id, address in addresses.items()}
        if settle.is_simple(settlements):
            (one,) = settlements
            owner = owners[one.claim.endpoint_id]
            settled = await self._hot.run(lambda connection: settle.settle_one(connection, one, owner, now), begin="")
            if settled is not None:
                return settled
        return await self._hot.run(
            lambda connection: settle.settle(connection, settlements, owners, now), settle.BEGIN_RELAXED
        )

    async def release(self, claims: Sequence[Claim], now: Instant) -> list[Claim]:
        released = await self._hot.run(lambda connection: settle.release(connection, claims, now), settle.BEGIN_RELAXED)
        self._wakeups.notify()
        return released

    async def expired(self, now: Instant, limit: int) -> list[Claim]:
        return claim.claims_of(await self._hot.fetch(claim.EXPIRED, now, limit))

    # -- the outbox ----------------------------------------------------------------------------------------

    def post_on(self, connection: object, message: OutboxMessage, wake: Callable[[], None]) -> Awaitable[None] | None:
        return insert_on(connection, message, self._outbox_table, wake)

    async def any_waiting(self, topic: Topic) -> bool:
        """The check uses no transaction, because it runs very often."""
        if topic is Topic.INCIDENTS:
            return bool(await self._hot.fetch(ANY_INCIDENT))
        floor, started = self._outbox_floor.now(), time.monotonic()
        posted = bool(await self._hot.fetch(ANY_POSTED, floor))
        if not posted:
            self._outbox_floor.found_nothing(floor, time.monotonic() - started)
        return posted

    async def announce_posts(self, wanted: bool) -> bool:
        if wanted:
            return await self._wakeups.await_posts(OUTBOX_SLEEPER, OUTBOX_POSTER)
        await self._wakeups.ignore_posts(OUTBOX_SLEEPER)
        return False

    async def outbox(self, limit: int) -> list[OutboxMessage]:
        floor, started = self._outbox_floor.now(), time.monotonic()
        messages, last = await self._read(None, outbox_above, floor, limit)
        self._outbox_floor.found(floor, last, time.monotonic() - started)
        return messages

    async def clear_outbox(self, event_ids: Sequence[UUID]) -> None:
        await self._hot.run(lambda connection: connection.execute(CLEAR_OUTBOX, list(event_ids)), settle.BEGIN_RELAXED)

    async def acquire_lock(self, task: Task, holder: str, now: Instant, until: Instant) -> bool:
        return await self._wakeups.acquire(task_lock(task), (until - now) / SECOND)

    async def release_lock(self, task: Task, holder: str) -> None:
        await self._wakeups.release(task_lock(task))

    # -- internals -----------------------------------------------------------------------------------------

    async def _run(self, mode: Mode, scope: UUID | None, make_script: Callable[[], Transaction[T]]) -> T:
        """Run a script. Writes without a scope come from the engine itself. They use the hot pool, whose plans use only
        indexes, because a write that sorted all waiting deliveries would delay claims."""
        connections = self._cold if mode is Mode.READ or scope is not None else self._hot
        # A relaxed write is flushed all the same, soon after its commit, and would keep the WAL writer of the server awake
        # for ten seconds. So all writes here are durable.
        org_key = None if scope is None else await self._keys.org_key(scope)
        begin = begin_transaction(org_key, reading=mode is Mode.READ)
        return await connections.run(lambda connection: run_transaction(connection, make_script), begin)

    async def _endpoint_quotas(self, quotas: Sequence[Quota]) -> list[EndpointQuota]:
        addresses = await self._keys.addresses([quota.endpoint_id for quota in quotas])
        known = [(addresses[quota.endpoint_id], quota) for quota in quotas if quota.endpoint_id in addresses]
        return [EndpointQuota(address, self._due_floors.of(address.key), quota) for address, quota in known]

    async def _sweep(self, connection: Connection, now: Instant, later_max: int | None) -> list[Any]:
        if not self._due_floors.full_read_due:
            floors = self._due_floors.floors
            return await connection.fetch(claim.SWEEP_FROM_FLOORS, list(floors), list(floors.values()))
        started = time.monotonic()
        if later_max is None:
            rows: list[Any] = await connection.fetch(claim.SWEEP)
            walked = len(rows)
        else:
            found = await connection.fetch(claim.SWEEP_NEAR, now, later_max)
            walked, rows = found[0]["lanes"], [row[:-1] for row in found if row["endpoint_id"] is not None]
        self._due_floors.swept([(row[0], row[1]) for row in rows], walked, time.monotonic() - started)
        return rows

    async def _check_database(self) -> None:
        with refusal():
            async with self._cold.connection() as connection:
                await check_schema(connection)
                bypasses_rls = await connection.fetchval(BYPASSES_RLS)
        if bypasses_rls:
            warnings.warn(
                "the PostgreSQL role bypasses row-level security, which keeps organizations apart even if a query is"
                " wrong; connect as a role without SUPERUSER and BYPASSRLS",
                RuntimeWarning,
                stacklevel=2,
            )

    async def _connect_listener(self) -> asyncpg.Connection[asyncpg.Record]:
        return await asyncpg.connect(
            self._url,
            timeout=self._command_seconds,
            command_timeout=self._command_seconds,
            server_settings=self._settings | {"synchronous_commit": "off"},
        )

    def _disconnect(self) -> None:
        self._hot.close()
        self._cold.close()


def _settings(command_seconds: float) -> dict[str, str]:
    """The settings of a connection. The server cancels a statement that exceeds our timeout, so that its locks are
    released."""
    return {
        "application_name": "doorstep",
        "jit": "off",
        "synchronous_commit": "on",
        "statement_timeout": f"{round(command_seconds * 1000)}ms",
        "idle_in_transaction_session_timeout": f"{round(command_seconds * 1000)}ms",
    }
