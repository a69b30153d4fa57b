"""Counting lists: when many callers read one list at the same time, the store counts it once or twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from doorstep.clock import Instant
from doorstep.model.listing import Count, DeadLetterFilter
from doorstep.operations.reader import Reader
from doorstep.testing import FakeClock
from tests.unit.engine.scene import Bench


class TickingClock(FakeClock):
    """A clock that never returns the same instant twice."""

    def now(self) -> Instant:
        self.advance(0.000_001)
        return super().now()


async def test_many_who_look_at_the_dead_letters_at_once_have_them_counted_once_or_twice() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    await bench.accept(endpoint)
    await bench.deliver(404)
    reader = Reader(bench.store, bench.directory, TickingClock(), bench.tuning)
    looks = [reader.dead_letters(bench.org.org_id, DeadLetterFilter(), None, 10) for _ in range(20)]
    assert [count.value for _, count in await asyncio.gather(*looks)] == [1] * 20
    assert bench.failing.calls.count("count DeadLetterFilter") <= 2


async def test_where_counting_stops_the_stats_tell_the_level() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    await bench.accept(endpoint, 3)
    await bench.deliver(404)
    reader = Reader(bench.store, bench.directory, bench.clock, bench.tuning)
    bench.failing.answers["count DeadLetterFilter"] = _no_further_than(2)
    stats = await reader.stats(bench.org.org_id)
    assert stats.dead == stats.failed == Count(3, exact=True)
    assert stats.archived == Count(0, exact=True)


def _no_further_than(limit: int) -> Callable[..., Awaitable[Count]]:
    async def counted(*_: object) -> Count:
        return Count(limit, exact=False)

    return counted
