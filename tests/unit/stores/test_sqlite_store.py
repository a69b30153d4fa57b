"""Behaviour of the SQLite store alone: wakeups between processes, row keys never reused, long payloads stored apart."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from doorstep.clock import SECOND
from doorstep.errors import ConfigError, NotFound, StoreUnavailable
from doorstep.model.claim import Claim, Quota, Settlement
from doorstep.model.endpoint import Endpoint
from doorstep.model.event import EventView, Submission, Verdict
from doorstep.model.org import Org
from doorstep.stores.sql.sqlite.accept import INLINE_BYTES_MAX
from doorstep.stores.sql.sqlite.store import SqliteStore
from doorstep.stores.store import Retention, Topic
from tests.support.builders import NOW, a_submission, an_endpoint, an_org, success
from tests.support.patience import PATIENCE_SECONDS
from tests.support.shortcuts import put

LEASE = 30 * SECOND


class Shop:
    """A store with one organization and one endpoint."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.store = SqliteStore(path)
        self.org: Org = an_org()
        self.endpoint: Endpoint = an_endpoint(self.org.org_id)
        self.routing = {self.org.org_id: 1}

    async def prepare(self) -> Shop:
        await self.store.migrate()
        await self.store.open()
        await put(self.store, self.org)
        await put(self.store, self.endpoint, 0)
        return self

    def order(self, **changes: object) -> Submission:
        return a_submission(self.org.org_id, [self.endpoint.endpoint_id], **changes)  # type: ignore[arg-type]

    async def claim(self, now: int = NOW) -> list[Claim]:
        quota = Quota(self.endpoint.endpoint_id, 100)
        return await self.store.claim([quota], now, now + LEASE, "w1")

    async def deliver_all(self) -> None:
        claims = await self.claim()
        await self.store.settle([Settlement.delivered(claim, success(NOW)) for claim in claims], NOW)

    def rows(self, query: str) -> list[tuple[object, ...]]:
        connection = sqlite3.connect(self.path)
        found = connection.execute(query).fetchall()
        connection.close()
        return found


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    shop = await Shop(str(tmp_path / "doorstep.db")).prepare()
    yield shop
    await shop.store.close()


async def test_work_accepted_by_another_process_wakes_this_one(shop: Shop) -> None:
    other = SqliteStore(shop.path)
    await other.open()
    woken = asyncio.Event()
    shop.store.on_wakeup(Topic.DELIVERIES, woken.set)
    await shop.store.due_lanes(NOW)
    await asyncio.wait_for(woken.wait(), PATIENCE_SECONDS)  # the first look only records the file's state
    woken.clear()
    await other.accept([shop.order()], shop.routing, NOW)
    await asyncio.wait_for(woken.wait(), PATIENCE_SECONDS)
    await other.close()


async def test_everyone_who_registered_is_woken(shop: Shop) -> None:
    woken = [asyncio.Event(), asyncio.Event()]
    for event in woken:
        shop.store.on_wakeup(Topic.DELIVERIES, event.set)
    other = SqliteStore(shop.path)
    await other.open()
    await other.accept([shop.order()], shop.routing, NOW)
    await asyncio.wait_for(asyncio.gather(*(event.wait() for event in woken)), PATIENCE_SECONDS)
    await other.close()


async def test_a_key_is_not_used_again_after_its_row_was_cleaned_away(shop: Shop) -> None:
    await shop.store.accept([shop.order()], shop.routing, NOW)
    (old,) = await shop.claim()
    await shop.store.settle([Settlement.delivered(old, success(NOW))], NOW)
    assert (await shop.store.clean(Retention(settled_before=NOW + 1), NOW, 10)).deliveries == 1
    await shop.store.accept([shop.order()], shop.routing, NOW)
    (new,) = await shop.claim()
    settled = await shop.store.settle([Settlement.delivered(old, success(NOW))], NOW)
    assert new.key != old.key
    assert settled.late == (old,)


