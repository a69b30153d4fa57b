"""A fresh database and installation for each test, on each SQL store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.faults.harness.databases import Database, PostgresDatabase, SqliteDatabase
from tests.faults.harness.installation import Installation
from tests.support.postgres_server import PostgresServer
from tests.support.stores import EITHER_STORE

Install = Callable[..., Installation]


@pytest.fixture(scope="session")
def fault_server() -> Iterator[PostgresServer]:
    """A durable PostgreSQL server that tests may stop, kill and freeze."""
    server = PostgresServer(durable=True).start()
    yield server
    server.destroy()


@pytest.fixture
def sqlite_database(tmp_path: Path) -> SqliteDatabase:
    return SqliteDatabase(tmp_path)


@pytest.fixture
def postgres_database(fault_server: PostgresServer) -> PostgresDatabase:
    return PostgresDatabase(fault_server)


@pytest.fixture(params=EITHER_STORE)
def database(request: pytest.FixtureRequest) -> Database:
    found: Database = request.getfixturevalue(f"{request.param}_database")
    return found


@pytest.fixture
def install(tmp_path: Path) -> Iterator[Install]:
    """Creates installations in this test's folder, and ends all their processes after the test."""
    made: list[Installation] = []

    def new(
        database: Database, *, settings: Mapping[str, str] | None = None, program: Sequence[str] = ()
    ) -> Installation:
        chosen: dict[str, Any] = {"program": program} if program else {}
        made.append(Installation(tmp_path, database, settings=settings, **chosen))
        return made[-1]

    yield new
    for installation in made:
        installation.close()
