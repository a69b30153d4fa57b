"""The RollupAggregator: it aggregates after each minute ends, in small batches, in one process at a time."""

from __future__ import annotations

from doorstep.clock import DAY, SECOND
from doorstep.engine.directory import Tuning
from doorstep.model.listing import Orgs
from doorstep.model.rollup import HOUR, MINUTE, Span
from doorstep.services.maintenance import RollupAggregator
from doorstep.stores.store import Task
from doorstep.testing.sandbox import FakeClock
from tests.reference import ReferenceStore
from tests.support.builders import NOW, a_submission, an_org
from tests.support.shortcuts import put, totals

AGGREGATE_MAX = ReferenceStore.aggregate_max


async def a_store(events: int) -> ReferenceStore:
    """A store with `events` organizations that have one event each, and so one counter each."""
    store = ReferenceStore()
    for org in [an_org() for _ in range(events)]:
        await put(store, org)
        await store.accept([a_submission(org.org_id)], {org.org_id: 0}, NOW)
    return store


async def test_it_folds_what_has_ended_and_sleeps_until_a_second_after_the_turn() -> None:
    store, clock = await a_store(1), FakeClock(NOW - NOW % MINUTE + MINUTE)
    service = RollupAggregator(store, clock, Tuning(), "a")
    assert await service.run_once() == 1.0
    clock.advance(1.0)
    assert await service.run_once() == 60.0
    assert await store.aggregate(clock.now() + DAY, 10) == 0, "nothing is left to fold"
    assert (await totals(store)).created == 1


async def test_a_backlog_is_folded_in_small_batches_without_a_pause() -> None:
    store = await a_store(AGGREGATE_MAX + 1)
    service = RollupAggregator(store, FakeClock(NOW + MINUTE), Tuning(), "a")
    assert await service.run_once() == 0
    assert not await store.acquire_lock(Task.ROLLUPS, "b", NOW + MINUTE, NOW + HOUR), "it is not done yet"
    assert (await service.run_once() or 0) > 1
    assert await store.acquire_lock(Task.ROLLUPS, "b", NOW + MINUTE, NOW + HOUR), "it holds nobody up"
    assert await store.aggregate(NOW + DAY, 10) == 0


async def test_somebody_whose_clock_is_slow_and_counts_in_ended_minutes_does_not_keep_it_going() -> None:
    store = await a_store(1)
    (org,) = await store.find(None, Orgs())
    service = RollupAggregator(store, FakeClock(NOW + MINUTE), Tuning(), "a")
    for _ in range(3):
        await store.accept([a_submission(org.org_id)], {org.org_id: 0}, NOW)
        assert (await service.run_once() or 0) > 1
    assert (await totals(store)).created == 4


async def test_whoever_does_not_hold_the_task_folds_nothing() -> None:
    store = await a_store(1)
    await store.acquire_lock(Task.ROLLUPS, "another", NOW, NOW + DAY)
    delay = await RollupAggregator(store, FakeClock(NOW + MINUTE), Tuning(), "a").run_once()
    assert delay is not None and delay <= 60
    assert await store.aggregate(NOW + MINUTE, 10) == 1


async def test_a_backlog_of_what_was_kept_long_enough_is_dropped_though_nothing_is_counted_any_more() -> None:
    store, clock = await a_store(AGGREGATE_MAX + 1), FakeClock(NOW + MINUTE)
    service = RollupAggregator(store, clock, Tuning(), "a")
    while await service.run_once() == 0:
        pass
    clock.advance(3 * DAY / SECOND)
    assert await service.run_once() == 0, "there is more to drop than one batch takes"
    while await service.run_once() == 0:
        pass
    assert (await store.series(None, [None], Span.MINUTE, 0, clock.now()))[None] == []


async def test_minutes_and_hours_are_dropped_when_they_were_kept_long_enough() -> None:
    store, clock = await a_store(1), FakeClock(NOW + 3 * DAY)
    await RollupAggregator(store, clock, Tuning(), "a").run_once()
    assert (await store.series(None, [None], Span.MINUTE, 0, clock.now()))[None] == []
    assert len((await store.series(None, [None], Span.HOUR, 0, clock.now()))[None]) == 1
    clock.advance(400 * DAY / SECOND)
    await RollupAggregator(store, clock, Tuning(), "a").run_once()
    assert (await store.series(None, [None], Span.HOUR, 0, clock.now()))[None] == []
    assert (await totals(store)).created == 1
