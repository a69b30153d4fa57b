"""Connections to PostgreSQL: pools that reconnect automatically, transactions, errors, and migration.

Work is passed as a function that runs in one transaction, so that it can be repeated if PostgreSQL cancels it to break
a deadlock. After an unexpected error the connection is closed, not reset: a frozen server would not respond to the
reset either.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

import asyncpg
from asyncpg.exceptions import (
    DeadlockDetectedError,
    InsufficientPrivilegeError,
    InsufficientResourcesError,
    InvalidAuthorizationSpecificationError,
    InvalidCatalogNameError,
    InvalidPasswordError,
    LockNotAvailableError,
    OperatorInterventionError,
    PostgresConnectionError,
    PostgresSystemError,
    ReadOnlySQLTransactionError,
    SerializationError,
    UniqueViolationError,
)
from sqlalchemy import text
from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import NullPool

from doorstep.errors import ConfigError, DoorstepError, StoreUnavailable
from doorstep.stores.program_sql import Sql, SqlDefinitions, define
from doorstep.stores.sql import migrations
from doorstep.stores.sql.ddl import ALL_ORGS, MIGRATION_LOCK, SCOPE
from doorstep.stores.sql.queries.transaction import Rows, Step, Transaction, prepare

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

Connection: TypeAlias = "PoolConnectionProxy[asyncpg.Record]"
T = TypeVar("T")

CONFLICTS = (DeadlockDetectedError, SerializationError, UniqueViolationError)
"""Errors that mean a conflict between two transactions. The work can simply be repeated."""

_UNAVAILABLE = (
    OSError,  # connection refused or reset, and all our own timeouts
    PostgresConnectionError,
    OperatorInterventionError,  # shutting down, starting up, cancelled, terminated
    InsufficientResourcesError,  # too many connections, disk full
    LockNotAvailableError,
    ReadOnlySQLTransactionError,  # the server is no longer the primary
    PostgresSystemError,
)

_LOST = re.compile(r"clos(ed|ing)|released back|PoolConnectionHolder")
"""Matches asyncpg's messages for a lost connection or a closing pool. asyncpg's other InterfaceErrors mean that it was
called incorrectly."""

_CODEC = re.compile(r"codec|encoder|data format")
"""Matches the messages of asyncpg's InternalClientError about a value that it cannot encode. All others mean that a
connection is in a state that asyncpg does not expect, for example because the server ended it while it was being
opened: "got result for unknown protocol state 3"."""
_CONFLICT_TRIES = 5


class Connections:
    """A connection pool that runs transactions."""

    def __init__(self, url: str, settings: Mapping[str, str], connections_max: int, command_seconds: float) -> None:
        self._url = url
        self._settings = settings
        self._connections_max = connections_max
        self._seconds = command_seconds
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None

    async def open(self) -> None:
        """Create the pool. The first connection is opened when it is needed."""
        self._pool = await asyncpg.create_pool(
            self._url,
            min_size=0,
            max_size=self._connections_max,
            timeout=self._seconds,
            command_timeout=self._seconds,
            server_settings=dict(self._settings),
            reset=_no_reset,
        )

    async def warm_up(self, count: int, statements: Sequence[str]) -> None:
        """Open connections and plan these statements before they are needed.

        A new connection takes 25 ms to return its first result: 4 ms to connect, 14 ms for asyncpg to load the array
        types, and the rest to plan. Without warming up, the first deliveries would have to wait for that. If the server
        has no connections available now, they are opened later, when they are needed.
        """
        await asyncio.gather(*(self._warm_up_one(statements) for _ in range(count)))

    async def _warm_up_one(self, statements: Sequence[str]) -> None:
        with suppress(StoreUnavailable):
            async with self.connection() as connection:
                for statement in statements:
                    await _run_on_empty_batch(connection, statement)

    def close(self) -> None:
        """Close all connections immediately. The server rolls back transactions that are still running."""
        if self._pool is not None:
            self._pool.terminate()
            self._pool = None

    async def run(self, work: Callable[[Connection], Awaitable[T]], begin: str = "BEGIN") -> T:
        """Run `work` in one transaction. After a conflict with another transaction, run it again from the start.

        If `begin` is empty, the work must be a single statement, which then runs as its own transaction.
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

    async def fetch(self, statement: str, *arguments: object) -> list[asyncpg.Record]:
        """Run a single statement as its own transaction."""
        async with self.connection() as connection:
            return await connection.fetch(statement, *arguments)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection with no open transaction. Errors of the server or the network are raised as StoreUnavailable."""
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
                with suppress(asyncpg.InterfaceError):  # the server may have closed it already
                    connection.terminate()
            if isinstance(error, AttributeError) and self._pool is not pool:
                # If `close` ends the connection between two messages, asyncpg fails with an AttributeError.
                raise StoreUnavailable("the PostgreSQL store was closed meanwhile") from error
            raise
        finally:
            with unavailability():
                await pool.release(connection)  # not `self._pool`: the store may have been closed in the meantime


@contextmanager
def unavailability() -> Iterator[None]:
    """If an error means that the server is unavailable, raise StoreUnavailable instead."""
    try:
        yield
    except _UNAVAILABLE as error:
        raise StoreUnavailable(f"PostgreSQL: {_message_of(error)}") from error
    except (asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
        confused = isinstance(error, asyncpg.InternalClientError) and not _CODEC.search(str(error))
        if not confused and not _LOST.search(str(error)):
            raise  # a statement with wrong arguments is a bug in Doorstep
        raise StoreUnavailable(f"PostgreSQL: {error}") from error


_REFUSALS: dict[type[Exception], str] = {
    InvalidPasswordError: "correct the password",
    InvalidAuthorizationSpecificationError: "create the role, allow it in pg_hba.conf, or correct the user",
    InvalidCatalogNameError: "create the database with CREATE DATABASE, or correct its name",
    InsufficientPrivilegeError: "grant this role the privilege, or correct the user",
}
"""What to do if PostgreSQL refuses to let us in, the most specific errors first."""


@contextmanager
def refusal() -> Iterator[None]:
    """If PostgreSQL refuses the settings, raise ConfigError with its own reason."""
    try:
        with unavailability():
            yield
    except (
        InvalidAuthorizationSpecificationError,
        InvalidCatalogNameError,
        InsufficientPrivilegeError,
        DBAPIError,
    ) as error:
        reason = error.orig.__cause__ if isinstance(error, DBAPIError) and error.orig else error
        remedy = next((remedy for kind, remedy in _REFUSALS.items() if isinstance(reason, kind)), None)
        if remedy is None:
            raise
        raise ConfigError(f"PostgreSQL refuses it: {reason}; {remedy} in DOORSTEP_DATABASE_URL") from error


async def _run_on_empty_batch(connection: Connection, statement: str) -> None:
    """Run a batch statement with an empty batch, so that PostgreSQL plans it but changes no rows."""
    prepared = await connection.prepare(statement)
    empty = [_EMPTY.get(parameter.name, []) for parameter in prepared.get_parameters()]
    await connection.fetch(statement, *empty)


_EMPTY: dict[str, object] = {"int4": 0, "int8": 0, "text": ""}
"""Empty values by type name. Parameters of all other types are arrays."""


def _message_of(error: BaseException) -> str:
    if isinstance(error, socket.gaierror):
        return f"the name of its host cannot be resolved ({error.strerror})"
    if isinstance(error, ConnectionRefusedError):
        return f"nothing listens at its host and port ({error})"
    if "rejected SSL upgrade" in str(error):
        return "it does not offer TLS; turn TLS on there, or set sslmode=disable"
    return str(error) or ("no response in time" if isinstance(error, TimeoutError) else type(error).__name__)


async def _no_reset(_: object) -> None:
    """Do nothing. A reset would be another round trip, and a connection has no state that outlasts a transaction."""


# -- scripts of queries/ -----------------------------------------------------------------------------------

_DIALECT = PGDialect_asyncpg()  # type: ignore[no-untyped-call]


def begin_transaction(org_key: int | None, *, reading: bool) -> str:
    """The statements that begin a transaction. The transaction sees the rows of one organization, or all rows if
    `org_key` is None.

    All statements of a reading transaction see the same snapshot. In a writing transaction each statement is planned
    again: writes are rare, and a plan that was cached while the tables were small would stay in use after they have
    grown.
    """
    scope = ALL_ORGS if org_key is None else int(org_key)
    if reading:
        return f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL {SCOPE} = '{scope}'"
    return f"BEGIN; SET LOCAL {SCOPE} = '{scope}'; SET LOCAL plan_cache_mode = force_custom_plan"


async def run_transaction(connection: Connection, make_script: Callable[[], Transaction[T]]) -> T:
    """Run a script to its end, in the current transaction."""
    script = make_script()
    try:
        step = next(script)
        while True:
            step = script.send(await run_step(connection, step))
    except StopIteration as end:
        return cast(T, end.value)
    finally:
        script.close()


async def run_step(connection: Connection, step: Step) -> Rows:
    """Run one step, either as part of a script or on its own."""
    # asyncpg already returns UUIDs and booleans, so no values have to be converted.
    statement, arguments, _, _ = prepare(step, _DIALECT)
    if not arguments:
        return []
    if len(arguments) > 1:
        await connection.executemany(statement, arguments)
        return []
    return cast(Rows, await connection.fetch(statement, *arguments[0]))


# -- migration ---------------------------------------------------------------------------------------------


async def migrate(url: str, schema: str | None, definitions: SqlDefinitions) -> None:
    """Run the missing migrations, and the changed definitions of the program, in one transaction. Processes that migrate
    at the same time wait for each other."""
    connect = partial(_connect, url, schema)
    engine = create_async_engine("postgresql+asyncpg://", async_creator=connect, poolclass=NullPool)
    with refusal():
        async with engine.begin() as connection:
            await connection.execute(text(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})"))
            if schema is not None:
                await _make_schema(connection, schema)
            await connection.run_sync(migrations.upgrade)
            await connection.run_sync(lambda sync: define(sync.exec_driver_sql, Sql("postgresql"), definitions))


async def check_schema(connection: Connection) -> None:
    """Raise ConfigError unless the database has exactly the schema that this version needs."""
    present = await connection.fetchval("SELECT to_regclass($1)", migrations.VERSION_TABLE)
    found = await connection.fetchval(f"SELECT version_num FROM {migrations.VERSION_TABLE}") if present else None
    migrations.require_current(found, "the PostgreSQL database")


async def _make_schema(connection: AsyncConnection, schema: str) -> None:
    """Create the schema if it is missing. CREATE SCHEMA IF NOT EXISTS would need the privilege to create schemas even
    if the schema exists."""
    if await connection.scalar(text("SELECT to_regnamespace(:schema) IS NULL"), {"schema": schema}):
        await connection.execute(text(f"CREATE SCHEMA {schema}"))


async def _connect(url: str, schema: str | None) -> asyncpg.Connection[asyncpg.Record]:
    place = {} if schema is None else {"search_path": schema}
    return await asyncpg.connect(
        url, server_settings={SCOPE: ALL_ORGS, "application_name": "doorstep migrate", **place}
    )
