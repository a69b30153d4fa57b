"""SqliteStore: a store in one file, which the processes of one machine can share."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Protocol, TypeVar
from uuid import UUID

from doorstep.clock import Instant
from doorstep.errors import ConfigError, StoreUnavailable
from doorstep.model.claim import Claim, Lane, Lease, Quota, Settled, Settlement
from doorstep.model.delivery import DeliveryState
from doorstep.model.event import Receipt, Submission, any_left
from doorstep.model.outbox import OutboxMessage
from doorstep.stores.limits import check_submission
from doorstep.stores.program_sql import NO_DEFINITIONS, SqlDefinitions
from doorstep.stores.sql.keys import SqliteKeys
from doorstep.stores.sql.outbox_insert import SQLITE, OutboxTable, insert_on
from doorstep.stores.sql.queries.transaction import Row, Transaction
from doorstep.stores.sql.schema import FORWARDABLE
from doorstep.stores.sql.sqlite import accept, claim, settle
from doorstep.stores.sql.sqlite.connections import Readers, connect_reader, migrate, require_migrated, run_transaction
from doorstep.stores.sql.sqlite.writer import Work, Writer
from doorstep.stores.sql.verbs import Mode, SqlVerbs
from doorstep.stores.store import Features, Task, Topic

T = TypeVar("T")

ANY_POSTED = f"SELECT 1 FROM doorstep_outbox WHERE {FORWARDABLE} LIMIT 1"
ANY_INCIDENT = "SELECT 1 FROM doorstep_incidents LIMIT 1"
CLEAR_OUTBOX = "DELETE FROM doorstep_outbox WHERE uid = ?"
ACQUIRE_LOCK = "UPDATE doorstep_variables SET value = ? WHERE name = ? AND (value <= ? OR value = ?)"
RELEASE_LOCK = "UPDATE doorstep_variables SET value = 0 WHERE name = ? AND value = ?"


class Runner(Protocol):
    """Runs work on a connection. Implemented by the writer of a file, the readers of a file, and the in-memory
    database."""

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T: ...


class WriteRunner(Protocol):
    """Runs work that writes. A durable write is on stable storage when the call returns."""

    async def run(self, work: Callable[[sqlite3.Connection], T], *, durable: bool = True) -> T: ...

    async def request(self, work: Work, request: object, *, durable: bool = True) -> Any: ...


class SqliteVerbs(SqlVerbs):
    """The methods that SqliteStore and MemoryStore share."""

    features = Features(many_machines=False, notices_posts=True, notices_writes=True, announces_work=True)
    aggregate_max = 100
    """Aggregating 100 counters takes 5 ms (18,000 counters per second). During this time, no other process can write to
    the file."""

    def __init__(self, fetch_committed: Callable[[str, Sequence[object]], list[Row]]) -> None:
        self._keys = SqliteKeys(fetch_committed)
        self._accept_all = partial(accept.accept, key_map=self._keys)
        self._locks: dict[tuple[Task, str], Instant] = {}
        """The expiry time of each lock that this process holds. The database contains the same time, by which a holder
        recognizes its own lock: no two locks expire in the same microsecond."""

    @abstractmethod
    def _opened_writer(self) -> WriteRunner:
        """The writer. Raises StoreUnavailable if the store is not open."""

    @abstractmethod
    def _opened_readers(self) -> Runner:
        """The readers. Raises StoreUnavailable if the store is not open."""

    async def time(self) -> Instant:
        return time.time_ns() // 1_000

    # -- the path of an event ------------------------------------------------------------------------------

    async def accept(
        self, submissions: Sequence[Submission], routing: Mapping[UUID, int], now: Instant, lease: Lease | None = None
    ) -> list[Receipt]:
        for submission in submissions:
            check_submission(submission)
        call = accept.Call(submissions, routing, now, lease)
        receipts: list[Receipt] = await self._opened_writer().request(self._accept_all, call)
        if any_left(submissions, receipts):
            self.wake_others(Topic.DELIVERIES)
        return receipts

    async def due_lanes(self, now: Instant, later_max: int | None = None) -> list[Lane]:
        read = partial(claim.lanes, key_map=self._keys, now=now, later_max=later_max)
        return await self._opened_readers().run(read)

    async def claim(
        self,
        quotas: Sequence[Quota],
        now: Instant,
        lease_until: Instant,
        worker: str,
        forced_max: int = 0,
        unserved: Sequence[UUID] = (),
    ) -> list[Claim]:
        lease = claim.Lease(now, lease_until, worker)
        return await self._run_relaxed(
            lambda connection: claim.claim_due(connection, self._keys, quotas, lease, forced_max, unserved)
        )

    async def settle(self, settlements: Sequence[Settlement], now: Instant) -> Settled:
        settled = await self._run_relaxed(lambda connection: settle.settle(connection, self._keys, settlements, now))
        if any(one.state is DeliveryState.DEAD for one in settlements):
            self._announce_change()
        return settled

    async def release(self, claims: Sequence[Claim], now: Instant) -> list[Claim]:
        return await self._run_relaxed(lambda connection: settle.release(connection, claims, now))

    async def expired(self, now: Instant, limit: int) -> list[Claim]:
        return await self._opened_readers().run(lambda connection: claim.expired(connection, self._keys, now, limit))

    # -- the outbox ----------------------------------------------------------------------------------------

    async def any_waiting(self, topic: Topic) -> bool:
        query = ANY_INCIDENT if topic is Topic.INCIDENTS else ANY_POSTED
        return await self._opened_readers().run(lambda connection: connection.execute(query).fetchone() is not None)

    async def announce_posts(self, wanted: bool) -> bool:
        return True  # the writer notices all commits

    async def clear_outbox(self, event_ids: Sequence[UUID]) -> None:
        def work(connection: sqlite3.Connection) -> None:
            connection.executemany(CLEAR_OUTBOX, [(event_id.bytes,) for event_id in event_ids])

        await self._run_relaxed(work)

    # -- tasks ---------------------------------------------------------------------------------------------

    async def acquire_lock(self, task: Task, holder: str, now: Instant, until: Instant) -> bool:
        def work(connection: sqlite3.Connection) -> bool:
            mine = self._locks.get((task, holder), 0)
            held = connection.execute(ACQUIRE_LOCK, (until, task.value, now, mine)).rowcount == 1
            self._locks[task, holder] = until if held else 0
            return held

        return await self._run_relaxed(work)

    async def release_lock(self, task: Task, holder: str) -> None:
        def work(connection: sqlite3.Connection) -> None:
            if mine := self._locks.pop((task, holder), 0):
                connection.execute(RELEASE_LOCK, (task.value, mine))

        await self._run_relaxed(work)

    # -- running work --------------------------------------------------------------------------------------

    async def _run(self, mode: Mode, scope: UUID | None, make_script: Callable[[], Transaction[T]]) -> T:
        def work(connection: sqlite3.Connection) -> T:
            return run_transaction(connection, make_script())

        if mode is Mode.READ:
            return await self._opened_readers().run(work)
        return await self._opened_writer().run(work, durable=mode is Mode.WRITE)

    async def _run_relaxed(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run work without waiting for the disk."""
        return await self._opened_writer().run(work, durable=False)


