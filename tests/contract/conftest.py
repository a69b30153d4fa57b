"""Every test in this folder that uses `place`, `store` or `scene` runs once on each kind of store.

`memory://` is SQLite without a file, so only `make test-all` runs it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from doorstep.stores.store import Store
from tests.contract.desk import Desk
from tests.contract.places import MemoryPlace, Place, PostgresPlace, ReferencePlace, SqlitePlace, SqlPlace
from tests.contract.scene import Scene

SQL_KINDS = ("sqlite", "postgres")
KINDS = ("reference", pytest.param("memory", marks=pytest.mark.full), *SQL_KINDS)


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return _place(request, tmp_path)


@pytest.fixture(params=SQL_KINDS)
def sql_place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Only the stores whose database must enforce the rules itself."""
    return _place(request, tmp_path)


@pytest.fixture
async def store(place: Place) -> AsyncIterator[Store]:
    opened = await place.open()
    yield opened
    await opened.close()


@pytest.fixture
async def other_store(place: Place, store: Store) -> AsyncIterator[Store]:
    """A second store on the same data, as in another process."""
    opened = await place.open()
    yield opened
    await opened.close()


@pytest.fixture
async def scene(store: Store) -> Scene:
    return await Scene(store).prepare()


@pytest.fixture
def desk(scene: Scene) -> Desk:
    return Desk(scene)


@pytest.fixture
async def sql_scene(sql_place: SqlPlace) -> AsyncIterator[Scene]:
    opened = await sql_place.open()
    yield await Scene(opened).prepare()
    await opened.close()


def _place(request: pytest.FixtureRequest, folder: Path) -> Place:
    if request.param == "reference":
        return ReferencePlace()
    if request.param == "memory":
        return MemoryPlace()
    if request.param == "sqlite":
        return SqlitePlace(folder)
    return PostgresPlace(request.getfixturevalue("emptied_postgres_url"))
