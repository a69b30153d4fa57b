"""Every test in this folder that uses `place`, `store` or `scene` runs once on each kind of store.

`memory://` is SQLite without a file, so only `make test-all` runs it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from pathlib import Path

import pytest

from doorstep.errors import InvalidInput, NotOffered
from doorstep.stores.store import Store
from tests.contract.desk import Desk
from tests.contract.places import DynamoPlace, MemoryPlace, Place, PostgresPlace, ReferencePlace, SqlitePlace, SqlPlace
from tests.contract.scene import Scene

SQL_KINDS = ("sqlite", "postgres")
KINDS = (
    "reference",
    pytest.param("memory", marks=pytest.mark.full),
    *SQL_KINDS,
    pytest.param("dynamodb", marks=pytest.mark.full),
)


_NOT_ON_DYNAMODB = {
    "test_big_batches.py": "thousands of deliveries at once take an emulator minutes",
    "test_concurrency.py": "its cases on DynamoDB are in tests/integration/stores/test_dynamodb.py",
    "test_listing_bounds.py": "its cases count the index entries of SQL databases",
    "test_listing_filters.py": "hundreds of filters take an emulator minutes; pages are tested in test_listing_pages.py",
}
"""Files whose cases do not run on DynamoDB, with the reason."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """On DynamoDB, a case about a part that the store declares to lack, or beyond a limit of the database, is skipped,
    with the sentence that users get. Every other store offers everything, so there the case fails."""
    try:
        return (yield)
    except (NotOffered, InvalidInput) as error:
        is_limit = isinstance(error, NotOffered) or "on DynamoDB" in str(error)
        if "dynamodb" not in item.nodeid or not is_limit:
            raise
        pytest.skip(str(error))


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
    if request.param == "dynamodb":
        if (reason := _NOT_ON_DYNAMODB.get(request.node.path.name)) is not None:
            pytest.skip(f"NOT TESTED ON DYNAMODB: {reason}")
        # Only the queue wakes other processes. Elsewhere it would only cost time.
        wakes = request.node.path.name == "test_life.py"
        return DynamoPlace(request.getfixturevalue("dynamodb_queue_url" if wakes else "dynamodb_url"))
    return PostgresPlace(request.getfixturevalue("emptied_postgres_url"))