class SqliteStore(SqliteVerbs):
    """A Store in a SQLite file. One thread does all writes, and commits all waiting writes together."""

    def __init__(self, path: str) -> None:
        if not path or path.startswith(":"):
            raise ConfigError(f"a SQLite store needs a file, got {path!r}; for a store without one use memory://")
        self._path = str(Path(path).absolute())  # the program may change its working directory later
        super().__init__(self._fetch_committed)
        self._wakes: dict[Topic, list[Callable[[], None]]] = {topic: [] for topic in Topic}
        self._writer: Writer | None = None
        self._readers: Readers | None = None

    # -- life cycle ----------------------------------------------------------------------------------------

    async def open(self) -> None:
        if self._writer is not None:
            return
        await asyncio.to_thread(require_migrated, self._path)
        self._readers = Readers(self._path)
        self._writer = Writer(self._path)
        self._writer.start()
        if any(self._wakes.values()):
            self._writer.watch(self._wake)

    async def close(self) -> None:
        writer, self._writer = self._writer, None
        readers, self._readers = self._readers, None
        if readers is not None:
            await readers.stop()
        if writer is not None:
            await writer.stop()

    async def migrate(self, definitions: SqlDefinitions = NO_DEFINITIONS) -> None:
        await asyncio.to_thread(migrate, self._path, definitions)

    def on_wakeup(self, topic: Topic, wake: Callable[[], None]) -> None:
        """Call `wake` after any write by another process, because the writer cannot detect the topic of a write."""
        self._wakes[topic].append(wake)
        if self._writer is not None:
            self._writer.watch(self._wake)

    def _wake(self) -> None:
        for wake in chain(*self._wakes.values()):
            wake()

    def _announce_change(self) -> None:
        """Wake this process. The writers of other processes detect the write."""
        for wake in self._wakes[Topic.INCIDENTS]:
            wake()

    def wake_others(self, topic: Topic) -> None:
        """Do nothing, because the writers of other processes detect new writes automatically."""

    # -- the outbox ----------------------------------------------------------------------------------------

    def post_on(self, connection: object, message: OutboxMessage, wake: Callable[[], None]) -> Awaitable[None] | None:
        return insert_on(connection, message, OutboxTable(SQLITE), wake)

    def _opened_writer(self) -> Writer:
        if self._writer is None:
            raise StoreUnavailable(f"{self._path} is not open")
        return self._writer

    def _opened_readers(self) -> Readers:
        if self._readers is None:
            raise StoreUnavailable(f"{self._path} is not open")
        return self._readers

    def _fetch_committed(self, query: str, values: Sequence[object]) -> list[Row]:
        with closing(connect_reader(self._path)) as connection:
            return connection.execute(query, values).fetchall()
