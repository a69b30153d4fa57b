"""The register of workers: who reported, and when."""

from __future__ import annotations

from doorstep.clock import DAY, SECOND
from doorstep.model.claim import LOST_AFTER, WorkerEntry
from doorstep.model.listing import Workers
from doorstep.stores.store import Delete, Retention, Store
from tests.support.builders import NOW
from tests.support.shortcuts import put


def a_worker(name: str, seen_at: int = NOW, **fields: object) -> WorkerEntry:
    known: dict[str, object] = {"host": "web-1", "pid": 4711, "version": "0.1.0", "started_at": NOW, "places": 512}
    return WorkerEntry(name=name, seen_at=seen_at, **known | fields)  # type: ignore[arg-type]


async def forget(store: Store, seen_before: int, limit: int) -> int:
    return (await store.clean(Retention(workers_before=seen_before), NOW, limit)).workers


async def test_a_heartbeat_enters_a_worker_and_the_next_one_replaces_what_it_said(store: Store) -> None:
    await put(store, a_worker("a"))
    said = a_worker("a", NOW + SECOND, places_in_use=7, handlers=("ship", "bill"), tasks=("outbox",))
    await put(store, said)
    assert await store.find(None, Workers(seen_after=0, limit=10)) == [said]


async def test_other_processes_see_it(store: Store, other_store: Store) -> None:
    await put(store, a_worker("a"))
    await put(other_store, a_worker("b", NOW + 1))
    assert [one.name for one in await store.find(None, Workers(seen_after=0, limit=10))] == ["b", "a"]
    assert await store.find(None, Workers(seen_after=0, limit=10)) == await other_store.find(
        None, Workers(seen_after=0, limit=10)
    )


async def test_workers_are_listed_by_when_they_were_heard_of_the_latest_first(store: Store) -> None:
    for place, name in enumerate(("a", "b", "c", "d")):
        await put(store, a_worker(name, NOW + place * SECOND))
    assert [one.name for one in await store.find(None, Workers(seen_after=0, limit=3))] == ["d", "c", "b"]
    assert [one.name for one in await store.find(None, Workers(seen_after=NOW + SECOND, limit=10))] == ["d", "c"], (
        "after, not at"
    )


async def test_a_worker_that_leaves_is_forgotten_and_the_others_stay(store: Store) -> None:
    await put(store, a_worker("a"))
    await put(store, a_worker("b"))
    assert await store.write([Delete(document=a_worker("a"))])
    assert not await store.write([Delete(document=a_worker("nobody"))])
    assert [one.name for one in await store.find(None, Workers(seen_after=0, limit=10))] == ["b"]


async def test_those_unheard_of_are_forgotten_the_oldest_first_a_batch_at_a_time(store: Store) -> None:
    for place in range(5):
        await put(store, a_worker(f"old-{place}", NOW - DAY + place))
    await put(store, a_worker("here"))
    assert await forget(store, NOW - DAY + 4, 3) == 3
    assert [one.name for one in await store.find(None, Workers(seen_after=0, limit=10))] == ["here", "old-4", "old-3"]
    assert await forget(store, NOW - DAY + 4, 3) == 1, "before, not at"
    assert await forget(store, NOW - DAY + 4, 3) == 0


async def test_a_name_may_be_any_text(store: Store) -> None:
    strange = "web-1'; DROP TABLE doorstep_workers; --:ü\u202e"
    await put(store, a_worker(strange, host="<b>ü</b>"))
    (found,) = await store.find(None, Workers(seen_after=0, limit=10))
    assert (found.name, found.host) == (strange, "<b>ü</b>")


def test_a_worker_is_lost_once_it_has_missed_three_heartbeats() -> None:
    worker = a_worker("a")
    assert not worker.is_lost(NOW + LOST_AFTER)
    assert worker.is_lost(NOW + LOST_AFTER + 1)
