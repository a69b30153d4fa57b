"""Several first starts at once, on a database that has no tables yet: all of them come up, with one key."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from doorstep import keys
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.sealing import new_secret_key
from doorstep.stores.opening import store_from_url
from tests.integration.program import ADMIN_KEY, clean_environment
from tests.patience import PATIENCE_SECONDS
from tests.postgres_server import PostgresServer

STARTS = 4
START = """
import asyncio, sys
from doorstep import Doorstep

def meet(where):
    print(where, flush=True)
    sys.stdin.readline()

async def start():
    doorstep = Doorstep()
    find_key = doorstep._store.find_key

    async def find_and_meet(digest):
        found = await find_key(digest)
        meet("looked")
        return found

    doorstep._store.find_key = find_and_meet
    meet("ready")
    await doorstep.open()
    await doorstep.close()

asyncio.run(start())
"""
"""They meet before they begin, and again when each has seen that the key is not there yet."""


@pytest.fixture(params=["sqlite", "postgres"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/data/doorstep.db"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    server.create_database("first_starts")
    yield server.url("first_starts")
    server.drop_database("first_starts")


async def test_starts_that_are_given_the_same_key_all_come_up_and_keep_it_once(empty_url: str, tmp_path: Path) -> None:
    given = {"DOORSTEP_DATABASE_URL": empty_url, "DOORSTEP_ADMIN_KEY": ADMIN_KEY}
    if empty_url.startswith("postgres"):
        given["DOORSTEP_SECRET_KEY"] = new_secret_key()
    starts = [_begin(tmp_path, given) for _ in range(STARTS)]
    for place in ("ready", "looked"):
        _meet(starts, place)
    complaints = [start.communicate(timeout=PATIENCE_SECONDS)[1] for start in starts]
    assert [start.returncode for start in starts] == [0] * STARTS, complaints

    store = store_from_url(empty_url)
    await store.open()
    (kept,) = await store.keys(DEFAULT_ORG)
    assert kept.digest == keys.digest(ADMIN_KEY)
    assert [org.org_id for org in await store.orgs()] == [DEFAULT_ORG]
    await store.close()


def _begin(folder: Path, given: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", START],
        cwd=folder,
        env=clean_environment() | given,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _meet(starts: list[subprocess.Popen[str]], place: str) -> None:
    """Wait for all, then let all go on at the same moment."""
    for start in starts:
        assert start.stdout is not None
        assert start.stdout.readline() == f"{place}\n"
    for start in starts:
        assert start.stdin is not None
        start.stdin.write("\n")
        start.stdin.flush()
