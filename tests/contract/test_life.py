"""The life cycle of a store: open, migrate, close; and its clock."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import pairwise

import pytest

from doorstep.clock import SECOND
from doorstep.errors import StoreUnavailable
from doorstep.model.claim import Quota
from doorstep.model.delivery import DeliveryState
from doorstep.model.event import EventView
from doorstep.stores.store import Store, Topic
from tests.contract.places import Place
from tests.contract.scene import LEASE, Scene
from tests.support.builders import a_submission, an_endpoint, an_org
from tests.support.patience import PATIENCE_SECONDS
from tests.support.shortcuts import put


async def test_what_was_kept_is_there_after_closing_and_opening_again(place: Place) -> None:
    first = await place.open()
    scene = await Scene(first).prepare()
    (submission,) = await scene.accept()
    claim = await scene.claim_one()
    await first.close()

    scene.store = await place.open()

    assert (await scene.store.get(EventView, scene.org_id, submission.event.event_id)).event == submission.event
    assert await scene.counts() == {DeliveryState.IN_PROGRESS: 1}
    assert (await scene.deliver(claim)).late == (), "the worker's claim outlives its store"
    await scene.store.close()


async def test_migrating_what_is_current_changes_nothing(scene: Scene) -> None:
    await scene.accept()
    await scene.store.migrate()
    assert await scene.counts() == {DeliveryState.PENDING: 1}


async def test_the_stores_time_is_shared_and_does_not_go_back(store: Store, other_store: Store) -> None:
    told = [await one.time() for one in (store, other_store) * 3]
    assert all(later >= earlier - SECOND for earlier, later in pairwise(told))
    assert told[-1] - told[0] < 60 * SECOND


async def test_work_accepted_by_one_store_wakes_the_others_that_share_it(scene: Scene, other_store: Store) -> None:
    woken = asyncio.Event()
    other_store.on_wakeup(Topic.DELIVERIES, woken.set)
    await other_store.due_lanes(scene.now)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not woken.is_set():  # a hint may be lost, so one of many is enough
            await scene.submit(a_submission(scene.org_id, [scene.endpoint.endpoint_id]))
            with suppress(TimeoutError):
                await asyncio.wait_for(woken.wait(), 0.2)


async def test_changes_and_dead_letters_wake_who_looks_for_incidents_in_this_process_and_in_others(
    scene: Scene, other_store: Store
) -> None:
    if not scene.store.features.announces_work:
        pytest.skip("services poll this store")
    here, there = asyncio.Event(), asyncio.Event()
    scene.store.on_wakeup(Topic.INCIDENTS, here.set)
    other_store.on_wakeup(Topic.INCIDENTS, there.set)

    async def change() -> None:
        await put(scene.store, an_endpoint(scene.org_id), 0)

    async def lose() -> None:
        await scene.accept()
        await scene.kill(await scene.claim_one())

    for write in (change, lose):
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not there.is_set():  # a hint may be lost, so one of many is enough
                here.clear()
                await write()
                assert here.is_set(), "a write of this process is never missed"
                with suppress(TimeoutError):
                    await asyncio.wait_for(there.wait(), 0.2)
        there.clear()


async def test_work_under_way_when_a_store_closes_is_done_or_refused_as_unavailable(
    scene: Scene, other_store: Store
) -> None:
    await scene.accept(20)
    quotas = [Quota(scene.endpoint.endpoint_id, 1)]
    calls = [
        asyncio.create_task(call)
        for n in range(20)
        for call in (
            other_store.due_lanes(scene.now),
            other_store.routing({scene.org_id: -1}),
            other_store.claim(quotas, scene.now, scene.now + LEASE, f"w{n}"),
            put(other_store, an_org()),
        )
    ]
    await asyncio.sleep(0)  # all calls have begun, none has ended
    await other_store.close()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(one) for one in answers if isinstance(one, BaseException)} <= {StoreUnavailable}
