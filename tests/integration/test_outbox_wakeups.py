"""Posted events need not wait for a poll: if the database does not announce commits, Doorstep does."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import asyncpg
import psycopg
import pytest
from pydantic import SecretStr

from doorstep import Doorstep, Settings
from doorstep.clock import SECOND
from doorstep.loop_binding import LoopBinding, Pin
from doorstep.services import coordination, forwarder
from doorstep.stores.open import store_from_url
from doorstep.stores.sql.postgres import PostgresStore
from doorstep.stores.sql.postgres.wakeups import POSTED
from doorstep.stores.store import Task, Topic
from tests.integration import outbox_shop as shop
from tests.support.patience import PATIENCE_SECONDS

NEVER_SECONDS = 3_600.0
IGNORES = "CREATE OR REPLACE FUNCTION doorstep_outbox_announce() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RETURN NULL; END$$"
"""A deliberately broken trigger."""


@pytest.fixture(autouse=True)
def _no_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarder, "POLL_SECONDS", NEVER_SECONDS)
    monkeypatch.setattr(forwarder, "NOTICED_POLL_SECONDS", NEVER_SECONDS)
    monkeypatch.setattr(coordination, "IDLE_POLL_SECONDS", NEVER_SECONDS)


async def until_asleep(ds: Doorstep) -> None:
    """Wait until the forwarder would poll again only after minutes, and the listening connection has sent its first
    wakeup."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while isinstance(ds.components.store, PostgresStore) and ds.components.store._wakeups._connection is None:
            await asyncio.sleep(0.01)
        await has_looked(ds)
        ds.components.forwarder._pause_seconds = NEVER_SECONDS
        await has_looked(ds)


async def has_looked(ds: Doorstep) -> None:
    """Wait until the forwarder has been hinted, has read the whole outbox, and has decided how long to sleep."""
    ds.components.forwarder._empty_polls = 0
    await has_looked_without_hint(ds)


async def has_looked_without_hint(ds: Doorstep) -> None:
    looked, run_once = asyncio.Event(), ds.components.forwarder.run_once

    async def noted() -> float | None:
        delay = await run_once()
        looked.set()
        return delay

    ds.components.forwarder.run_once = noted  # type: ignore[method-assign]
    ds.components.forwarder.wake.set()
    await looked.wait()
    ds.components.forwarder.run_once = run_once  # type: ignore[method-assign]


async def until_announced(ds: Doorstep) -> None:
    """Wait until the forwarder has asked for announcements and sleeps. It need not poll twenty times before."""
    ds.components.forwarder._empty_polls = forwarder.POLLS_BEFORE_SLEEP
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not ds.components.forwarder._is_asleep:
            await asyncio.sleep(0.01)
            await has_looked_without_hint(ds)
    await has_looked_without_hint(ds)


