"""Connections to PostgreSQL: pools that reconnect by themselves, transactions, and what errors mean.

Work is given as a function and done in one transaction, so that it can be done again when PostgreSQL chose it to
break a deadlock. A connection on which anything else happened is thrown away, never reset: a frozen server would
not answer the reset either.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import asyncpg
from asyncpg.exceptions import (
    DeadlockDetectedError,
    InsufficientResourcesError,
    LockNotAvailableError,
    OperatorInterventionError,
    PostgresConnectionError,
    PostgresSystemError,
    ReadOnlySQLTransactionError,
    SerializationError,
    UniqueViolationError,
)

from doorstep.errors import DoorstepError, StoreUnavailable

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

Connection: TypeAlias = "PoolConnectionProxy[asyncpg.Record]"
T = TypeVar("T")

CONFLICTS = (DeadlockDetectedError, SerializationError, UniqueViolationError)
"""Two transactions got into each other's way; the same work can simply be done again."""

_UNAVAILABLE = (
    OSError,  # refused, reset, and every timeout of ours
    PostgresConnectionError,
    OperatorInterventionError,  # shutting down, starting up, cancelled, terminated
    InsufficientResourcesError,  # too many connections, disk full
    LockNotAvailableError,
    ReadOnlySQLTransactionError,  # this is no longer the primary
    PostgresSystemError,
)

_LOST = re.compile(r"clos(ed|ing)|released back|PoolConnectionHolder")
"""How asyncpg words that a connection is gone, or its pool is being closed under it; its other InterfaceErrors are about
how it is called."""

_CONFLICT_TRIES = 5


class Connections:
    """A pool, and the transactions run on it."""

    def __init__(self, url: str, settings: Mapping[str, str], connections_max: int, command_seconds: float) -> None:
        self._url = url
        self._settings = settings
        self._connections_max = connections_max
        self._seconds = command_seconds
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None

    async def open(self) -> None:
        """Get ready; the first connection is made by the first work."""
        self._pool = await asyncpg.create_pool(
            self._url,
            min_size=0,
            max_size=self._connections_max,
            timeout=self._seconds,
            command_timeout=self._seconds,
            server_settings=dict(self._settings),
            reset=_leave,
        )

    async def warm_up(self, count: int, statements: Sequence[str]) -> None:
        """Make so many connections ready before they are needed, planned statements included.

        A new one takes 25 ms to its first result: 4 to connect, 14 for asyncpg to learn the array types, the rest to
        plan. A delivery would wait for that. If the server has none to spare, they are made when they are needed.
        """
        await asyncio.gather(*(self._warm_up_one(statements) for _ in range(count)))

    async def _warm_up_one(self, statements: Sequence[str]) -> None:
        with suppress(StoreUnavailable):
            async with self.connection() as connection:
                for statement in statements:
                    await _run_on_nothing(connection, statement)

    def close(self) -> None:
        """Let go at once: what is still running is cut off, and the server undoes it."""
        if self._pool is not None:
            self._pool.terminate()
            self._pool = None

    async def run(self, work: Callable[[Connection], Awaitable[T]], begin: str = "BEGIN") -> T:
        """Do `work` in one transaction; again from its start when it lost a conflict with another one.

        With an empty `begin` the work is a single statement, which is a transaction by itself.
        """
        for _ in range(_CONFLICT_TRIES - 1):
            try:
                return await self._run_once(work, begin)
            except CONFLICTS:
                continue
        return await self._run_once(work, begin)

    async def _run_once(self, work: Callable[[Connection], Awaitable[T]], begin: str) -> T:
        async with self.connection() as connection:
            if not begin:
                return await work(connection)
            await connection.execute(begin)
            try:
                result = await work(connection)
            except (DoorstepError, *CONFLICTS):
                await connection.execute("ROLLBACK")
                raise
            await connection.execute("COMMIT")
            return result

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection outside any transaction. What the server or the network does is raised as StoreUnavailable."""
        pool = self._pool
        if pool is None:
            raise StoreUnavailable("the PostgreSQL store is closed; open it first")
        with unavailability():
            connection = await pool.acquire(timeout=self._seconds)
        try:
            with unavailability():
                yield connection
        except BaseException as error:
            if isinstance(error, StoreUnavailable) or not isinstance(error, (DoorstepError, *CONFLICTS)):
                _throw_away(connection)
            if isinstance(error, AttributeError) and self._pool is not pool:
                # cut off by `close` between two messages, asyncpg stumbles over its own missing parts
                raise StoreUnavailable("the PostgreSQL store was closed meanwhile") from error
            raise
        finally:
            with unavailability():
                await pool.release(connection)  # not of `self`: the store may have been closed meanwhile


@contextmanager
def unavailability() -> Iterator[None]:
    """Raise as StoreUnavailable what only means that the server is not there now."""
    try:
        yield
    except _UNAVAILABLE as error:
        raise StoreUnavailable(f"PostgreSQL: {_worded(error)}") from error
    except (asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
        if not _LOST.search(str(error)):
            raise  # a statement given wrong arguments is a bug of ours
        raise StoreUnavailable(f"PostgreSQL: {error}") from error


async def _run_on_nothing(connection: Connection, statement: str) -> None:
    """Run a statement that works on batches with an empty one: it is planned, and changes nothing."""
    prepared = await connection.prepare(statement)
    nothing = [_NOTHING.get(parameter.name, []) for parameter in prepared.get_parameters()]
    await connection.fetch(statement, *nothing)


_NOTHING: dict[str, object] = {"int4": 0, "int8": 0, "text": ""}
"""By the names of types; every other parameter is an array."""


def _worded(error: BaseException) -> str:
    return str(error) or ("no answer in time" if isinstance(error, TimeoutError) else type(error).__name__)


def _throw_away(connection: Connection) -> None:
    with suppress(asyncpg.InterfaceError):  # one that the server has closed is no longer ours
        connection.terminate()


async def _leave(_: object) -> None:
    """Nothing outlives its transaction here, so a connection needs no reset (one more round trip each)."""
