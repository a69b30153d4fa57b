"""PostgresStore: the verbs of stores/store.py, on one PostgreSQL database shared by any number of machines.

The hot verbs work as the engine, which sees every organization, on connections whose plans are made once and only
walk indexes: a plan made while a table was small must not scan it when it has grown. The others (cold verbs) work
for the organization they are about, and walk indexes too: which one, PostgreSQL decides.

Hot statements must not depend on statistics either, which are old exactly when the load changes. So they reach a row
by `id = ANY (ARRAY[key])`, where a plain `id = key` would let PostgreSQL walk the whole primary key in its order and
look each row up in the batch, which it does where it believes the table small or the condition rare.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Awaitable, Callable, Sequence
from typing import ParamSpec, TypeVar
from uuid import UUID

import asyncpg
from asyncpg.exceptions import InvalidAuthorizationSpecificationError, InvalidCatalogNameError

from doorstep.clock import SECOND, Instant
from doorstep.errors import ConfigError
from doorstep.model.action import Action, ActionKind, ActionResult, AuditEntry
from doorstep.model.bulk import Bulk, BulkStep
from doorstep.model.claim import Claim, Lane, Moved, Quota, Settled, Settlement
from doorstep.model.event import Receipt, Submission
from doorstep.model.outbox import OutboxMessage
from doorstep.stores.sql.postgres import accept, claim, counters, migration, outbox, settle, transactions
from doorstep.stores.sql.postgres.connections import Connection, Connections
from doorstep.stores.sql.postgres.directory import Directory
from doorstep.stores.sql.postgres.low_water import LowWater
from doorstep.stores.sql.postgres.wakeups import POSTED, Wakeups
from doorstep.stores.sql.postgres_ddl import ALL_ORGS, SCOPE, task_lock
from doorstep.stores.sql.posting import inserting
from doorstep.stores.sql.posting.row import POSTGRESQL, Slot
from doorstep.stores.sql.queries.outbox import outbox_above
from doorstep.stores.sql.queries.transaction import Transaction
from doorstep.stores.sql.queries.verbs import ColdVerbs
from doorstep.stores.store import Capabilities, Task

P = ParamSpec("P")
T = TypeVar("T")

CONNECTIONS_MAX = 8
"""For each of the two pools of a process; one more connection listens for wake-ups."""
CONNECTIONS_READY = 4
"""Made while a process starts: accept, claim, settle and reclaim go on side by side."""
COMMAND_SECONDS = 15.0
"""No statement takes nearly as long; one that does met a frozen server, and the loop must not wait for ever."""

_INDEXES_ONLY = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}
_HOT = {SCOPE: ALL_ORGS, "plan_cache_mode": "force_generic_plan", **_INDEXES_ONLY}
_OFTEN = (accept.ACCEPT, claim.SWEEP, claim.CLAIM, settle.SETTLE, settle.SETTLE_EVENTS, counters.ADD)
"""What a connection that is ready has planned."""


class PostgresStore(ColdVerbs):
    """A Store on PostgreSQL 15 or newer. Needs session-level pooling if a pooler stands in between."""

    capabilities = Capabilities(many_machines=True, notices_postings=False)
    fold_max = 5_000
    """0.1 s where connections share the endpoints, 0.4 where each tick is of another: 10,000 to 50,000 ticks a second."""

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
        self._slot = Slot(POSTGRESQL, schema)
        self._place = {} if schema is None else {"search_path": schema}
        self._connections_ready = min(connections_ready, connections_max)
        self._command_seconds = command_seconds
        self._hot = Connections(url, _session(command_seconds, _HOT | self._place), connections_max, command_seconds)
        self._cold = Connections(
            url, _session(command_seconds, _INDEXES_ONLY | self._place), connections_max, command_seconds
        )
        self._directory = Directory(self._hot)
        self._low_water = LowWater()
        self._floor = outbox.Floor()
        self._wakeups = Wakeups(self._connect_listener)

    # -- life ----------------------------------------------------------------------------------------------

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
        await self._wakeups.stop()
        self._disconnect()

    async def migrate(self) -> None:
        await migration.migrate(self._url, self._slot.schema)

    async def time(self) -> Instant:
        async with self._hot.connection() as connection:
            return int(await connection.fetchval("SELECT extract(epoch FROM clock_timestamp()) * 1000000"))

    def on_wakeup(self, wake: Callable[[], None]) -> None:
        self._wakeups.add(wake)

    # -- the path ------------------------------------------------------------------------------------------

    async def accept(self, submissions: Sequence[Submission], routing_version: int, now: Instant) -> list[Receipt]:
        intake = await self._directory.resolve(lambda: accept.Intake(submissions, self._directory))
        intake.check()

        async def keep(connection: Connection) -> list[Receipt]:
            return await intake.keep(connection, routing_version, now)

        receipts = await self._hot.run(keep, accept.BEGIN_ACCEPT)
        self._wakeups.notify()
        return receipts

    async def lanes(self, now: Instant) -> list[Lane]:
        async with self._hot.connection() as connection:
            rows = await (self._sweep(connection) if self._low_water.sweep_due else self._look(connection))
        return await self._directory.resolve(
            lambda: [claim.lane_of(self._directory.by_key[row[0]], row) for row in rows]
        )

    async def claim_due(
        self,
        quotas: Sequence[Quota],
        now: Instant,
        lease_until: Instant,
        worker: str,
        forced_max: int = 0,
        unserved: Sequence[UUID] = (),
    ) -> list[Claim]:
        demand = claim.Demand(await self._offers(quotas), now, lease_until, worker, forced_max, unserved)
        if demand.limited:
            rows = await self._hot.run(demand.take_within_limits)
        else:
            rows = await self._hot.run(demand.take, begin="")
        if self._low_water.needed:
            self._low_water.claimed([(row["endpoint_id"], row["was_due_at"]) for row in rows], now)
        return claim.claims_of(rows)

    async def settle(self, settlements: Sequence[Settlement], now: Instant) -> Settled:
        endpoint_ids = list({settlement.claim.endpoint_id for settlement in settlements})
        found = await self._directory.addresses(endpoint_ids)
        addresses = {address.endpoint_id: address for address in found if address is not None}
        return await self._hot.run(
            lambda connection: settle.settle(connection, settlements, addresses, now), settle.BEGIN_RELAXED
        )

    async def release(self, claims: Sequence[Claim], now: Instant) -> list[Claim]:
        released = await self._hot.run(lambda connection: settle.release(connection, claims, now), settle.BEGIN_RELAXED)
        self._wakeups.notify()
        return released

    async def expired(self, now: Instant, limit: int) -> list[Claim]:
        async with self._hot.connection() as connection:
            return claim.claims_of(await connection.fetch(claim.EXPIRED, now, limit))

    async def act(self, act: Action) -> tuple[ActionResult, Moved]:
        result = await super().act(act)
        if act.kind is ActionKind.RETRY:
            self._wakeups.notify()
        return result

    async def step_bulk(
        self, bulk: Bulk, expected_version: int, act: Action | None = None, line: AuditEntry | None = None
    ) -> BulkStep | None:
        step = await super().step_bulk(bulk, expected_version, act, line)
        if step is not None and act is not None and act.kind is ActionKind.RETRY:
            self._wakeups.notify()
        return step

    # -- the outbox ----------------------------------------------------------------------------------------

    def post_on(self, connection: object, posting: OutboxMessage, wake: Callable[[], None]) -> Awaitable[None] | None:
        return inserting.post_on(connection, posting, self._slot, wake)

    async def post(self, postings: Sequence[OutboxMessage]) -> None:
        await super().post(postings)
        self._wakeups.notify(POSTED)

    async def any_posted(self) -> bool:
        floor, started = self._floor.now(), time.monotonic()
        async with self._hot.connection() as connection:
            posted = bool(await connection.fetchval(outbox.ANY, floor))
        if not posted:
            self._floor.found_nothing(floor, time.monotonic() - started)
        return posted

    async def any_incident(self) -> bool:
        """Without a transaction: it is asked all the time."""
        async with self._hot.connection() as connection:
            return bool(await connection.fetchval("SELECT EXISTS (SELECT FROM doorstep_incidents)"))

    async def outbox(self, limit: int) -> list[OutboxMessage]:
        floor, started = self._floor.now(), time.monotonic()
        postings, last = await self._read(None, outbox_above, floor, limit)
        self._floor.found(floor, last, time.monotonic() - started)
        return postings

    async def clear_outbox(self, event_ids: Sequence[UUID]) -> None:
        await self._hot.run(lambda connection: connection.execute(outbox.CLEAR, list(event_ids)), settle.BEGIN_RELAXED)

    async def hold(self, task: Task, holder: str, now: Instant, until: Instant) -> bool:
        return await self._wakeups.hold(task_lock(task), (until - now) / SECOND)

    async def leave(self, task: Task, holder: str) -> None:
        await self._wakeups.leave(task_lock(task))

    def on_posted(self, wake: Callable[[], None]) -> None:
        self._wakeups.add(wake, POSTED)

    def tell_posted(self) -> None:
        self._wakeups.notify(POSTED)

    # -- cold verbs ----------------------------------------------------------------------------------------

    async def _read(
        self, scope: UUID | None, script: Callable[P, Transaction[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await self._run(self._cold, scope, lambda: script(*args, **kwargs), reading=True)

    async def _write(
        self, scope: UUID | None, script: Callable[P, Transaction[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """What the engine itself writes walks indexes only: a bury that sorts all that waits would hold up a claim."""
        connections = self._hot if scope is None else self._cold
        return await self._run(connections, scope, lambda: script(*args, **kwargs), reading=False)

    async def _run(
        self, connections: Connections, scope: UUID | None, make_script: Callable[[], Transaction[T]], *, reading: bool
    ) -> T:
        org_key = None if scope is None else await self._directory.org_key(scope)
        return await connections.run(
            lambda connection: transactions.run(connection, make_script), transactions.begin(org_key, reading=reading)
        )

    # -- inside --------------------------------------------------------------------------------------------

    async def _offers(self, quotas: Sequence[Quota]) -> list[claim.Offer]:
        addresses = await self._directory.addresses([quota.endpoint_id for quota in quotas])
        return [
            claim.Offer(
                address,
                quota.count,
                quota.concurrency_max,
                quota.rate_per_second,
                self._low_water.of(address.key),
                quota.bytes_max,
            )
            for quota, address in zip(quotas, addresses)
            if address is not None
        ]

    async def _sweep(self, connection: Connection) -> list[asyncpg.Record]:
        started = time.monotonic()
        rows = await connection.fetch(claim.SWEEP)
        self._low_water.swept([(row[0], row[1]) for row in rows], time.monotonic() - started)
        return rows

    async def _look(self, connection: Connection) -> list[asyncpg.Record]:
        marks = self._low_water.marks
        return await connection.fetch(claim.LOOK, list(marks), list(marks.values()))

    async def _check_database(self) -> None:
        try:
            async with self._cold.connection() as connection:
                await migration.check_schema(connection)
                await _warn_of_superuser(connection)
        except (InvalidAuthorizationSpecificationError, InvalidCatalogNameError) as error:
            raise ConfigError(
                f"database_url: PostgreSQL refuses it: {error}; correct the URL or the database"
            ) from error

    async def _connect_listener(self) -> asyncpg.Connection[asyncpg.Record]:
        return await asyncpg.connect(
            self._url,
            timeout=self._command_seconds,
            command_timeout=self._command_seconds,
            server_settings=_session(self._command_seconds, {"synchronous_commit": "off"} | self._place),
        )

    def _disconnect(self) -> None:
        self._hot.close()
        self._cold.close()


def _session(command_seconds: float, more: dict[str, str]) -> dict[str, str]:
    """The settings of a connection. The server gives up on a statement when we have, and frees its locks."""
    return {
        "application_name": "doorstep",
        "jit": "off",
        "synchronous_commit": "on",
        "statement_timeout": f"{round(command_seconds * 1000)}ms",
        "idle_in_transaction_session_timeout": f"{round(command_seconds * 1000)}ms",
        **more,
    }


async def _warn_of_superuser(connection: Connection) -> None:
    if await connection.fetchval("SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user"):
        warnings.warn(
            "the PostgreSQL role bypasses row-level security, which keeps organizations apart even if a query is"
            " wrong; connect as a role without SUPERUSER and BYPASSRLS",
            RuntimeWarning,
            stacklevel=2,
        )
