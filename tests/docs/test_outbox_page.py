"""Runs the programs in docs/how-to/outbox.md unchanged, and checks that their events are in the outbox afterwards."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from doorstep import Doorstep
from tests.docs.pages import HOW_TO, fences
from tests.support.patience import PATIENCE_SECONDS

PLAIN, SQLALCHEMY, DJANGO, ASYNCPG, _ALEMBIC = fences(HOW_TO / "outbox.md", "python")

_DJANGO_PROGRAM = """
import django
from django.conf import settings
settings.configure(DATABASES={{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.db"}}}}, USE_TZ=True)
django.setup()
from django.db import connection, models, transaction
from doorstep import Doorstep

class Order(models.Model):
    class Meta:
        app_label = "shop"
        db_table = "numbered"

with connection.cursor() as cursor:
    cursor.execute("CREATE TABLE numbered (id INTEGER PRIMARY KEY AUTOINCREMENT)")
doorstep, order = Doorstep("sqlite:///shop.db"), Order()
{fence}
"""


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "numbered"
    id: Mapped[int] = mapped_column(primary_key=True)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of shop.db, which contains its orders table and Doorstep's tables."""
    monkeypatch.chdir(tmp_path)
    asyncio.run(Doorstep("sqlite:///shop.db")._store.migrate())
    with closing(sqlite3.connect("shop.db")) as connection:
        connection.execute("CREATE TABLE orders (id TEXT PRIMARY KEY)")
    return tmp_path


def posted() -> list[Any]:
    with closing(sqlite3.connect("shop.db")) as connection:
        return [json.loads(row[0]) for row in connection.execute("SELECT payload FROM doorstep_outbox")]


@pytest.mark.usefixtures("folder")
def test_the_first_program_posts_its_order() -> None:
    names: dict[str, Any] = {}
    exec(PLAIN, names)  # noqa: S102  it is our own page
    names["connection"].close()
    assert posted() == [{"order": "o-1"}]


@pytest.mark.usefixtures("folder")
def test_the_program_with_sqlalchemy_posts_the_id_that_its_order_got() -> None:
    engine = create_engine("sqlite:///shop.db")
    Base.metadata.create_all(engine)
    names = {"Session": Session, "engine": engine, "order": Order(), "doorstep": Doorstep("sqlite:///shop.db")}
    exec(SQLALCHEMY, names)  # noqa: S102  it is our own page
    engine.dispose()
    assert posted() == [{"order": 1}]


def test_the_program_with_django_posts_the_id_that_its_order_got(folder: Path) -> None:
    command = [sys.executable, "-c", _DJANGO_PROGRAM.format(fence=DJANGO)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    assert posted() == [{"order": 1}]


async def test_the_program_with_asyncpg_posts_its_order(postgres_url: str) -> None:
    names: dict[str, Any] = {"doorstep": Doorstep(postgres_url)}
    program = f"async def program(pool):\n{textwrap.indent(ASYNCPG, '    ')}"
    exec(program, names)  # noqa: S102  it is our own page
    async with asyncpg.create_pool(postgres_url, min_size=1) as pool:
        await pool.execute("CREATE TABLE orders (id TEXT PRIMARY KEY)")
        try:
            await names["program"](pool)
            payload = await _payload(pool)
        finally:
            await pool.execute("DROP TABLE orders")
    assert payload == {"order": "o-1"}


async def _payload(pool: asyncpg.Pool[asyncpg.Record]) -> Any:
    async with pool.acquire() as connection:
        await connection.execute("SET doorstep.org = '*'")
        return json.loads(await connection.fetchval("SELECT payload FROM doorstep_outbox"))
