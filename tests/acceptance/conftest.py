"""Every test in this folder that uses a `scene` runs on SQLite and, in the full tier, on PostgreSQL too."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.api import Api, serving
from tests.support.fixtures_postgres import TEMPLATE
from tests.support.loop_receiver import Receiver, receiving
from tests.support.migrated_file import copy_migrated
from tests.support.postgres_server import PostgresServer
from tests.support.scene import Scene
from tests.support.stores import EITHER_STORE


@pytest.fixture(params=EITHER_STORE)
def database_url(request: pytest.FixtureRequest) -> str:
    return migrated_url(request)


def migrated_url(request: pytest.FixtureRequest) -> str:
    """A migrated database without rows. Tests of concurrency in the database define a `database_url` for EACH_STORE."""
    return str(request.getfixturevalue({"sqlite": "sqlite_url", "postgres": "emptied_postgres_url"}[request.param]))


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{copy_migrated(tmp_path / 'doorstep.db')}"


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as it:
        yield it


@pytest.fixture
async def scene(database_url: str, receiver: Receiver) -> AsyncIterator[Scene]:
    """A scene with one Doorstep, open and working."""
    made = Scene(database_url, receiver)
    await made.open()
    yield made
    receiver.hold.set()
    await made.close()


@pytest.fixture
async def api(scene: Scene) -> AsyncIterator[Api]:
    """The HTTP API of the scene on a real socket, for an admin of the default organization."""
    async with serving(scene) as it:
        yield it


# -- shared by the tests of a file, which must leave nothing behind that could affect another test ------------------


@pytest.fixture(scope="module")
def lasting_sqlite_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{copy_migrated(tmp_path_factory.mktemp('lasting') / 'doorstep.db')}"


@pytest.fixture(scope="module")
def lasting_postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    postgres_server.create_database("lasting", template=TEMPLATE)
    yield postgres_server.url("lasting")
    postgres_server.drop_database("lasting")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=EITHER_STORE)
async def lasting_scene(request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    """Like `scene`, but shared by a file. Tests that use it need the mark `lasting`, to run in its event loop."""
    async with receiving() as receiver:
        made = Scene(str(request.getfixturevalue(f"lasting_{request.param}_url")), receiver)
        await made.open()
        yield made
        await made.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lasting_api(lasting_scene: Scene) -> AsyncIterator[Api]:
    """Like `api`, but shared by a file: opening an API takes ten times as long as a request to it."""
    async with serving(lasting_scene) as it:
        yield it
