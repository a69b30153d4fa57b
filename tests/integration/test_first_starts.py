"""Several programs start at the same time on a database without tables: all of them start, and they share one key."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.encryption import new_secret_key
from doorstep.model.listing import OrgKeys, Orgs
from doorstep.operations import keys
from doorstep.stores.open import store_from_url
from tests.support.postgres_server import PostgresServer
from tests.support.program import ADMIN_KEY, clean_environment
from tests.support.stores import EACH_STORE
from tests.support.warm_start import Process, end_of, start_python

STARTS = 4
START = """
import asyncio, sys
from doorstep import Doorstep
from doorstep.model.listing import KeysByDigest

def meet(where):
    print(where, flush=True)
    sys.stdin.readline()

async def start():
    doorstep = Doorstep()
    find = doorstep._store.find

    async def find_and_meet(org_id, query):
        found = await find(org_id, query)
        if isinstance(query, KeysByDigest):
            meet("looked")
        return found

    doorstep._store.find = find_and_meet
    meet("ready")
    await doorstep.open()
    await doorstep.close()

asyncio.run(start())
"""
"""The programs synchronize before they start, and again after each has seen that the key does not exist yet."""


@pytest.fixture(params=EACH_STORE)
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
    ends = [end_of(start) for start in starts]
    assert [code for code, _, _ in ends] == [0] * STARTS, ends

    store = store_from_url(empty_url)
    await store.open()
    (kept,) = await store.find(DEFAULT_ORG, OrgKeys())
    assert kept.digest == keys.digest(ADMIN_KEY)
    assert [org.org_id for org in await store.find(None, Orgs())] == [DEFAULT_ORG]
    await store.close()


def _begin(folder: Path, given: dict[str, str]) -> Process:
    pipe = subprocess.PIPE
    environment = clean_environment() | given
    return start_python(["-c", START], cwd=folder, env=environment, stdin=pipe, stdout=pipe, stderr=pipe)


def _meet(starts: list[Process], place: str) -> None:
    """Wait until every program has reached this point, then let all of them continue at the same moment."""
    for start in starts:
        assert start.stdout is not None
        assert start.stdout.readline() == f"{place}\n".encode()
    for start in starts:
        assert start.stdin is not None
        start.stdin.write(b"\n")
        start.stdin.flush()
