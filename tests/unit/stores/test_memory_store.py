"""The in-memory store: it loses everything when closed, its calls never wait, and any thread may use it."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

from doorstep.clock import SECOND
from doorstep.errors import NotFound, StoreUnavailable
from doorstep.model.claim import Quota
from doorstep.model.event import EventView
from doorstep.model.listing import Orgs
from doorstep.model.outbox import OutboxMessage, OutboxOptions
from doorstep.model.record import uuid7
from doorstep.stores.open import store_from_url
from doorstep.stores.sql.ddl import schema_ddl
from doorstep.stores.sql.sqlite.memory_store import MemoryStore
from doorstep.stores.store import Store, Topic
from tests.support.builders import NOW, a_submission, an_endpoint, an_org
from tests.support.shortcuts import put, routing_versions

T = TypeVar("T")

OPENING_SECONDS_MAX = 0.05
"""CPU seconds. Opening takes 1 ms, or 25 ms in a process that has to compile the schema first."""


async def an_open_store() -> MemoryStore:
    store = MemoryStore()
    await store.migrate()
    await store.open()
    return store


def at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that must finish without waiting."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        return ended.value  # type: ignore[no-any-return]
    raise AssertionError("it waited for something")


async def test_what_was_kept_is_gone_when_it_is_closed_and_names_are_not_taken_for_others() -> None:
    store = await an_open_store()
    first, second = an_org(), an_org()
    await put(store, first)
    await store.accept([a_submission(first.org_id)], await routing_versions(store), NOW)
    await store.close()
    await store.open()
    assert await store.find(None, Orgs()) == []
    await put(store, second)  # reuses the row number of the first one
    with pytest.raises(NotFound):
        await store.accept([a_submission(first.org_id)], await routing_versions(store), NOW)
    await store.close()


async def test_stores_share_nothing() -> None:
    one, other = await an_open_store(), await an_open_store()
    await put(one, an_org())
    assert await other.find(None, Orgs()) == []
    await one.close()
    assert await other.find(None, Orgs()) == []
    await other.close()


async def test_one_that_is_not_open_is_unavailable() -> None:
    store = MemoryStore()
    for life in (store.close, store.close):  # never opened, and closed twice
        with pytest.raises(StoreUnavailable, match="memory:// is not open"):
            await store.find(None, Orgs())
        await life()
    await store.open()
    await store.close()
    with pytest.raises(StoreUnavailable):
        await put(store, an_org())


def test_every_verb_ends_in_its_first_step_so_that_no_event_loop_is_needed() -> None:
    store: Store = store_from_url("memory://")
    org = an_org()
    endpoint = an_endpoint(org.org_id)
    at_once(store.migrate())
    at_once(store.open())
    at_once(put(store, org))
    at_once(put(store, endpoint, 0))
    submission = a_submission(org.org_id, [endpoint.endpoint_id])
    at_once(store.accept([submission], at_once(routing_versions(store)), NOW))
    (claim,) = at_once(store.claim([Quota(endpoint.endpoint_id, 1)], NOW, NOW + SECOND, "w1"))
    assert claim.event_id == submission.event.event_id
    assert at_once(store.get(EventView, org.org_id, claim.event_id)).event == submission.event
    at_once(store.close())


async def test_a_verb_that_is_refused_leaves_nothing_behind() -> None:
    store, org = await an_open_store(), an_org()
    await put(store, org)
    fine, strange = a_submission(org.org_id), a_submission(an_org().org_id)
    with pytest.raises(NotFound):
        await store.accept([fine, strange], await routing_versions(store), NOW)
    with pytest.raises(NotFound):
        await store.get(EventView, org.org_id, fine.event.event_id)
    await store.accept([fine], await routing_versions(store), NOW)
    await store.close()


async def test_threads_take_turns() -> None:
    store = await an_open_store()
    orgs = [an_org() for _ in range(200)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda org: at_once(put(store, org)), orgs))
    assert {org.org_id for org in await store.find(None, Orgs())} == {org.org_id for org in orgs}
    await store.close()


async def test_a_thread_that_comes_too_late_for_a_store_that_is_being_closed_is_told_that_it_is_unavailable() -> None:
    store = await an_open_store()
    database = store._opened_writer()  # as a store call in another thread holds it
    await store.close()
    with pytest.raises(StoreUnavailable):
        await database.run(lambda connection: connection.execute("SELECT 1"))


async def test_what_was_posted_before_it_was_opened_is_found_afterwards() -> None:
    store, woken = MemoryStore(), []
    store.on_wakeup(Topic.OUTBOX, lambda: woken.append("store"))
    message = OutboxMessage(
        event_id=uuid7(NOW),
        org_id=an_org().org_id,
        event_type="order.paid",
        payload=b"{}",
        created_at=NOW,
        options=OutboxOptions(),
    )
    connection = sqlite3.connect(":memory:")  # the program's own; it has no Doorstep table
    assert store.post_on(connection, message, lambda: woken.append("sender")) is None
    connection.close()
    await store.open()
    assert await store.outbox(10) == [message]
    assert woken == ["store", "sender"]
    await store.close()


async def test_it_has_the_schema_of_a_file() -> None:
    store = await an_open_store()
    described = sqlite3.connect(":memory:")
    described.executescript(";\n".join(schema_ddl("sqlite")))
    query = "SELECT type, name, sql FROM sqlite_master ORDER BY type, name"
    found = await store._opened_readers().run(lambda connection: connection.execute(query).fetchall())
    assert found == described.execute(query).fetchall()
    described.close()
    await store.close()


async def test_the_database_itself_refuses_what_it_must() -> None:
    store = await an_open_store()
    broken = (
        "INSERT INTO doorstep_endpoints (uid, org_id, state, version, document) VALUES (x'00', 77, 'active', 1, '')"
    )
    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
        await store._opened_writer().run(lambda connection: connection.execute(broken))
    await store.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
async def test_a_forked_process_has_a_copy_that_it_can_use() -> None:
    store, org = await an_open_store(), an_org()
    await put(store, org)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            at_once(put(store, an_org()))
            status = 0 if len(at_once(store.find(None, Orgs()))) == 2 else 2
        finally:
            os._exit(status)
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert await store.find(None, Orgs()) == [org], "what the child writes is its own"
    await store.close()


async def test_opening_and_closing_is_cheap_enough_for_every_test_of_a_program() -> None:
    await (await an_open_store()).close()  # compiles the schema
    costs = []
    for _ in range(3):
        begun = time.process_time()
        await (await an_open_store()).close()
        costs.append(time.process_time() - begun)
    assert min(costs) < OPENING_SECONDS_MAX