async def until_connected(sender: Doorstep) -> None:
    """Wait until the sender has its listening connection, through which it can wake others."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while sender.components.store._wakeups._connection is None:  # type: ignore[attr-defined]
            await asyncio.sleep(0.01)


async def test_a_process_that_only_sends_tells_the_worker_in_another(postgres_url: str) -> None:
    async with shop.running(postgres_url) as (worker, arrived):
        sender = Doorstep(Settings(database_url=postgres_url, secret_key=SecretStr(shop.SECRET)))
        await sender.open()
        await until_asleep(worker)
        await until_connected(sender)
        with psycopg.connect(postgres_url) as connection:
            sender.send_sync("order.paid", {"order": "1"}, connection=connection)
        await shop.until_forwarded(worker, arrived, 1)
        await sender.close()


async def test_a_thread_that_commits_at_once_wakes_the_worker_of_its_own_process(postgres_url: str) -> None:
    async with shop.running(postgres_url) as (ds, arrived):
        await until_asleep(ds)

        def order() -> None:
            with psycopg.connect(postgres_url) as connection:
                ds.send_sync("order.paid", {"order": "1"}, connection=connection)

        thread = threading.Thread(target=order)
        thread.start()
        await shop.until_forwarded(ds, arrived, 1)
        thread.join()


def post_unannounced(url: str, order: str) -> psycopg.Connection:
    """Post in a program that knows of no worker. The transaction is still open."""
    connection = psycopg.connect(url)
    Doorstep(url).send_sync("order.paid", {"order": order}, connection=connection)
    return connection


async def test_on_postgresql_the_commit_of_a_program_that_knows_of_no_worker_wakes_a_sleeping_forwarder(
    postgres_url: str,
) -> None:
    async with shop.running(postgres_url) as (ds, arrived):
        await until_asleep(ds)
        await until_announced(ds)
        post_unannounced(postgres_url, "1").__exit__(None, None, None)
        await shop.until_forwarded(ds, arrived, 1)
        assert not ds.components.forwarder._is_asleep, "the next senders need not notify"


async def test_two_forwarders_sleep_at_the_same_time_and_either_is_woken(postgres_url: str) -> None:
    async with shop.running(postgres_url) as (one, arrived):
        await shop.execute(postgres_url, "DROP TABLE orders")
        async with shop.running(postgres_url) as (other, arrived_there):
            for ds in (one, other):
                await until_asleep(ds)
                await until_announced(ds)
            assert one.components.forwarder._is_asleep
            post_unannounced(postgres_url, "1").__exit__(None, None, None)
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not (arrived or arrived_there):
                    await asyncio.sleep(0.005)


async def test_the_control_a_trigger_that_announces_nothing_leaves_a_sleeping_forwarder_asleep(
    postgres_url: str,
) -> None:
    async with shop.running(postgres_url) as (ds, arrived):
        await shop.execute(postgres_url, IGNORES)
        await until_asleep(ds)
        await until_announced(ds)
        post_unannounced(postgres_url, "1").__exit__(None, None, None)
        await asyncio.sleep(0.3)
        assert arrived == []
        ds.wake()
        await shop.until_forwarded(ds, arrived, 1)


async def test_no_forwarder_sleeps_while_a_transaction_that_posted_unannounced_is_open(postgres_url: str) -> None:
    async with shop.running(postgres_url) as (ds, arrived):
        await until_asleep(ds)
        store = ds.components.store
        posting = post_unannounced(postgres_url, "1")
        assert not await store.announce_posts(True)
        assert not await store.announce_posts(True)
        posting.commit()
        assert await store.announce_posts(True)
        assert arrived == [], "it was not announced, so the forwarder looks once more before it sleeps"
        posting.close()
        ds.wake()
        await shop.until_forwarded(ds, arrived, 1)


async def test_senders_do_not_notify_while_no_forwarder_sleeps(postgres_url: str) -> None:
    heard: list[str] = []
    async with shop.running(postgres_url) as (ds, arrived):
        await until_asleep(ds)
        listening = await asyncpg.connect(postgres_url)
        await listening.add_listener(POSTED, lambda *parts: heard.append(str(parts[2])))
        for sleeps in (False, True):
            assert await ds.components.store.announce_posts(sleeps) is sleeps
            post_unannounced(postgres_url, str(sleeps)).__exit__(None, None, None)
            await listening.fetchval("SELECT 1")
            assert len(heard) == sleeps
        await listening.close()
        ds.wake()
        await shop.until_forwarded(ds, arrived, 2)


async def test_on_sqlite_the_commit_of_a_program_that_knows_of_no_worker_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    async with shop.running(f"sqlite:///{path}") as (ds, arrived):
        await until_asleep(ds)
        with closing(sqlite3.connect(path)) as connection:
            Doorstep(f"sqlite:///{path}").send_sync("order.paid", {"order": "1"}, connection=connection)
            connection.commit()
        await shop.until_forwarded(ds, arrived, 1)


async def test_waking_what_is_closed_does_nothing(tmp_path: Path) -> None:
    ds = Doorstep(f"sqlite:///{tmp_path / 'shop.db'}")
    ds.wake()
    await ds.open()
    await ds.close()
    ds.wake()


class Closing(LoopBinding[str]):
    """A binding that appears to be closed by another thread between two reads of its state."""

    reads = 0

    def __getattribute__(self, name: str) -> object:
        if name == "_pin":
            self.reads += 1
            return Pin("opened") if self.reads == 1 else None
        return super().__getattribute__(name)


async def test_waking_what_is_being_closed_in_another_thread_does_no_harm() -> None:
    woken: list[str] = []
    closing: list[Closing] = [Closing(*3 * (lambda *_: asyncio.sleep(0),)) for _ in range(4)]  # type: ignore[arg-type]
    closing[0].call_soon(woken.append)
    await asyncio.sleep(0)
    assert woken == ["opened"]
    assert closing[1].is_open() and closing[2].opened == "opened"
    assert closing[3].pin().loop is asyncio.get_running_loop()


async def test_a_worker_that_is_closed_leaves_the_outbox_to_the_others_at_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    other = store_from_url(url)
    async with shop.running(url) as (ds, _):
        await other.open()
        await until_asleep(ds)
        ds.components.forwarder.forward = nothing_to_forward  # type: ignore[method-assign]  # it would release the lock
        assert await ds.components.forwarder.lock.acquire()
        now = ds.clock.now()
        assert not await other.acquire_lock(Task.OUTBOX, "other", now, now + SECOND)
    assert await other.acquire_lock(Task.OUTBOX, "other", now, now + SECOND)
    await other.close()


async def nothing_to_forward() -> int:
    return 0


async def test_the_control_without_any_hint_nothing_arrives(postgres_url: str) -> None:
    async with shop.running(postgres_url) as (ds, arrived):
        await until_asleep(ds)
        with psycopg.connect(postgres_url) as connection:
            Doorstep(postgres_url).send_sync("order.paid", {"order": "1"}, connection=connection)
        await asyncio.sleep(0.3)
        assert arrived == []
        ds.wake()
        await shop.until_forwarded(ds, arrived, 1)


async def test_two_workers_forward_each_event_once_and_say_so_once(postgres_url: str) -> None:
    said: list[str] = []

    def hear(facts: object) -> None:
        said.extend(one.event_id for one in facts if getattr(one, "new_status", "") == "received")  # type: ignore

    async with shop.running(postgres_url) as (one, _):
        one.telemetry.subscribe(hear)
        await shop.execute(postgres_url, "DROP TABLE orders")
        async with shop.running(postgres_url) as (other, _):
            other.telemetry.subscribe(hear)
            posted = []
            for number in range(40):
                with psycopg.connect(postgres_url) as connection:
                    posted.append(one.send_sync("order.paid", {"order": str(number)}, connection=connection).event_id)
                other.wake()
            async with asyncio.timeout(PATIENCE_SECONDS):
                while len(said) < 40 or await one.components.store.any_waiting(Topic.OUTBOX):
                    await asyncio.sleep(0.005)
    assert sorted(said) == sorted(posted)
