"""Notification slots shared by owners: no owner takes all of them, and the wait for a slot is bounded."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from doorstep.operations.notifiers import OwnerSlots


async def test_one_owner_has_some_of_the_places_and_another_still_gets_one() -> None:
    places = OwnerSlots(4, 2, wait_seconds=0)
    async with AsyncExitStack() as held:
        slow = [await held.enter_async_context(places.slot("slow")) for _ in range(3)]
        assert slow == [True, True, False]
        assert await held.enter_async_context(places.slot("quick")) is True


async def test_all_owners_together_have_no_more_than_there_are_and_get_them_back() -> None:
    places = OwnerSlots(4, 2, wait_seconds=0)
    async with AsyncExitStack() as held:
        got = [await held.enter_async_context(places.slot(owner)) for owner in "aabbc"]
        assert got == [True, True, True, True, False]
    async with AsyncExitStack() as held:
        assert [await held.enter_async_context(places.slot(owner)) for owner in "ccdd"] == [True] * 4


async def test_who_waits_gets_the_place_that_is_given_back() -> None:
    places = OwnerSlots(1, 1, wait_seconds=30)
    async with AsyncExitStack() as held:
        await held.enter_async_context(places.slot("a"))
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(_taken(places))
            await asyncio.sleep(0)
            assert not waiting.done()
            await held.aclose()
        assert waiting.result()


async def _taken(places: OwnerSlots) -> bool:
    async with places.slot("b") as has_place:
        return has_place


async def test_who_is_gone_is_forgotten() -> None:
    places = OwnerSlots(1, 1, wait_seconds=0)
    for owner in range(100):
        async with places.slot(str(owner)):
            pass
    assert len(places._own) <= 1
