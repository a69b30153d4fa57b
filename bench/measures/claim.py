"""Whether claims cost more as history grows: the same claims with 10,000 and 1,000,000 finished deliveries."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from statistics import median

from bench.databases import Database, StoreName
from bench.figures import Figure, at_most
from bench.past import add_finished
from bench.setting import Setting, settings_for
from bench.stock import Wanted, stock
from bench.timing import in_own_process
from doorstep.app import Doorstep
from doorstep.clock import DAY, MILLISECOND, SECOND
from doorstep.model.claim import Quota

TARGET = at_most(1.3)
_BATCH = 200
_ROUNDS = 20


def measure(setting: Setting) -> Iterator[Figure]:
    much, little = setting.scaled(1_000_000, 100_000), 10_000
    for store in setting.stores:
        small, large = _costs(setting, store, little, much)
        yield Figure(f"{store}: claim of {_BATCH} with {little:,} finished", small, "ms")
        yield Figure(f"{store}: claim of {_BATCH} with {much:,} finished", large, "ms")
        yield Figure(f"{store}: with {much:,} ÷ with {little:,}", large / small, "×", TARGET)


def _costs(setting: Setting, store: StoreName, little: int, much: int) -> tuple[float, float]:
    """The cost with a short and with a long history. Claims alternate, so that other load affects both alike."""
    with setting.databases.fresh(store) as small, setting.databases.fresh(store) as large:
        for database, finished in ((small, little), (large, much)):
            _prepare(setting, database, finished)
        return in_own_process(claim_in_turns, small.url, large.url)


def _prepare(setting: Setting, database: Database, finished: int) -> None:
    stock(database, Wanted(setting.receiver.url("ok"), _BATCH * (_ROUNDS + 2)))
    add_finished(database, finished, time.time_ns() // 1_000 - DAY)


def claim_in_turns(small_url: str, large_url: str) -> tuple[float, float]:
    """The median milliseconds of one claim (lanes and claim) in each database."""
    return asyncio.run(_claim_in_turns(small_url, large_url))


async def _claim_in_turns(small_url: str, large_url: str) -> tuple[float, float]:
    doorsteps = [Doorstep(settings_for(url)) for url in (small_url, large_url)]
    for doorstep in doorsteps:
        await doorstep.open(migrate=False)
        await _claim(doorstep)  # the first claim opens connections and prepares statements
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(_ROUNDS):
        for doorstep, taken in zip(doorsteps, times, strict=True):
            taken.append(await _claim(doorstep))
    for doorstep in doorsteps:
        await doorstep.close()
    return median(times[0]), median(times[1])


async def _claim(doorstep: Doorstep) -> float:
    now = doorstep.clock.now()
    started = time.perf_counter_ns()
    (lane,) = await doorstep.components.store.due_lanes(now)
    claims = await doorstep.components.store.claim([Quota(lane.endpoint_id, _BATCH)], now, now + 60 * SECOND, "bench")
    elapsed = time.perf_counter_ns() - started
    assert len(claims) == _BATCH
    return elapsed / 1_000 / MILLISECOND
