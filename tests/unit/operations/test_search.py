"""Searching events: declared fields by their index, other fields in the events themselves, and both in one list."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
import pytest

from doorstep.engine.accept import Accepter, Draft
from doorstep.errors import InvalidInput
from doorstep.model.listing import Count, EventFilter, Page
from doorstep.operations import search as searching
from doorstep.operations.pages import at_least_shown, full_page
from doorstep.operations.search import Found, Search
from tests.unit.engine.scene import PLAIN, Bench


class Desk(Bench):
    """A bench on which events are accepted by the real accepter, a second apart."""

    def __init__(self) -> None:
        super().__init__()
        self.search = Search(self.store, self.directory, self.clock)
        self.accepter = Accepter(self.store, self.directory, self.clock, PLAIN, self.telemetry, lambda: None)

    async def send(self, payload: object, **fields: Any) -> UUID:
        self.clock.advance(1)
        draft = Draft(org_id=self.org.org_id, event_type="order.paid", payload=msgspec.json.encode(payload), **fields)
        return (await self.accepter.accept([draft]))[0].event_id

    async def declare(self, *names: str) -> None:
        await self.search.declare(self.org.org_id, names, "ops")
        self.clock.advance(100)

    async def find(self, cursor: str | None = None, limit: int = 50, **fields: str) -> Found:
        named = {name.replace("__", "."): value for name, value in fields.items()}
        return await self.search.events(self.org.org_id, EventFilter(), named, cursor, limit)

    async def ids(self, limit: int = 50, **fields: str) -> list[UUID]:
        """Everything that is found, page by page."""
        found = await self.find(limit=limit, **fields)
        ids = [one.event_id for one in found.page.items]
        while found.page.next is not None:
            assert len(found.page.items) == limit
            found = await self.find(found.page.next, limit, **fields)
            ids += [one.event_id for one in found.page.items]
        return ids


@pytest.fixture
async def desk() -> Desk:
    desk = Desk()
    await desk.prepare()
    return desk


async def test_one_list_joins_events_from_before_and_after_the_declaration_of_a_field(desk: Desk) -> None:
    sent = [await desk.send({"order": {"id": n % 3}}) for n in range(12)]
    await desk.declare("payload.order.id")
    sent += [await desk.send({"order": {"id": n % 3}}) for n in range(12)]
    wanted = [one for n, one in enumerate(sent) if n % 3 == 1][::-1]
    for limit in range(1, 10):
        assert await desk.ids(limit, payload__order__id="1") == wanted, limit


async def test_an_index_answers_without_reading_any_event(desk: Desk) -> None:
    await desk.declare("payload.n", "metadata.customer")
    wanted = await desk.send({"n": 7}, metadata=b'{"customer": "x"}')
    await desk.send({"n": 7})
    desk.failing.calls.clear()
    found = await desk.find(payload__n="7", metadata__customer="x", limit=1)
    assert [one.event_id for one in found.page.items] == [wanted]
    assert "page EventBodies" not in desk.failing.calls
    assert found.examined is None


async def test_an_undeclared_field_narrows_what_the_index_found(desk: Desk) -> None:
    await desk.declare("payload.n")
    both = [await desk.send({"n": 1, "colour": colour}) for colour in ("red", "blue", "red")]
    await desk.send({"n": 2, "colour": "red"})
    assert await desk.ids(1, payload__n="1", payload__colour="red") == [both[2], both[0]]
    assert (await desk.find(payload__n="1", payload__colour="red")).examined == 3


async def test_a_search_says_how_far_it_looked_and_goes_on_from_there(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "_SCANNED_MAX", 4)
    monkeypatch.setattr(searching, "_CHUNK", 2)
    wanted = await desk.send({"n": "rare"})
    others = [await desk.send({"n": n}) for n in range(6)]
    found = await desk.find(payload__n="rare")
    assert (found.page.items, found.examined) == ((), 4)
    oldest = await desk.search.events(desk.org.org_id, EventFilter(created_from=found.searched_until), {}, None, 50)
    assert [one.event_id for one in oldest.page.items] == others[:1:-1]
    found = await desk.find(found.page.next, payload__n="rare")
    assert [one.event_id for one in found.page.items] == [wanted]
    assert (found.examined, found.searched_until, found.page.next) == (3, None, None)


async def test_a_search_ends_when_its_time_is_up(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "_CHUNK", 1)
    for n in range(5):
        await desk.send({"n": n})
    desk.failing.slow["page EventBodies"] = 0.02
    found = await desk.find(payload__n="none")
    assert found.examined == 2
    assert found.page.next is not None


@pytest.mark.parametrize(
    ("names", "value"),
    [
        (["payload"], "1"),
        (["order.id"], "1"),
        (["payload..id"], "1"),
        (["payload.a b"], "1"),
        (["payload." + "a" * 65], "1"),
        (["payload" + ".a" * 9], "1"),
        (["payload.\ud800"], "1"),
        (["payload.n"], ""),
        (["payload.n"], "x" * 201),
        ([f"payload.n{n}" for n in range(9)], "1"),
    ],
)
async def test_a_field_or_value_that_cannot_be_searched_is_refused(desk: Desk, names: list[str], value: str) -> None:
    with pytest.raises(InvalidInput):
        await desk.search.events(desk.org.org_id, EventFilter(), dict.fromkeys(names, value), None, 50)
    if value == "1":
        with pytest.raises(InvalidInput):
            await desk.search.declare(desk.org.org_id, names, "ops")


async def test_a_field_that_stays_declared_keeps_its_index(desk: Desk) -> None:
    await desk.declare("payload.n")
    before = (await desk.search.org(desk.org.org_id)).search_fields
    await desk.declare("payload.m", "payload.n")
    after = (await desk.search.org(desk.org.org_id)).search_fields
    assert after["payload.n"] == before["payload.n"] < after["payload.m"]


# -- pages and totals --------------------------------------------------------------------------------------


async def test_a_page_is_filled_although_the_store_returns_empty_ones_before_its_matches(desk: Desk) -> None:
    pages = {None: Page((), "a"), "a": Page((), "b"), "b": Page((1, 2), "c"), "c": Page((3,), None)}

    async def page(_: object, __: object, cursor: str | None, limit: int) -> Page[int]:
        return pages[cursor]

    desk.failing.answers["page EventFilter"] = page
    read = full_page(desk.store, desk.clock, desk.org.org_id, EventFilter(), None, 3)
    assert await read == Page((1, 2, 3), None)  # type: ignore[comparison-overlap]
    desk.failing.slow["page EventFilter"] = 0.2
    read = full_page(desk.store, desk.clock, desk.org.org_id, EventFilter(), None, 3)
    assert await read == Page((1, 2), "c")  # type: ignore[comparison-overlap]


@pytest.mark.parametrize(
    ("count", "page", "cursor", "shown"),
    [
        (Count(0, exact=False), Page((1, 2, 3, 4), "more"), None, Count(4, exact=False)),
        (Count(0, exact=False), Page((1, 2, 3, 4), None), None, Count(4, exact=True)),
        (Count(0, exact=False), Page((1, 2), None), "c", Count(2, exact=False)),
        (Count(9, exact=False), Page((1, 2), "more"), None, Count(9, exact=False)),
        (Count(9, exact=True), Page((1, 2), None), "c", Count(9, exact=True)),
    ],
)
def test_a_total_is_never_less_than_the_rows_below_it(
    count: Count, page: Page[int], cursor: str | None, shown: Count
) -> None:
    assert at_least_shown(count, page, cursor) == shown
