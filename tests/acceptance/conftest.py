"""Every test of this folder that takes a `scene` runs on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from doorstep.stores.opening import store_from_url
from tests.acceptance.api import Api, serving
from tests.acceptance.receiver import Receiver, receiving
from tests.acceptance.scene import Scene


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest) -> str:
    """A migrated database without rows."""
    return str(request.getfixturevalue({"sqlite": "sqlite_url", "postgres": "emptied_postgres_url"}[request.param]))


@pytest.fixture
def sqlite_url(migrated_file: Path, tmp_path: Path) -> str:
    return f"sqlite:///{shutil.copy(migrated_file, tmp_path / 'doorstep.db')}"


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What fresh files are copied from: 1 ms a copy, against a quarter of a second of migrating."""
    path = tmp_path_factory.mktemp("template") / "doorstep.db"
    with ThreadPoolExecutor(1) as thread:  # a loop may already run in this one
        thread.submit(asyncio.run, store_from_url(f"sqlite:///{path}").migrate()).result()
    return path


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as it:
        yield it


@pytest.fixture
async def scene(database_url: str, receiver: Receiver) -> AsyncIterator[Scene]:
    """With one Doorstep, opened and at work."""
    made = Scene(database_url, receiver)
    await made.open()
    yield made
    receiver.hold.set()
    await made.close()


@pytest.fixture
async def api(scene: Scene) -> AsyncIterator[Api]:
    """The HTTP API of the scene, on a real socket, for an admin of the default organization."""
    async with serving(scene) as it:
        yield it
