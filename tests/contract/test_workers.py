"""The register of workers: who was heard of, and when."""

from __future__ import annotations

from doorstep.clock import DAY, SECOND
from doorstep.model.worker import LOST_AFTER, WorkerEntry
from doorstep.stores.store import Store
from tests.support.builders import NOW


def a_worker(name: str, seen_at: int = NOW, **fields: object) -> WorkerEntry:
    known: dict[str, object] = {"host": "web-1", "pid": 4711, "version": "0.1.0", "started_at": NOW, "places": 512}
    return WorkerEntry(name=name, seen_at=seen_at, **known | fields)  # type: ignore[arg-type]


async def test_a_beat_enters_a_worker_and_the_next_one_replaces_what_it_said(store: Store) -> None:
    await store.beat(a_worker("a"))
    said = a_worker("a", NOW + SECOND, places_in_use=7, handlers=("ship", "bill"), tasks=("outbox",))
    await store.beat(said)
    assert await store.workers(0, 10) == [said]


async def test_other_processes_see_it(store: Store, other_store: Store) -> None:
    await store.beat(a_worker("a"))
    await other_store.beat(a_worker("b", NOW + 1))
    assert [one.name for one in await store.workers(0, 10)] == ["b", "a"]
    assert await store.workers(0, 10) == await other_store.workers(0, 10)


async def test_workers_are_listed_by_when_they_were_heard_of_the_latest_first(store: Store) -> None:
    for place, name in enumerate(("a", "b", "c", "d")):
        await store.beat(a_worker(name, NOW + place * SECOND))
    assert [one.name for one in await store.workers(0, 3)] == ["d", "c", "b"]
    assert [one.name for one in await store.workers(NOW + SECOND, 10)] == ["d", "c"], "after, not at"


async def test_a_worker_that_leaves_is_forgotten_and_the_others_stay(store: Store) -> None:
    await store.beat(a_worker("a"))
    await store.beat(a_worker("b"))
    await store.forget_worker("a")
    await store.forget_worker("nobody")
    assert [one.name for one in await store.workers(0, 10)] == ["b"]


async def test_those_unheard_of_are_forgotten_the_oldest_first_a_batch_at_a_time(store: Store) -> None:
    for place in range(5):
        await store.beat(a_worker(f"old-{place}", NOW - DAY + place))
    await store.beat(a_worker("here"))
    assert await store.forget_workers(NOW - DAY + 4, 3) == 3
    assert [one.name for one in await store.workers(0, 10)] == ["here", "old-4", "old-3"]
    assert await store.forget_workers(NOW - DAY + 4, 3) == 1, "before, not at"
    assert await store.forget_workers(NOW - DAY + 4, 3) == 0


async def test_a_name_may_be_any_text(store: Store) -> None:
    strange = "web-1'; DROP TABLE doorstep_workers; --:ü\u202e"
    await store.beat(a_worker(strange, host="<b>ü</b>"))
    (found,) = await store.workers(0, 10)
    assert (found.name, found.host) == (strange, "<b>ü</b>")


def test_a_worker_is_lost_once_it_has_missed_three_beats() -> None:
    worker = a_worker("a")
    assert not worker.is_lost(NOW + LOST_AFTER)
    assert worker.is_lost(NOW + LOST_AFTER + 1)
