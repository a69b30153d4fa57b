"""Fixtures for tests on PostgreSQL: one throwaway server a test process, and a fresh migrated database a test.

Use as a plugin (`pytest_plugins = ["tests.fixtures_postgres"]`). Every database is a copy of one migrated template.
With pytest-xdist each worker has servers of its own.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from doorstep.stores.sql.postgres import PostgresStore
from tests.postgres_server import PostgresServer

TEMPLATE = "doorstep_template"

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A server without fsync, for tests of logic."""
    yield from _served(durable=False)


@pytest.fixture(scope="session")
def durable_postgres_server() -> Iterator[PostgresServer]:
    """A server with fsync, for tests that stop, kill or freeze it."""
    yield from _served(durable=True)


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of a fresh, migrated database, owned by a role that row-level security binds."""
    yield from _database(postgres_server)


@pytest.fixture
def durable_postgres_url(durable_postgres_server: PostgresServer) -> Iterator[str]:
    yield from _database(durable_postgres_server)


@pytest.fixture
async def postgres_store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres_url)
    await store.open()
    yield store
    await store.close()


def migrated_template(server: PostgresServer) -> None:
    """Make the database that fresh ones are copied from: about 50 ms a copy, against half a second of migrating."""
    server.create_database(TEMPLATE)
    with ThreadPoolExecutor(1) as thread:  # a loop may already run in this one
        thread.submit(asyncio.run, PostgresStore(server.url(TEMPLATE)).migrate()).result()


def _served(*, durable: bool) -> Iterator[PostgresServer]:
    server = PostgresServer(durable=durable)
    try:
        migrated_template(server.start())
        yield server
    finally:
        server.destroy()


def _database(server: PostgresServer) -> Iterator[str]:
    name = f"test_{next(_numbers)}"
    server.create_database(name, template=TEMPLATE)
    yield server.url(name)
    server.drop_database(name)
