"""Workers killed and frozen while they forward: each committed order has one event, and every duplicate is explained.

A worker may die between accepting and clearing, or freeze at any moment while another takes over.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections import Counter, defaultdict
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self
from uuid import UUID

import pytest

from doorstep import Doorstep, Settings
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.model.listing import RejectedMessages
from doorstep.services.forwarder import LEASE_SECONDS
from tests.faults.outbox_program import connect
from tests.faults.test_outbox import SECRET, live_and_die, shop, until_drained
from tests.support.stores import EITHER_STORE

TIMES = 10 if os.environ.get("TORTURE") else 1
ROUNDS = 12 * TIMES
TRANSACTIONS = 40
"""The minimum number of transactions in each round."""
LONG_STOP_SECONDS = LEASE_SECONDS + 1
IN_FLIGHT_MAX = 100
"""More deliveries than a worker ever has in flight here."""
ENVIRONMENT = {
    "DOORSTEP_SECRET_KEY": SECRET.get_secret_value(),
    "DOORSTEP_LEASE_SECONDS": "3",
    "DOORSTEP_TIMEOUT_SECONDS": "1",
    "DOORSTEP_LOG_LEVEL": "error",
}


@pytest.fixture(params=EITHER_STORE)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'shop.db'}"
    return str(request.getfixturevalue("durable_postgres_url"))


class Crew:
    """Two workers on one database, and what arrived at them."""

    def __init__(self, url: str, log: Path) -> None:
        self._url = url
        self._log = log
        log.touch()
        self._workers: list[asyncio.subprocess.Process] = []
        self.kills = self.stops = 0

    async def __aenter__(self) -> Self:
        self._workers = [await self._start() for _ in range(2)]
        return self

    async def __aexit__(self, *exc: object) -> None:
        for worker in self._workers:
            worker.kill()
            await worker.wait()

    async def _start(self) -> asyncio.subprocess.Process:
        command = [sys.executable, "-m", "tests.faults.outbox_worker", self._url, str(self._log)]
        return await asyncio.create_subprocess_exec(
            *command, env={**os.environ, **ENVIRONMENT}, stdout=asyncio.subprocess.DEVNULL
        )

    async def hurt(self, chance: random.Random, seconds: float) -> None:
        await asyncio.sleep(chance.uniform(0.02, 0.3))  # in the middle of its work
        place = chance.randrange(len(self._workers))
        if chance.random() < 0.5:
            self.kills += 1
            self._workers[place].kill()
            await self._workers[place].wait()
            self._workers[place] = await self._start()
        else:
            self.stops += 1
            self._workers[place].send_signal(signal.SIGSTOP)
            await asyncio.sleep(seconds)
            self._workers[place].send_signal(signal.SIGCONT)

    def arrivals(self) -> dict[str, Counter[UUID]]:
        """For each order, how often each of its events arrived."""
        found: dict[str, Counter[UUID]] = defaultdict(Counter)
        for line in self._log.read_text().splitlines():
            order, _, event_id = line.partition(" ")
            found[order][UUID(event_id)] += 1
        return found


async def test_whatever_becomes_of_the_workers_each_transaction_has_one_event_and_repeats_are_known(
    url: str, tmp_path: Path
) -> None:
    ds = Doorstep(Settings(database_url=url, secret_key=SECRET))
    chance, journal = random.Random(2), tmp_path / "journal"
    journal.touch()
    await ds.open()  # creates the tables, and reads without forwarding
    connect(url).execute("CREATE TABLE orders (id TEXT PRIMARY KEY)")
    async with AsyncExitStack() as stack:
        crew = await stack.enter_async_context(Crew(url, tmp_path / "arrivals"))
        program = await stack.enter_async_context(shop(url, "atomic", journal))
        for number in range(ROUNDS):
            stop_seconds = LONG_STOP_SECONDS if number % 5 == 4 else chance.uniform(0.05, 0.5)
            life = live_and_die(program, number, journal, TRANSACTIONS, chance.uniform(0, 0.2))
            await asyncio.gather(life, crew.hurt(chance, stop_seconds))
        await until_drained(ds, url)
        arrived = crew.arrivals()
    orders = {str(row[0]) for row in connect(url).execute("SELECT id FROM orders").fetchall()}
    twice = [order for order, events in arrived.items() if sum(events.values()) > 1]
    print(
        f"N = {crew.kills} kills and {crew.stops} stops of workers; orders {len(orders)}, without their event"
        f" {len(orders - arrived.keys())}, without their transaction {len(arrived.keys() - orders)}, twice {len(twice)}"
    )
    assert arrived.keys() == orders
    assert all(len(events) == 1 for events in arrived.values()), "forwarded twice, it is the same event"
    assert len(twice) <= (crew.kills + crew.stops) * IN_FLIGHT_MAX
    for order in twice:
        ((event_id, times),) = arrived[order].items()
        (delivery,) = await ds.components.reader.deliveries(DEFAULT_ORG, event_id)
        assert delivery.attempt >= times, "each arrival is an attempt that was counted when it was claimed"
    assert await ds.components.store.find(None, RejectedMessages(limit=1)) == []
    await ds.close()
