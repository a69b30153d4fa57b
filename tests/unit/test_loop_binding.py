"""The event loop to which a Doorstep is bound: the first call opens it, and it moves only if nothing is disturbed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from doorstep.app import Doorstep
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.config import Settings
from doorstep.errors import Conflict, StoreUnavailable
from doorstep.loop_binding import Pin
from doorstep.model.listing import OrgKeys, Orgs
from doorstep.stores.program_sql import SqlDefinitions
from tests.reference import ReferenceStore


@pytest.fixture
def ds() -> Doorstep:
    return Doorstep("memory://", store=ReferenceStore())


async def elsewhere(work: Callable[[], Coroutine[Any, Any, object]]) -> object:
    """Run the work in an event loop of another thread."""
    return await asyncio.to_thread(lambda: asyncio.run(work()))


# -- before it is open -------------------------------------------------------------------------------------------------


async def test_what_needs_an_open_store_says_so_instead_of_failing_somehow(ds: Doorstep) -> None:
    asked = (
        ds.create_endpoint(name="x", url="https://example.com"),
        ds.endpoints(),
        ds.event(DEFAULT_ORG),
        ds.send_many([]),
    )
    for asking in asked:
        with pytest.raises(Conflict, match="this Doorstep is not open; open it first"):
            await asking
    with pytest.raises(Conflict, match="open it first"):
        ds.start()
    with pytest.raises(Conflict, match="open it first"):
        _ = ds.components


async def test_the_first_event_opens_it_in_an_event_loop_of_our_own_and_everything_can_be_asked_from_others(
    ds: Doorstep,
) -> None:
    receipt = await ds.send("x", {})
    assert ds.binding.pin().loop is ds.binding.thread.loop()
    assert (await ds.event(receipt.event_id)).event_type == "x"
    assert await elsewhere(ds.endpoints) == []
    await ds.close()
    assert not ds.binding.is_open()


async def test_only_who_asks_for_one_is_given_a_new_admin_key(ds: Doorstep) -> None:
    await ds.send("x", {})
    assert ds.generated_admin_key is None
    async with ds:
        assert ds.generated_admin_key is None and not await ds.components.store.find(DEFAULT_ORG, OrgKeys())
    await ds.open(admin_key=True)
    assert ds.generated_admin_key and await ds.components.keys.authenticate(ds.generated_admin_key)
    await ds.close()


# -- opening and closing -----------------------------------------------------------------------------------------------


class Stumbling(ReferenceStore):
    """A store whose first read after opening fails."""

    stumbles = True
    closed = 0

    async def find(self, org_id: Any, query: Any) -> Any:
        if self.stumbles:
            raise StoreUnavailable("it is away")
        return await super().find(org_id, query)

    async def close(self) -> None:
        self.closed += 1
        await super().close()


async def test_a_store_that_fails_half_way_is_closed_and_can_be_opened_later() -> None:
    store = Stumbling()
    ds = Doorstep("memory://", store=store)
    with pytest.raises(StoreUnavailable, match="it is away"):
        await ds.open()
    assert store.closed == 1 and not ds.binding.is_open()
    store.stumbles = False
    await ds.send("x", {})
    await ds.close()


async def test_all_who_want_it_open_at_once_find_one_opening(ds: Doorstep, monkeypatch: pytest.MonkeyPatch) -> None:
    under_way, most = 0, 0
    migrate = ds._store.migrate

    async def counted(definitions: SqlDefinitions) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        await migrate(definitions)
        under_way -= 1

    monkeypatch.setattr(ds._store, "migrate", counted)
    await asyncio.gather(
        ds.open(),
        *(ds.send("n", number) for number in range(5)),
        *(elsewhere(lambda: ds.send("n", 5)) for _ in range(3)),
        *(asyncio.to_thread(ds.send_sync, "n", 6) for _ in range(3)),
    )
    assert most == 1 and ds.binding.pin().loop is asyncio.get_running_loop()
    await ds.close()


async def test_it_does_not_move_away_from_a_worker(ds: Doorstep) -> None:
    async with ds:
        with pytest.raises(Conflict, match="delivers in another event loop; close it there first"):
            await elsewhere(ds.open)
        assert ds.binding.pin().loop is asyncio.get_running_loop()
        await elsewhere(lambda: ds.send("x", {}))


async def test_a_second_start_is_refused_and_the_first_goes_on(ds: Doorstep) -> None:
    async with ds:
        worker = ds.components.worker
        for start in (ds.__aenter__, _as_async(ds.start)):
            with pytest.raises(Conflict, match="this Doorstep is already delivering"):
                await start()
        assert ds.components.worker is worker and ds.binding.is_open()


def _as_async(function: Callable[[], object]) -> Callable[[], Coroutine[Any, Any, object]]:
    async def asynchronous() -> object:
        return function()

    return asynchronous


async def test_a_store_that_is_started_again_and_again_calls_each_of_us_once(
    ds: Doorstep, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[object] = []
    monkeypatch.setattr(ds._store, "on_wakeup", lambda topic, wake: called.append(wake))
    for _ in range(3):
        async with ds:
            pass
    assert len(called) == 3


async def test_closing_waits_for_who_is_still_at_it(ds: Doorstep) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def work() -> bool:
        begun.set()
        await go_on.wait()
        return bool(await ds.components.store.find(None, Orgs()))

    await ds.open()
    working = asyncio.create_task(ds.binding.call(work))
    await begun.wait()
    closing = asyncio.create_task(ds.close())
    await asyncio.sleep(0)
    go_on.set()
    await closing
    assert working.done() and working.result()


async def test_the_store_is_closed_whatever_happens_to_the_last_words(
    ds: Doorstep, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise ValueError("a bug")

    await ds.open()
    ds.start()
    monkeypatch.setattr(ds.components.dead_letter_notifier, "flush", broken)
    with pytest.raises(ValueError, match="a bug"):
        await ds.close()
    assert not ds.binding.is_open() and ds.binding.opened is None


# -- threads -----------------------------------------------------------------------------------------------------------


def test_run_says_that_it_belongs_into_the_main_thread() -> None:
    ds = Doorstep(Settings(database_url="memory://", log_level="error"))
    said: list[str] = []

    def run() -> None:
        try:
            ds.run()
        except RuntimeError as error:
            said.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert said[0].startswith("this runs until a signal arrives, and only the main thread receives signals")


def test_a_doorstep_whose_event_loop_was_ended_without_closing_it_delivers_again_in_another() -> None:
    ds = Doorstep("memory://")

    async def forget_to_close() -> None:
        await ds.open()
        ds.start()

    async def deliver() -> None:
        async with ds:
            await ds.send("order.paid", {})

    asyncio.run(forget_to_close())
    asyncio.run(deliver())


# -- pinned work -------------------------------------------------------------------------------------------------------


async def test_work_that_reaches_for_a_closed_opening_fails_once_and_is_not_repeated(ds: Doorstep) -> None:
    await ds.open()
    pin = ds.binding.pin()
    await ds.close()
    await ds.open()
    begun: list[str] = []

    async def work() -> None:
        begun.append("begun")
        await pin.call(lambda: ds._store.find(None, Orgs()))

    for call in (ds.binding.call, elsewhere_of(ds)):
        with pytest.raises(StoreUnavailable, match="has been closed"):
            await call(work)
    assert begun == ["begun", "begun"]
    await ds.close()


def elsewhere_of(ds: Doorstep) -> Callable[[Callable[[], Coroutine[Any, Any, object]]], Coroutine[Any, Any, object]]:
    return lambda work: asyncio.to_thread(ds.binding.call_sync, work)


async def test_a_call_that_finds_the_opening_closed_on_its_way_goes_on_in_the_next_one(
    ds: Doorstep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is closed after the call has found its event loop, but before the call arrives there."""
    await ds.open()
    pin, run = ds.binding.pin(), Pin._run

    async def too_late(self: Pin[Any], work: Callable[[], Coroutine[Any, Any, object]]) -> object:
        if self is pin:
            await ds.close()
        return await run(self, work)

    async def work() -> object:
        return await ds.components.store.find(None, Orgs())

    monkeypatch.setattr(Pin, "_run", too_late)
    assert await asyncio.to_thread(ds.binding.call_sync, work)
    assert ds.binding.pin() is not pin
    await ds.close()
