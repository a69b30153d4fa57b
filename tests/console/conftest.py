"""Every test in this folder has a scene with the console on a real socket, on SQLite and, in the full tier, PostgreSQL.

`console` is a session that reads pages over HTTP; `look` opens them in Chromium, which is started once. All tests run
in one event loop, because a browser belongs to the loop in which it was started.

A browser test belongs to the full tier and runs on SQLite alone, because what a page shows does not depend on the
store. Tests marked with `key_story` run in every tier, and in the full tier also on PostgreSQL.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.console.sessions import SignInLinks
from doorstep.model.org import Role
from tests.console.chromium import Look, launched, looking, opened
from tests.console.furnished import House, Words, built
from tests.console.visiting import Console
from tests.console.window import Window, gate, one_window
from tests.support.api import Api, listening
from tests.support.fixtures_postgres import TEMPLATE
from tests.support.loop_receiver import Receiver, receiving
from tests.support.migrated_file import copy_migrated
from tests.support.postgres_server import PostgresServer
from tests.support.scene import Scene

__all__ = ["Look"]
_STORES = ["sqlite", pytest.param("postgres", marks=pytest.mark.full)]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "key_story: a test in the browser that runs in every tier, and on both stores")


def pytest_itemcollected(item: pytest.Item) -> None:
    in_browser = "browser" in getattr(item, "fixturenames", ())
    if in_browser and item.get_closest_marker("key_story") is None:
        item.add_marker(pytest.mark.full)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "database_url" in metafunc.fixturenames:
        everywhere = "look" not in metafunc.fixturenames or metafunc.definition.get_closest_marker("key_story")
        metafunc.parametrize("database_url", _STORES if everywhere else _STORES[:1], indirect=True)
    if "house_url" in metafunc.fixturenames:
        stores = _STORES[:1] if "look_around" in metafunc.fixturenames else _STORES
        metafunc.parametrize("house_url", stores, indirect=True, scope="package")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents and inspect.iscoroutinefunction(getattr(item, "function", None)):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest.fixture
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database with all tables and no rows."""
    if request.param == "postgres":
        return str(request.getfixturevalue("emptied_postgres_url"))
    return f"sqlite:///{copy_migrated(tmp_path / 'doorstep.db')}"


@pytest_asyncio.fixture(loop_scope="session")
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as it:
        yield it


@pytest_asyncio.fixture(loop_scope="session")
async def scene(database_url: str, receiver: Receiver) -> AsyncIterator[Scene]:
    """A scene with one running Doorstep."""
    made = Scene(database_url, receiver)
    await made.open()
    yield made
    receiver.hold.set()
    await made.close()


@pytest_asyncio.fixture(loop_scope="session")
async def links(scene: Scene) -> SignInLinks:
    return SignInLinks(scene.clock)


@pytest_asyncio.fixture(loop_scope="session")
async def api(scene: Scene, links: SignInLinks) -> AsyncIterator[Api]:
    """The scene's web application on a real socket, and an admin key of the default organization."""
    from doorstep.api.application import create_application

    _, key = await scene.doorstep.components.keys.create(DEFAULT_ORG, "test", Role.ADMIN, "test")
    async with listening(create_application(scene.doorstep, links)) as port:
        yield Api(port, key)


@pytest_asyncio.fixture(loop_scope="session")
async def console(api: Api) -> Console:
    """A console session of a signed-in admin."""
    return await Console(api.url).sign_in(api.key)


@pytest_asyncio.fixture(loop_scope="session")
async def viewer(scene: Scene, api: Api) -> Console:
    _, key = await scene.doorstep.components.keys.create(DEFAULT_ORG, "a viewer", Role.VIEWER, "test")
    return await Console(api.url).sign_in(key)


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """One browser per test process, kept until the last test of this folder; an idle browser uses 5% of a CPU core."""
    async with async_playwright() as playwright:
        browser = await launched(playwright)
        yield browser
        await browser.close()


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def window(browser: Browser) -> AsyncIterator[Window]:
    async with gate() as passing, one_window(await opened(browser, base_url=passing.url), passing) as window:
        yield window


@pytest_asyncio.fixture(loop_scope="session")
async def look(scene: Scene, api: Api, links: SignInLinks, browser: Browser, window: Window) -> AsyncIterator[Look]:
    """`page = await look("/console/retry-queue", role=Role.VIEWER, theme="dark")` signs in and opens that page.

    The page may not send requests to other machines, violate its content policy, or raise an error in a script.
    """
    async with looking(browser, api.url, links, scene.doorstep.components.keys, window) as look:
        yield look


# -- a house with one of everything, shared by the tests of all screens, which do not change it ------------------------


@pytest.fixture(scope="package")
def house_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a migrated database that only the house uses."""
    if request.param == "sqlite":
        yield f"sqlite:///{copy_migrated(tmp_path_factory.mktemp('house') / 'doorstep.db')}"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    server.create_database("house", template=TEMPLATE)
    yield server.url("house")
    server.drop_database("house")


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def house(house_url: str) -> AsyncIterator[House]:
    async with built(house_url, Words()) as it:
        yield it


@pytest_asyncio.fixture(loop_scope="session")
async def look_around(house: House, browser: Browser, window: Window) -> AsyncIterator[Look]:
    """Like `look`, but for the `house` fixture's installation."""
    async with looking(browser, house.api.url, house.links, house.scene.doorstep.components.keys, window) as look:
        yield look
