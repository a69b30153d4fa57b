"""The real program: on SQLite in every tier; in the full tier also on PostgreSQL, and on both for comparison."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from doorstep.encryption import new_secret_key
from tests.support.postgres_server import PostgresServer
from tests.support.program import Program, serving
from tests.support.receiver import Receiver, receiving

STORES = ("sqlite", "postgresql")
IN_TIERS = ("sqlite", pytest.param("postgresql", marks=pytest.mark.full))
QUIET = {
    "DOORSTEP_RETRY_DELAYS": "3600",
    "DOORSTEP_FAILED_KEYS_PER_SECOND": "0",
    "DOORSTEP_SMTP_URL": "smtp://127.0.0.1:9",
}
"""Failed deliveries are not retried while a test examines them, and wrong keys are not limited. Channels of all kinds
can be created, although no mail server runs."""


@pytest.fixture(scope="package")
def on_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    with serving(tmp_path_factory.mktemp("sqlite"), environment=QUIET) as program:
        yield program


@pytest.fixture(scope="package")
def on_postgresql(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    postgres_server.create_database("security")
    environment = QUIET | {
        "DOORSTEP_DATABASE_URL": postgres_server.url("security"),
        "DOORSTEP_SECRET_KEY": new_secret_key(),
    }
    with serving(tmp_path_factory.mktemp("postgresql"), environment=environment) as program:
        yield program
    postgres_server.drop_database("security")  # a test process may return to this folder after the tests of another


@pytest.fixture(scope="package", params=[("sqlite",), pytest.param(STORES, marks=pytest.mark.full)], ids="-".join)
def each(request: pytest.FixtureRequest) -> dict[str, Program]:
    """The programs by store name. With two of them, tests check that both give the same answers."""
    return {name: request.getfixturevalue(f"on_{name}") for name in request.param}


@pytest.fixture(scope="package", params=IN_TIERS)
def served(request: pytest.FixtureRequest) -> Program:
    """One of the programs. In the full tier, each test that uses this fixture runs on both stores."""
    program: Program = request.getfixturevalue(f"on_{request.param}")
    return program


@pytest.fixture(scope="package")
def lasting_receiver() -> Iterator[Receiver]:
    with receiving() as it:
        yield it


@pytest.fixture
def receiver(lasting_receiver: Receiver) -> Receiver:
    """The shared receiver, reset for each test, because stopping a receiver takes half a second."""
    lasting_receiver.status = 200
    lasting_receiver.received.clear()
    return lasting_receiver
