"""Tasks that only one process runs at a time: its lock keeps others out until it is released or its process is gone."""

from __future__ import annotations

import asyncio

import pytest

from doorstep.clock import SECOND
from doorstep.stores.sql.postgres import PostgresStore
from doorstep.stores.store import LOCK_MAX, Store, Task
from tests.contract.places import Place
from tests.support.builders import NOW
from tests.support.patience import PATIENCE_SECONDS


@pytest.mark.parametrize("task", Task)
async def test_of_two_who_want_to_do_it_one_holds_a_task_until_he_leaves(place: Place, task: Task) -> None:
    first, second = await place.open(), await place.open()
    await _until_connected(first, second)
    assert await first.acquire_lock(task, "a", NOW, NOW + SECOND)
    assert await first.acquire_lock(task, "a", NOW + 1, NOW + 2 * SECOND), "who holds it may go on"
    assert not await second.acquire_lock(task, "b", NOW + SECOND, NOW + 3 * SECOND)
    await second.release_lock(task, "b")
    assert not await second.acquire_lock(task, "b", NOW + SECOND, NOW + 3 * SECOND)
    await first.release_lock(task, "a")
    assert await second.acquire_lock(task, "b", NOW + SECOND, NOW + 3 * SECOND)
    assert not await first.acquire_lock(task, "a", NOW + SECOND, NOW + 4 * SECOND)
    await first.close()
    await second.close()


@pytest.mark.parametrize("task", Task)
async def test_whoever_held_a_task_and_is_gone_holds_up_nobody_for_long(place: Place, task: Task) -> None:
    first, second = await place.open(), await place.open()
    await _until_connected(first, second)
    assert await first.acquire_lock(task, "a", NOW, NOW + SECOND)
    await first.close()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await second.acquire_lock(task, "b", NOW + SECOND, NOW + 2 * SECOND):  # the server soon notices
            await asyncio.sleep(0)
    await second.close()


async def test_each_task_is_held_for_itself(place: Place) -> None:
    first, second = await place.open(), await place.open()
    await _until_connected(first, second)
    for task in Task:
        assert await first.acquire_lock(task, "a", NOW, NOW + SECOND)
    await first.release_lock(Task.ROLLUPS, "a")
    held = [await second.acquire_lock(task, "b", NOW, NOW + SECOND) for task in Task]
    assert held == [task is Task.ROLLUPS for task in Task]
    await first.close()
    await second.close()


@pytest.mark.parametrize("task", Task)
async def test_a_process_that_starts_leaves_the_locks_of_running_ones_alone(place: Place, task: Task) -> None:
    first, second = await place.open(), await place.open()
    await _until_connected(first, second)
    assert await first.acquire_lock(task, "a", NOW, NOW + LOCK_MAX)
    await second.shift_waits(NOW, 1)
    assert not await second.acquire_lock(task, "b", NOW, NOW + LOCK_MAX)
    await first.close()
    await second.close()


async def _until_connected(*stores: Store) -> None:
    """Wait for PostgreSQL's listening connection, which holds the outbox lock and is opened in the background."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        for store in stores:
            while isinstance(store, PostgresStore) and store._wakeups._connection is None:
                await asyncio.sleep(0.001)
