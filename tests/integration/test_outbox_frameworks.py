"""If a framework reports commits, the forwarder is woken after each commit."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from doorstep import Doorstep
from tests.integration import outbox_shop as shop


class Watched(Doorstep):
    """Counts how often the forwarder is woken."""

    woken = 0

    def wake(self) -> None:
        self.woken += 1


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    ds = Watched(f"sqlite:///{tmp_path / 'shop.db'}")
    asyncio.run(ds._store.migrate())
    return ds


@pytest.fixture
def engine(watched: Watched) -> Iterator[Engine]:
    engine = create_engine(watched.settings.database_url)
    yield engine
    engine.dispose()


def test_a_session_wakes_after_its_commit_and_once_however_much_it_sent(watched: Watched, engine: Engine) -> None:
    with Session(engine) as session:
        for number in range(5):
            watched.send_sync("order.paid", {"order": number}, connection=session)
        assert watched.woken == 0
        session.commit()
        assert watched.woken == 1
        watched.send_sync("order.paid", {"order": 6}, connection=session)
        session.rollback()
        assert watched.woken == 1


def test_a_savepoint_neither_loses_nor_needs_the_wake_up_of_the_commit(watched: Watched, engine: Engine) -> None:
    with Session(engine) as session:
        with session.begin_nested() as part:
            watched.send_sync("order.paid", {"order": 1}, connection=session)
            part.rollback()
        with session.begin_nested():
            watched.send_sync("order.paid", {"order": 2}, connection=session)
        before = watched.woken
        session.commit()
        assert watched.woken == before + 1


async def test_an_asyncio_session_wakes_after_its_commit(tmp_path: Path) -> None:
    ds = Watched(f"sqlite:///{tmp_path / 'shop.db'}")
    await ds._store.migrate()
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'shop.db'}")
    async with AsyncSession(engine) as session:
        await ds.send("order.paid", {"order": 1}, connection=session)
        assert ds.woken == 0
        await session.commit()
        assert ds.woken == 1
    await engine.dispose()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_django_sends_inside_atomic_and_wakes_after_the_outermost_commit(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}" if kind == "sqlite" else request.getfixturevalue("postgres_url")
    async with shop.running(url) as (ds, arrived):
        program = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.integration.outbox_django_program", url, stdout=asyncio.subprocess.PIPE
        )
        printed, _ = await program.communicate()
        await shop.until_forwarded(ds, arrived, 3)
        assert sorted(arrived) == ["kept", "last", "part"]
        assert sorted(await shop.execute(url, "SELECT id FROM orders")) == ["kept", "part"]
    seen = json.loads(printed)
    assert "must be in a transaction" in seen.pop("without atomic")
    assert seen == {
        "before the commit": 0,
        "after the commit": 1,
        "after a rollback": 1,
        "after a savepoint's rollback": 2,
    }
