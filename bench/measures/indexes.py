"""What each index of the lists and searches adds to the CPU of a delivery in the store, from acceptance to settlement.

Two databases, one without the index, take turns with short slices of deliveries, so that other load affects both alike.
The figure is the mean of the middle half of the differences, client and database server together. The indexes of
declared search fields are measured by `search`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from statistics import mean
from typing import NamedTuple, Self
from uuid import UUID

from bench.databases import Database, StoreName
from bench.figures import Figure
from bench.setting import Setting, settings_for
from bench.stock import Wanted, drafts, stock
from bench.timing import Stopwatch, percentile
from doorstep.app import Doorstep
from doorstep.clock import SECOND, Instant
from doorstep.model.claim import Claim, Quota, Settlement
from doorstep.telemetry.facts import Telemetry
from tests.support.builders import failure, success

_BATCH = 100
_HOUR = 3_600 * SECOND


class Index(NamedTuple):
    name: str
    fails: bool = False
    """Whether the index contains only failures. If so, every delivery fails once."""


INDEXES = (
    Index("doorstep_events_type"),
    Index("doorstep_events_correlation"),
    Index("doorstep_deliveries_fresh"),
    Index("doorstep_deliveries_settled"),
    Index("doorstep_deliveries_settled_by_endpoint"),
    Index("doorstep_attempts_org"),
    Index("doorstep_deliveries_recoverable", fails=True),
    Index("doorstep_deliveries_open_failed", fails=True),
    Index("doorstep_deliveries_failing", fails=True),
    Index("doorstep_attempts_failed", fails=True),
)


def measure(setting: Setting) -> Iterator[Figure]:
    for store in setting.stores:
        for index in INDEXES:
            yield _measure_index(setting, store, index)


def _measure_index(setting: Setting, store: StoreName, index: Index) -> Figure:
    with setting.databases.fresh(store) as whole, setting.databases.fresh(store) as without:
        for database in (whole, without):
            stock(database, Wanted(setting.receiver.url("ok")))
        without.run(f"DROP INDEX {index.name}")
        differences, costs = asyncio.run(_alternate(whole, without, index.fails, setting.scaled(200, 8)))
    low, high = percentile(differences, 0.25), percentile(differences, 0.75)
    what, error = "failed attempt" if index.fails else "delivery", (high - low) / len(differences) ** 0.5
    note = f"± {error:.1f}, of {percentile(costs, 0.5):.0f} µs for each {what}; N={len(differences)}"
    return Figure(f"{store}: {index.name}", mean(one for one in differences if low <= one <= high), "µs", note=note)


async def _alternate(whole: Database, without: Database, fails: bool, turns: int) -> tuple[list[float], list[float]]:
    """The differences between the two databases, and the costs with the index, in microseconds for each delivery."""
    async with AsyncExitStack() as stack:
        pair = [await stack.enter_async_context(_Bench(database)) for database in (whole, without)]
        differences, costs = [], []
        for turn in range(turns + 1):
            order = pair if turn % 2 else pair[::-1]
            taken = {id(one): await one.run(fails) for one in order}
            if turn:  # the first turn prepares the statements
                costs.append(taken[id(pair[0])])
                differences.append(taken[id(pair[0])] - taken[id(pair[1])])
    return differences, costs


class _Bench:
    """One open database, without a worker: deliveries are claimed and settled here."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._doorstep = Doorstep(settings_for(database.url), telemetry=Telemetry())
        self._endpoint_id = UUID(int=0)

    async def __aenter__(self) -> Self:
        await self._doorstep.open()
        ((self._endpoint_id,),) = [[one.endpoint_id for one in await self._doorstep.endpoints()]]
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._doorstep.close()

    async def run(self, fails: bool, batches: int = 5) -> float:
        """The CPU of a slice of deliveries, in microseconds for each."""
        server, watch = self._database.server_cpu_seconds(), Stopwatch()
        for _ in range(batches):
            await self._doorstep.components.accepter.accept(drafts(_BATCH))
            await self._attempt(fails)
        used = watch.cpu_seconds + self._database.server_cpu_seconds() - server
        return 1e6 * used / (batches * _BATCH)

    async def _attempt(self, fails: bool) -> None:
        store, now = self._doorstep.components.store, self._doorstep.clock.now()
        claims = await store.claim([Quota(self._endpoint_id, _BATCH)], now, now + _HOUR, "bench")
        assert len(claims) == _BATCH, f"{len(claims)} of {_BATCH} deliveries could be claimed"
        await store.settle([_settlement(one, fails, now) for one in claims], now)


def _settlement(claim: Claim, fails: bool, now: Instant) -> Settlement:
    if not fails:
        return Settlement.delivered(claim, success(now))
    return Settlement.retry(claim, failure(now), now + _HOUR, claim.retries_max, on_recovery=True)
