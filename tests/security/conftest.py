"""The real program on each store, both at once, so that their verdicts can be compared."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from doorstep.sealing import new_secret_key
from tests.integration.program import Program, serving
from tests.integration.receiver import Receiver, receiving
from tests.postgres_server import PostgresServer

STORES = ("sqlite", "postgresql")
QUIET = {
    "DOORSTEP_RETRY_DELAYS": "3600",
    "DOORSTEP_FAILED_KEYS_PER_SECOND": "0",
    "DOORSTEP_SMTP_URL": "smtp://127.0.0.1:9",
}
"""What fails is not tried again while a test looks at it; wrong keys may be tried without end. Channels of all kinds can
be made, though nobody takes the mail."""


@pytest.fixture(scope="session")
def on_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    with serving(tmp_path_factory.mktemp("sqlite"), environment=QUIET) as program:
        yield program


@pytest.fixture(scope="session")
def on_postgresql(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    postgres_server.create_database("security")
    environment = QUIET | {
        "DOORSTEP_DATABASE_URL": postgres_server.url("security"),
        "DOORSTEP_SECRET_KEY": new_secret_key(),
    }
    with serving(tmp_path_factory.mktemp("postgresql"), environment=environment) as program:
        yield program


@pytest.fixture(scope="session")
def each(on_sqlite: Program, on_postgresql: Program) -> dict[str, Program]:
    """Both at the same time, by the name of their store."""
    return {"sqlite": on_sqlite, "postgresql": on_postgresql}


@pytest.fixture(scope="session", params=STORES)
def served(request: pytest.FixtureRequest) -> Program:
    """One of them; each test that asks for it runs on both."""
    program: Program = request.getfixturevalue(f"on_{request.param}")
    return program


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as it:
        yield it
