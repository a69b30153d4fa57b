"""Work that one process accepts wakes the other processes immediately, and a lost LISTEN connection is replaced."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from doorstep.clock import SECOND
from doorstep.model.action import Action, ActionKind
from doorstep.stores.sql.postgres import PostgresStore
from doorstep.stores.store import Topic
from tests.support.builders import NOW, a_submission, an_endpoint, an_org
from tests.support.patience import PATIENCE_SECONDS
from tests.support.postgres_server import PostgresServer
from tests.support.shortcuts import put, routing_versions


class Sleeper:
    """The store of a second process, which records wakeups."""

    def __init__(self, store: PostgresStore) -> None:
        self.store = store
        self._woken = asyncio.Event()
        store.on_wakeup(Topic.DELIVERIES, self._woken.set)

    async def wakes(self) -> None:
        """Wait for a wakeup; fails by a timeout if none arrives."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self._woken.wait()
        self._woken.clear()

    @property
    def was_woken(self) -> bool:
        return self._woken.is_set()


@pytest.fixture
async def sleeper(postgres_url: str) -> AsyncIterator[Sleeper]:
    """A sleeper that is already listening. Starting to listen causes a first wakeup, because earlier notifications were
    missed."""
    sleeper = Sleeper(PostgresStore(postgres_url))
    await sleeper.store.open()
    await sleeper.wakes()
    yield sleeper
    await sleeper.store.close()


@pytest.fixture
async def ready(postgres_store: PostgresStore) -> tuple[UUID, UUID]:
    listening = Sleeper(postgres_store)
    org = an_org()
    await put(postgres_store, org)
    endpoint = an_endpoint(org.org_id)
    await put(postgres_store, endpoint, 0)
    if postgres_store._wakeups._connection is None:
        await listening.wakes()
    return org.org_id, endpoint.endpoint_id


async def _accept(store: PostgresStore, org_id: UUID, endpoint_id: UUID) -> UUID:
    submission = a_submission(org_id, [endpoint_id])
    await store.accept([submission], await routing_versions(store), NOW)
    return submission.deliveries[0].delivery_id


async def test_an_accept_wakes_another_process(
    postgres_store: PostgresStore, sleeper: Sleeper, ready: tuple[UUID, UUID]
) -> None:
    await _accept(postgres_store, *ready)
    await sleeper.wakes()


async def test_an_operators_retry_wakes_another_process(
    postgres_store: PostgresStore, sleeper: Sleeper, ready: tuple[UUID, UUID]
) -> None:
    delivery_id = await _accept(postgres_store, *ready)
    await sleeper.wakes()
    act = Action(kind=ActionKind.RETRY, org_id=ready[0], delivery_ids=(delivery_id,), actor="ops", at=NOW + SECOND)
    await postgres_store.act(act)
    await sleeper.wakes()


async def test_listening_goes_on_after_the_connection_was_killed(
    postgres_store: PostgresStore,
    sleeper: Sleeper,
    ready: tuple[UUID, UUID],
    postgres_server: PostgresServer,
    postgres_url: str,
) -> None:
    postgres_server.kill_connections(postgres_url.rsplit("/", 1)[1])
    await sleeper.wakes()  # it listens again, and checks for work that it may have missed


async def test_a_store_is_not_woken_by_its_own_notifications(sleeper: Sleeper) -> None:
    connection = sleeper.store._wakeups._connection
    assert connection is not None
    await connection.execute("NOTIFY doorstep_work")
    await connection.execute("SELECT 1")
    assert not sleeper.was_woken


def test_a_store_that_was_opened_in_another_event_loop_before_listens_and_tells_in_this_one(postgres_url: str) -> None:
    """Sending the first event opens the store in Doorstep's own event loop. When the program then opens it, the store
    moves to the program's loop."""
    store = PostgresStore(postgres_url)

    async def listen_twice() -> list[object]:
        woken = asyncio.Event()
        store.on_wakeup(Topic.DELIVERIES, woken.set)
        await store.open()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await woken.wait()
        waited = asyncio.create_task(store._wakeups._until_lost())
        asked = await asyncio.gather(*(store._wakeups._fetch("SELECT 1") for _ in range(3)))
        waited.cancel()
        await asyncio.gather(waited, return_exceptions=True)
        connection = store._wakeups._connection
        await asyncio.sleep(0)
        assert store._wakeups._listening is not None and store._wakeups._connection is connection
        await store.close()
        return asked

    for _ in range(2):
        assert asyncio.run(listen_twice()) == [1, 1, 1]
