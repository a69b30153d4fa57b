"""Sending on the program's own connection, killed, rolled back and partly rolled back a thousand times: no event
without its transaction, no transaction without its event.

TORTURE=1 does it ten thousand times.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from pydantic import SecretStr

from doorstep import Doorstep, Received, Settings
from doorstep.model.delivery import OPEN_STATES
from tests.faults.outbox_program import COMMITTED, PART_ROLLED_BACK, ROLLED_BACK, connect
from tests.support.patience import PATIENCE_SECONDS
from tests.support.shortcuts import count_states
from tests.support.stores import EITHER_STORE

TIMES = 10 if os.environ.get("TORTURE") else 1
KILLS, ROLLBACKS, PARTS = 50 * TIMES, 500 * TIMES, 450 * TIMES
LIVES_MAX = 4 * KILLS
LIFE_MAX = 64
"""The most transactions that a life completes before it is killed, at a later one."""
SECRET = SecretStr("4qBnEXcwcHNkBPlZV3JKmUQz5yjhFqJEbY9LxnLIGoQ=")


class Verdict(NamedTuple):
    """The difference between the shop's orders and the events that arrived."""

    kills: int
    endings: Counter[int]
    orders: int
    without_transaction: set[str]
    without_event: set[str]
    twice: set[str]

    def __str__(self) -> str:
        committed, rolled_back, in_part = (self.endings[one[0]] for one in (COMMITTED, ROLLED_BACK, PART_ROLLED_BACK))
        return (
            f"N = {self.kills} kills, {rolled_back} rollbacks, {in_part} rollbacks to a savepoint, {committed} commits;"
            f" orders {self.orders}, events without their transaction {len(self.without_transaction)},"
            f" transactions without their event {len(self.without_event)}, events twice {len(self.twice)}"
        )


@pytest.fixture(params=EITHER_STORE)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'shop.db'}"
    return str(request.getfixturevalue("durable_postgres_url"))


async def test_interrupted_anywhere_there_is_an_event_exactly_for_each_transaction(url: str, tmp_path: Path) -> None:
    verdict = await trial(url, "atomic", tmp_path, kills=KILLS, rollbacks=ROLLBACKS, parts=PARTS)
    print(verdict)
    assert verdict.without_transaction == set()
    assert verdict.without_event == set()
    assert verdict.twice == set(), "no worker was hurt"


@pytest.mark.full
async def test_a_sender_beside_the_transaction_is_caught_with_events_of_what_never_happened(
    url: str, tmp_path: Path
) -> None:
    verdict = await trial(url, "too-early", tmp_path, kills=3, rollbacks=3, life_max=6)
    assert verdict.without_transaction


@pytest.mark.full
async def test_a_sender_after_the_transaction_is_caught_with_transactions_nobody_hears_of(
    url: str, tmp_path: Path
) -> None:
    verdict = await trial(url, "too-late", tmp_path, kills=8, life_max=6)
    assert verdict.without_event


async def trial(
    url: str, sender: str, folder: Path, *, kills: int, rollbacks: int = 0, parts: int = 0, life_max: int = LIFE_MAX
) -> Verdict:
    """Start and kill lives until each kind of interruption has occurred often enough; then compare."""
    arrived: Counter[str] = Counter()
    journal = folder / "journal"
    journal.touch()
    chance = random.Random(1)
    async with delivering(url, arrived) as ds, shop(url, sender, journal) as program:
        lives = 0
        while lives < LIVES_MAX and (lives < kills or too_few(journal, rollbacks, parts)):
            lives += 1
            await live_and_die(program, lives, journal, chance.randint(1, life_max), chance.uniform(0, 0.004))
        await until_drained(ds, url)
        orders = {str(row[0]) for row in connect(url).execute("SELECT id FROM orders").fetchall()}
    twice = {order for order, times in arrived.items() if times > 1}
    return Verdict(lives, endings(journal), len(orders), arrived.keys() - orders, orders - arrived.keys(), twice)


def endings(journal: Path) -> Counter[int]:
    return Counter(journal.read_bytes())


def too_few(journal: Path, rollbacks: int, parts: int) -> bool:
    found = endings(journal)
    return found[ROLLED_BACK[0]] < rollbacks or found[PART_ROLLED_BACK[0]] < parts


async def live_and_die(
    program: asyncio.subprocess.Process, number: int, journal: Path, transactions: int, seconds: float
) -> None:
    """Start a life, wait for `transactions` transactions and then for `seconds`, and kill it."""
    assert program.stdin is not None and program.stdout is not None
    death_at = journal.stat().st_size + transactions
    program.stdin.write(b"%d\n" % number)
    pid = int(await asyncio.wait_for(program.stdout.readline(), PATIENCE_SECONDS))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while journal.stat().st_size < death_at:
            await asyncio.sleep(0.001)
    await asyncio.sleep(seconds)
    os.kill(pid, signal.SIGKILL)


async def until_drained(ds: Doorstep, url: str) -> None:
    """Wait until the server has rolled back what killed processes left, and everything posted has been delivered."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while sessions_of_the_dead(url) or await ds.components.store.outbox(1) or await open_deliveries(ds):
            await asyncio.sleep(0.02)


def sessions_of_the_dead(url: str) -> int:
    if url.startswith("sqlite"):
        return 0
    question = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'shop' AND pid <> pg_backend_pid()"
    with connect(url) as connection:
        return int(connection.execute(question).fetchone()[0])


async def open_deliveries(ds: Doorstep) -> int:
    tally = await count_states(ds.components.store)
    return sum(tally[state] for state in OPEN_STATES)


@asynccontextmanager
async def delivering(url: str, arrived: Counter[str]) -> AsyncIterator[Doorstep]:
    ds = Doorstep(Settings(database_url=url, secret_key=SECRET))

    @ds.handler("order.*")
    async def take(event: Received) -> None:
        arrived[event.json()["order"]] += 1

    async with ds:
        connect(url).execute("CREATE TABLE orders (id TEXT PRIMARY KEY)")
        yield ds


@asynccontextmanager
async def shop(url: str, sender: str, journal: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    command = [sys.executable, "-m", "tests.faults.outbox_program", url, sender, str(journal)]
    pipe = asyncio.subprocess.PIPE
    environment = {**os.environ, "DOORSTEP_SECRET_KEY": SECRET.get_secret_value()}
    program = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, env=environment)
    yield program
    program.kill()
    await program.wait()
