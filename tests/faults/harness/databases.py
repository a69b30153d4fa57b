"""The two databases under test: their location, their final content, and the faults that can be injected."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar
from uuid import UUID

import asyncpg
import psutil

from tests.faults.harness.evidence import FinalState, StoredAttempt, StoredDelivery, StoredEvent, StoredMove
from tests.support.patience import PATIENCE_SECONDS
from tests.support.postgres_server import PostgresServer

Hurt = Callable[[random.Random], None]

T = TypeVar("T")

_RECOVERY_TRIES = 100
_RECOVERY_PAUSE_SECONDS = 0.1
_LOCK_SECONDS_MAX = 1.0
"""No working process holds the lock longer than this."""

_numbers = itertools.count(1)


class Database(Protocol):
    name: str
    url: str

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """The result of a query, read directly from the database without Doorstep."""

    def writable(self) -> bool:
        """Whether another process could write now. A stopped process may hold the lock of the SQLite file."""

    def faults(self, outage_seconds: float) -> dict[str, Hurt]:
        """Faults by name. After each fault, the database works again."""

    def heal(self) -> None: ...


class SqliteDatabase:
    """A file. It has no process to kill; the only fault is a lock held by another process."""

    name = "sqlite"

    def __init__(self, folder: Path) -> None:
        self.path = folder / "doorstep.db"
        self.url = f"sqlite:///{self.path}"

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        connection = sqlite3.connect(f"file:{self.path}?mode=ro", uri=True, timeout=PATIENCE_SECONDS)
        try:
            return connection.execute(statement).fetchall()
        finally:
            connection.close()

    def writable(self) -> bool:
        connection = sqlite3.connect(self.path, timeout=_LOCK_SECONDS_MAX, isolation_level=None)
        try:
            connection.execute("BEGIN IMMEDIATE")
            return True
        except sqlite3.OperationalError:
            return False
        finally:
            connection.close()

    def faults(self, outage_seconds: float) -> dict[str, Hurt]:
        return {"foreign lock": lambda _: hold_write_lock(self.path, outage_seconds)}

    def heal(self) -> None:
        """Do nothing: locks end with the processes that held them."""


class PostgresDatabase:
    """One database of a throwaway server that can be stopped, frozen, killed and cut off."""

    name = "postgres"

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self._database = f"faults_{next(_numbers)}"
        _insisting(lambda: server.create_database(self._database), subprocess.CalledProcessError)
        self.url = server.url(self._database)

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        return _insisting(lambda: asyncio.run(self._fetch(statement)), OSError, asyncpg.PostgresError)

    async def _fetch(self, statement: str) -> list[tuple[Any, ...]]:
        # As the superuser, because row-level security hides all rows from the owner.
        connection = await asyncpg.connect(self.server.url(self._database, role="postgres"), timeout=PATIENCE_SECONDS)
        try:
            return [tuple(row) for row in await connection.fetch(statement)]
        finally:
            await connection.close()

    def writable(self) -> bool:
        return True

    def faults(self, outage_seconds: float) -> dict[str, Hurt]:
        return {
            "restart": lambda _: self.server.restart(immediate=True),
            "outage": lambda _: self._outage(outage_seconds),
            "kill PostgreSQL": lambda _: self._crash(),
            "kill a backend": self.kill_backend,
            "freeze": lambda _: self._freeze(outage_seconds),
            "connections terminated": lambda _: self.kill_connections(),
        }

    def heal(self) -> None:
        self.server.thaw()

    def kill_connections(self) -> None:
        _insisting(lambda: self.server.kill_connections(self._database), subprocess.CalledProcessError)

    def kill_backend(self, chance: random.Random) -> None:
        """SIGKILL one server process: the postmaster then ends all sessions and recovers from the WAL."""
        pids = [row[0] for row in self.rows("SELECT pid FROM pg_stat_activity WHERE datname = current_database()")]
        with suppress(psutil.NoSuchProcess):  # the session may have ended meanwhile, as our own has
            psutil.Process(chance.choice(pids)).send_signal(signal.SIGKILL)

    def _outage(self, seconds: float) -> None:
        self.server.stop("immediate")
        time.sleep(seconds)
        self.server.start()

    def _crash(self) -> None:
        self.server.stop("kill")
        self.server.start()

    def _freeze(self, seconds: float) -> None:
        self.server.freeze()
        time.sleep(seconds)
        self.server.thaw()


def _insisting(work: Callable[[], T], *excused: type[BaseException]) -> T:
    """Repeat the work while the server is still recovering from the previous fault."""
    for _ in range(_RECOVERY_TRIES):
        with suppress(*excused):
            return work()
        time.sleep(_RECOVERY_PAUSE_SECONDS)
    return work()


def hold_write_lock(path: Path, seconds: float) -> None:
    """Let another process take SQLite's write lock and hold it."""
    script = (
        "import sqlite3, sys, time\n"
        "connection = sqlite3.connect(sys.argv[1], timeout=30, isolation_level=None)\n"
        "connection.execute('BEGIN IMMEDIATE')\n"
        "time.sleep(float(sys.argv[2]))\n"
    )
    subprocess.run([sys.executable, "-c", script, str(path), str(seconds)], check=True)


def read_final_state(database: Database) -> FinalState:
    """Everything that the checker needs, in the same form for both databases."""
    endpoints = {row: json.loads(document)["name"] for row, document in database.rows(_ENDPOINTS)}
    events = {row[0]: StoredEvent(_id(row[1]), row[2], row[3], _digest(row[4])) for row in database.rows(_EVENTS)}
    return FinalState(
        events=list(events.values()),
        deliveries=[
            StoredDelivery(row, events[event].event_id if event in events else "", endpoints[endpoint], *rest)
            for row, event, endpoint, *rest in database.rows(_DELIVERIES)
        ],
        attempts=[StoredAttempt(*row) for row in database.rows(_ATTEMPTS)],
        moves=[StoredMove(*row) for row in database.rows(_MOVES)],
        operator_acts=sum(len(json.loads(subjects)) for (subjects,) in database.rows(_AUDITED)),
    )


def open_deliveries(database: Database) -> int:
    """How many deliveries are waiting or in progress."""
    return int(database.rows("SELECT count(*) FROM doorstep_deliveries WHERE due_at IS NOT NULL")[0][0])


_ENDPOINTS = "SELECT id, document FROM doorstep_endpoints"
_EVENTS = """
SELECT e.id, e.uid, e.event_type, e.status, coalesce(e.payload, p.payload)
FROM doorstep_events e LEFT JOIN doorstep_payloads p ON p.event_id = e.id
"""
_DELIVERIES = (
    "SELECT id, event_id, endpoint_id, state, attempt, retry_attempts, retries_max, ordering_key"
    " FROM doorstep_deliveries ORDER BY id"
)
_ATTEMPTS = "SELECT delivery_id, number, late, code, started_at, finished_at, next_retry_at FROM doorstep_attempts"
_MOVES = "SELECT delivery_id, move, at, old_state, new_state FROM doorstep_history"

_AUDITED = "SELECT subjects FROM doorstep_audit"


def _id(uid: bytes | UUID) -> str:
    return str(UUID(bytes=uid) if isinstance(uid, bytes) else UUID(str(uid)))


def _digest(payload: bytes) -> str:
    return hashlib.sha256(payload).hexdigest()
