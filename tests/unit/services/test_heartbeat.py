"""The Heartbeat: a process stays registered until it leaves, or until it has sent no heartbeat for a day."""

from __future__ import annotations

from msgspec.structs import replace

from doorstep.clock import DAY
from doorstep.model.listing import Workers
from doorstep.services.coordination import Heartbeat, TaskLock
from doorstep.stores.store import Task
from doorstep.telemetry.metrics import Load
from tests.unit.engine.scene import Bench


def a_lock(bench: Bench) -> TaskLock:
    return TaskLock(bench.store, Task.ALERTS, "a", bench.clock, lease_seconds=15)


def a_heart(bench: Bench, name: str = "a", lock: TaskLock | None = None, busy: int = 0) -> Heartbeat:
    locks = [lock or a_lock(bench)]
    return Heartbeat(bench.store, bench.clock, name, 512, lambda: Load(0, busy), {"ship", "bill"}, locks)


async def test_each_beat_tells_the_register_how_the_process_stands() -> None:
    bench = Bench()
    lock = a_lock(bench)
    heart = a_heart(bench, lock=lock, busy=7)
    assert await heart.run_once() == 10.0
    (before,) = await bench.store.find(None, Workers(seen_after=0, limit=10))
    assert (before.places, before.places_in_use, before.handlers, before.tasks) == (512, 7, ("bill", "ship"), ())
    bench.clock.advance(10)
    assert await lock.acquire()
    await heart.run_once()
    (after,) = await bench.store.find(None, Workers(seen_after=0, limit=10))
    assert after == replace(before, seen_at=before.seen_at + 10_000_000, tasks=("watch",))


async def test_a_task_that_was_let_go_is_told_for_a_while_and_no_longer() -> None:
    bench = Bench()
    lock = a_lock(bench)
    heart = a_heart(bench, lock=lock)
    assert await lock.acquire()
    bench.clock.advance(89)
    assert heart.current().tasks == ("watch",)
    bench.clock.advance(2)
    assert heart.current().tasks == ()


async def test_who_leaves_is_no_longer_in_the_register() -> None:
    bench = Bench()
    one, other = (a_heart(bench, name) for name in ("a", "b"))
    await one.run_once()
    await other.run_once()
    await one.remove()
    assert [found.name for found in await bench.store.find(None, Workers(seen_after=0, limit=10))] == ["b"]


async def test_who_was_lost_is_remembered_for_a_day() -> None:
    bench = Bench()
    await a_heart(bench, "lost").run_once()
    alive = a_heart(bench, "alive")
    bench.clock.advance(DAY // 1_000_000 - 1)
    await alive.run_once()
    assert {one.name for one in await bench.store.find(None, Workers(seen_after=0, limit=10))} == {"alive", "lost"}
    bench.clock.advance(1_200)
    await alive.run_once()
    assert {one.name for one in await bench.store.find(None, Workers(seen_after=0, limit=10))} == {"alive"}