@pytest.mark.parametrize("size", [0, 1, INLINE_BYTES_MAX, INLINE_BYTES_MAX + 1, 1_000_000])
async def test_a_payload_comes_back_byte_for_byte_wherever_it_is_kept(shop: Shop, size: int) -> None:
    order = shop.order(payload=bytes(n % 256 for n in range(size)))
    await shop.store.accept([order], shop.routing, NOW)
    view = await shop.store.get(EventView, shop.org.org_id, order.event.event_id)
    (claim,) = await shop.claim()
    assert view.event == order.event
    assert claim.payload == order.event.payload


async def test_a_long_payload_has_a_row_of_its_own_which_goes_with_its_event(shop: Shop) -> None:
    long, short = shop.order(payload=b"x" * (INLINE_BYTES_MAX + 1)), shop.order(payload=b"x")
    await shop.store.accept([long, short], shop.routing, NOW)
    assert shop.rows("SELECT length(payload) FROM doorstep_payloads") == [(INLINE_BYTES_MAX + 1,)]
    await shop.deliver_all()
    assert (await shop.store.clean(Retention(settled_before=NOW + 1), NOW, 10)).events == 2
    assert shop.rows("SELECT count(*) FROM doorstep_payloads") == [(0,)]


async def test_an_event_accepted_again_adds_no_second_payload(shop: Shop) -> None:
    order = shop.order(payload=b"x" * (INLINE_BYTES_MAX + 1))
    for _ in range(2):
        (receipt,) = await shop.store.accept([order], shop.routing, NOW)
        assert receipt.verdict is Verdict.ACCEPTED
    assert shop.rows("SELECT count(*) FROM doorstep_payloads") == [(1,)]


async def test_concurrent_accepts_are_kept_in_far_fewer_commits(shop: Shop) -> None:
    commits = 0

    def count_commits(statement: str) -> None:
        nonlocal commits
        commits += statement == "COMMIT"

    writer = shop.store._opened_writer()
    await writer.run(lambda connection: connection.set_trace_callback(count_commits))
    orders = [shop.order() for _ in range(200)]
    receipts = await asyncio.gather(*(shop.store.accept([order], shop.routing, NOW) for order in orders))
    assert [receipt.event_id for (receipt,) in receipts] == [order.event.event_id for order in orders]
    assert commits <= 10


async def test_one_bad_accept_does_not_harm_those_that_are_committed_with_it(shop: Shop) -> None:
    unknown = a_submission(an_org().org_id, [shop.endpoint.endpoint_id])
    orders = [[shop.order()], [unknown], [shop.order()]]
    results = await asyncio.gather(
        *(shop.store.accept(order, shop.routing, NOW) for order in orders), return_exceptions=True
    )
    assert [type(result) for result in results] == [list, NotFound, list]
    assert shop.rows("SELECT count(*) FROM doorstep_events") == [(2,)]


async def test_a_closed_store_is_unavailable_and_can_be_opened_again(shop: Shop) -> None:
    await shop.store.close()
    with pytest.raises(StoreUnavailable, match="not open"):
        await shop.store.accept([shop.order()], shop.routing, NOW)
    await shop.store.open()
    assert len(await shop.store.accept([shop.order()], shop.routing, NOW)) == 1


@pytest.mark.parametrize("path", ["", ":memory:"])
def test_a_store_without_a_file_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match="memory://"):
        SqliteStore(path)


async def test_a_relative_path_is_the_same_file_wherever_the_program_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(home)
    shop = await Shop("shop.db").prepare()
    monkeypatch.chdir(elsewhere)
    elsewhere.rmdir()  # the working folder may even be gone
    receipts = [(await shop.store.accept([shop.order()], shop.routing, NOW))[0] for _ in range(3)]
    assert len(await asyncio.gather(*(shop.store.due_lanes(NOW) for _ in range(20)))) == 20
    await shop.store.close()
    await shop.store.open()
    assert [receipt.verdict for receipt in receipts] == [Verdict.ACCEPTED] * 3
    assert len(await shop.claim()) == 3
    await shop.store.close()
    assert (home / "shop.db").exists()
    monkeypatch.chdir(tmp_path)
