"""Places: where each kind of store keeps its data, so that a test can open several stores on the same data.

A SQL place also runs plain statements without the store, to show that the database itself refuses forbidden changes.
"""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Protocol
from uuid import UUID

import asyncpg

from doorstep.stores.open import store_from_url
from doorstep.stores.sql.sqlite.memory_store import MemoryStore
from doorstep.stores.store import Store
from tests.reference import ReferenceStore
from tests.support.migrated_file import copy_migrated
from tests.support.patience import PATIENCE_SECONDS


class Refused(Exception):
    """The database refused a statement."""


class Place(Protocol):
    name: str

    async def open(self) -> Store:
        """Open another store on the same data. The caller must close it."""


class SqlPlace(Place, Protocol):
    async def execute(self, statement: str) -> list[tuple[object, ...]]:
        """Run one statement on its own connection, and commit it. Raises Refused if the database refuses it."""

    def literal(self, uid: UUID) -> str:
        """An id in the form in which this database writes it in a statement."""


class ReferencePlace:
    """The store is the data, so `open` always returns the same object."""

    name = "reference"

    def __init__(self) -> None:
        self._store = ReferenceStore()

    async def open(self) -> Store:
        return self._store


class MemoryPlace:
    """SQLite in memory. The store is the data, so `open` always returns the same object."""

    name = "memory"

    def __init__(self) -> None:
        self._store = _LastingMemoryStore()

    async def open(self) -> Store:
        await self._store.open()
        return self._store


class _LastingMemoryStore(MemoryStore):
    """An in-memory store whose `close` does nothing, so that the data lasts as long as the place."""

    async def close(self) -> None:
        """Do nothing; the place closes the store at the end."""


class SqlitePlace:
    """Its own migrated database file."""

    name = "sqlite"

    def __init__(self, folder: Path) -> None:
        self._path = folder / "doorstep.db"

    async def open(self) -> Store:
        if not self._path.exists():
            copy_migrated(self._path)
        store = _from_file(self._path)
        await store.open()
        return store

    async def execute(self, statement: str) -> list[tuple[object, ...]]:
        return await asyncio.to_thread(self._execute, statement)

    def literal(self, uid: UUID) -> str:
        return f"x'{uid.hex}'"

    def _execute(self, statement: str) -> list[tuple[object, ...]]:
        connection = sqlite3.connect(self._path, isolation_level=None, timeout=PATIENCE_SECONDS)
        try:
            return connection.execute(statement).fetchall()
        except sqlite3.IntegrityError as error:
            raise Refused(str(error)) from error
        finally:
            connection.close()


class PostgresPlace:
    """A migrated database without rows, as provided by the fixture."""

    name = "postgres"

    def __init__(self, url: str) -> None:
        self._url = url

    async def open(self) -> Store:
        store = store_from_url(self._url)
        await store.open()
        return store

    async def execute(self, statement: str) -> list[tuple[object, ...]]:
        connection = await asyncpg.connect(self._url, server_settings={"doorstep.org": "*"})
        try:
            return [tuple(row) for row in await connection.fetch(statement)]
        except asyncpg.IntegrityConstraintViolationError as error:
            raise Refused(str(error)) from error
        finally:
            await connection.close()

    def literal(self, uid: UUID) -> str:
        return f"'{uid}'"


class DynamoPlace:
    """A table of its own in an emulator of AWS."""

    name = "dynamodb"

    def __init__(self, url: str) -> None:
        self._url = url
        self._exists = False

    async def open(self) -> Store:
        store = store_from_url(self._url)
        if not self._exists:
            await store.migrate()
            self._exists = True
        await store.open()
        return store


def _from_file(path: Path) -> Store:
    return store_from_url(f"sqlite:///{path}")
