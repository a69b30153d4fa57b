"""SqliteStore: everything in one file, shared by the processes of one machine."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar
from uuid import UUID

from doorstep.clock import Instant
from doorstep.errors import ConfigError, StoreUnavailable
from doorstep.model.claim import Claim, Lane, Quota, Settled, Settlement
from doorstep.model.event import Receipt, Submission
from doorstep.model.outbox import OutboxMessage
from doorstep.model.worker import WorkerEntry
from doorstep.stores.sql.posting import inserting
from doorstep.stores.sql.posting.row import SQLITE, Slot
from doorstep.stores.sql.queries import workers
from doorstep.stores.sql.queries.transaction import Transaction
from doorstep.stores.sql.queries.verbs import ColdVerbs
from doorstep.stores.sql.sqlite import accept, claim, outbox, settle
from doorstep.stores.sql.sqlite.connections import connect_reader
from doorstep.stores.sql.sqlite.locks import Locks
from doorstep.stores.sql.sqlite.migration import migrate, require_migrated
from doorstep.stores.sql.sqlite.names import Directory
from doorstep.stores.sql.sqlite.readers import Readers
from doorstep.stores.sql.sqlite.transactions import run_transaction
from doorstep.stores.sql.sqlite.writer import Work, Writer
from doorstep.stores.store import Capabilities, Task
from doorstep.stores.text import check_storable

P = ParamSpec("P")
T = TypeVar("T")


class Runner(Protocol):
    """Where work on a connection is done: the writer of a file, its readers, or the database in memory."""

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T: ...


class WriteRunner(Protocol):
    """The same for work that writes, which says whether it must be on stable storage when it is answered."""

    async def run(self, work: Callable[[sqlite3.Connection], T], *, durable: bool = True) -> T: ...

    async def request(self, work: Work, request: object, *, durable: bool = True) -> Any: ...


class SqliteVerbs(ColdVerbs):
    """The verbs of a store on SQLite, wherever it keeps its data."""

    capabilities = Capabilities(many_machines=False, notices_postings=True)
    fold_max = 100
    """5 ms, for which nobody else writes to the file: 18,000 ticks a second."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._accept_all = partial(accept.accept, directory=directory)
        self._holding = Locks()

    @abstractmethod
    def _opened_writer(self) -> WriteRunner:
        """StoreUnavailable if it is not open."""

    @abstractmethod
    def _opened_readers(self) -> Runner:
        """StoreUnavailable if it is not open."""

    async def time(self) -> Instant:
        return time.time_ns() // 1_000

    # -- the path ------------------------------------------------------------------------------------------

    async def accept(self, submissions: Sequence[Submission], routing_version: int, now: Instant) -> list[Receipt]:
        for submission in submissions:
            check_storable("event_type", submission.event.event_type)
            check_storable("correlation_id", submission.event.correlation_id)
            check_storable("ordering_key", submission.event.ordering_key)
            check_storable("idempotency_key", submission.idempotency_key)
        call = accept.Call(submissions, routing_version, now)
        receipts: list[Receipt] = await self._opened_writer().request(self._accept_all, call)
        return receipts

    async def lanes(self, now: Instant) -> list[Lane]:
        return await self._opened_readers().run(partial(claim.lanes, directory=self._directory))

    async def claim_due(
        self,
        quotas: Sequence[Quota],
        now: Instant,
        lease_until: Instant,
        worker: str,
        forced_max: int = 0,
        unserved: Sequence[UUID] = (),
    ) -> list[Claim]:
        lease = claim.Lease(now, lease_until, worker)

        def work(connection: sqlite3.Connection) -> list[Claim]:
            return claim.claim_due(connection, self._directory, quotas, lease, forced_max, unserved)

        return await self._opened_writer().run(work, durable=False)

    async def settle(self, settlements: Sequence[Settlement], now: Instant) -> Settled:
        return await self._opened_writer().run(
            lambda connection: settle.settle(connection, self._directory, settlements, now), durable=False
        )

    async def release(self, claims: Sequence[Claim], now: Instant) -> list[Claim]:
        return await self._opened_writer().run(
            lambda connection: settle.release(connection, claims, now), durable=False
        )

    async def expired(self, now: Instant, limit: int) -> list[Claim]:
        return await self._opened_readers().run(
            lambda connection: claim.expired(connection, self._directory, now, limit)
        )

    # -- the outbox ----------------------------------------------------------------------------------------

    async def any_posted(self) -> bool:
        return await self._opened_readers().run(outbox.any_posted)

    async def clear_outbox(self, event_ids: Sequence[UUID]) -> None:
        await self._opened_writer().run(lambda connection: outbox.clear(connection, event_ids), durable=False)

    # -- tasks ---------------------------------------------------------------------------------------------

    async def hold(self, task: Task, holder: str, now: Instant, until: Instant) -> bool:
        return await self._opened_writer().run(
            lambda connection: self._holding.take(connection, task, holder, now, until), durable=False
        )

    async def leave(self, task: Task, holder: str) -> None:
        await self._opened_writer().run(lambda connection: self._holding.leave(connection, task, holder), durable=False)

    # -- workers -------------------------------------------------------------------------------------------

    async def beat(self, worker: WorkerEntry) -> None:
        """Without waiting for the disk: an idle process must not keep it busy."""
        await self._opened_writer().run(
            lambda connection: run_transaction(connection, workers.beat(worker)), durable=False
        )

    # -- everything else -----------------------------------------------------------------------------------

    async def _read(
        self, scope: UUID | None, script: Callable[P, Transaction[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await self._opened_readers().run(lambda connection: run_transaction(connection, script(*args, **kwargs)))

    async def _write(
        self, scope: UUID | None, script: Callable[P, Transaction[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await self._opened_writer().run(lambda connection: run_transaction(connection, script(*args, **kwargs)))


class SqliteStore(SqliteVerbs):
    """A Store in a SQLite file. Writes go through one thread, which commits what has come together in one go."""

    def __init__(self, path: str) -> None:
        if not path or path.startswith(":"):
            raise ConfigError(f"a SQLite store needs a file, got {path!r}; for a store without one use memory://")
        self._path = str(Path(path).absolute())  # once: the program may go to another folder, or its folder may go
        super().__init__(Directory(lambda: closing(connect_reader(self._path))))
        self._wakes: list[Callable[[], None]] = []
        self._writer: Writer | None = None
        self._readers: Readers | None = None

    # -- life ----------------------------------------------------------------------------------------------

    async def open(self) -> None:
        if self._writer is not None:
            return
        await asyncio.to_thread(require_migrated, self._path)
        self._readers = Readers(self._path)
        self._writer = Writer(self._path)
        self._writer.start()
        if self._wakes:
            self._writer.watch(self._wake)

    async def close(self) -> None:
        writer, self._writer = self._writer, None
        readers, self._readers = self._readers, None
        if readers is not None:
            await readers.stop()
        if writer is not None:
            await writer.stop()

    async def migrate(self) -> None:
        await asyncio.to_thread(migrate, self._path)

    def on_wakeup(self, wake: Callable[[], None]) -> None:
        self._wakes.append(wake)
        if self._writer is not None:
            self._writer.watch(self._wake)

    def _wake(self) -> None:
        for wake in self._wakes:
            wake()

    # -- the outbox ----------------------------------------------------------------------------------------

    def post_on(self, connection: object, posting: OutboxMessage, wake: Callable[[], None]) -> Awaitable[None] | None:
        return inserting.post_on(connection, posting, Slot(SQLITE), wake)

    def on_posted(self, wake: Callable[[], None]) -> None:
        """The writer sees that somebody else has written, whatever it was."""
        self.on_wakeup(wake)

    def tell_posted(self) -> None:
        """They see it by themselves."""

    def _opened_writer(self) -> Writer:
        if self._writer is None:
            raise StoreUnavailable(f"{self._path} is not open")
        return self._writer

    def _opened_readers(self) -> Readers:
        if self._readers is None:
            raise StoreUnavailable(f"{self._path} is not open")
        return self._readers
