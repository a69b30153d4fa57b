"""No page exceeds a fixed number of statements and rows, however full the store is: never one statement for each row.

The store has 10,000 events, a thousand dead letters of hundreds of causes, and 200 endpoints. `python -m bench console`
measures how long the pages take with a million events. The statements of both SQL stores are the same, so it is enough
to count them on one.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from sqlalchemy import bindparam

from bench.console_pages import every_page
from bench.crowded import Ids, crowd
from bench.databases import Database
from bench.reviewing import reviewing
from bench.setting import ADMIN_KEY, settings_for
from doorstep.api.application import create_application
from doorstep.app import Doorstep
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.console.sessions import SignInLinks
from doorstep.stores.sql.queries.rows import DELIVERY, IN_ORG
from doorstep.stores.sql.queries.transaction import Prepared, Rows, Step, execute
from doorstep.stores.sql.schema import events
from doorstep.stores.sql.sqlite import connections
from tests.console.visiting import Console
from tests.support.api import listening

STATEMENTS_MAX, ROWS_MAX = 57, 2_500
"""The most expensive pages are an endpoint's and the overview, with 43 to 52 statements. The number depends on the time
of day, because a span of a series is summed in up to three parts (minutes, whole hours, minutes). One statement for each
row of a list would add 24 to the 42 of the dead letters."""
STATEMENTS_OF_TEN_MAX = 100
"""For the page of an event that shows ten of its deliveries in full, each with its attempts, history and reason for a
hold: 75, or 95 if the deliveries wait longer than planned, because the changes of their circuits are then read too."""
STATEMENTS_OF_SHORT_ID_MAX = 80
"""For a search by the last eight digits of an id, which reads one range of times after the other."""
READS_ON = re.compile(r"nobodys\.\*|/search\?q=[^&]*=")
"""A list whose filter matches nothing, or whose field has no index, reads on, for up to a second
(operations/pages.py). Each statement is bounded, but not their number."""


class Cost(NamedTuple):
    statements: int
    rows: int
    rows_at_once: int
    """The rows that the largest statement returned."""


class Till:
    """Counts the statements that the store runs and the rows that they return."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._cost = Cost(0, 0, 0)
        self.plans: dict[str, list[str]] = {}
        """SQLite's query plan for each statement."""
        self._ask = connections._rows
        monkeypatch.setattr(connections, "_rows", self._counted)

    def _counted(self, connection: sqlite3.Connection, step: Step) -> Rows:
        self._explain(connection, connections.prepare(step, connections._DIALECT))
        rows = self._ask(connection, step)
        count, total, most = self._cost
        self._cost = Cost(count + 1, total + len(rows), max(most, len(rows)))
        return rows

    def _explain(self, connection: sqlite3.Connection, asked: Prepared) -> None:
        if asked.arguments and asked.text not in self.plans:
            values = connections._driver_values(asked.arguments[0])
            plan = connection.execute(f"EXPLAIN QUERY PLAN {asked.text}", values).fetchall()
            self.plans[asked.text] = [line[-1] for line in plan]

    async def cost_of(self, console: Console, path: str) -> Cost:
        """The cost of opening a page for the second time, so that caches are filled."""
        await console.get(path)
        self._cost = Cost(0, 0, 0)
        shown = await console.get(path)
        assert shown.status == 200, (path, shown.text)
        return self._cost


def reads_everything(plan: list[str], text: str = "") -> bool:
    """Whether the plan scans all events or deliveries, either of the whole store or of one organization."""
    return any(_EVERYTHING.match(line) for line in plan) and not _OLDEST.search(text)


_OLDEST = re.compile(r"WHERE doorstep_(\w+)\.org_id = \([^()]*\) ORDER BY doorstep_\1\.uid\n LIMIT \?")
"""Reads the start of an index and stops at its limit, because it has no other condition."""
_EVERYTHING = re.compile(
    # What is in progress is bounded by the slots of all workers, so its whole index may be read.
    r"SCAN doorstep_(events|deliveries|attempts|history)\b(?! USING INDEX doorstep_deliveries_in_progress)"
    r"|SEARCH doorstep_(events|deliveries) USING (COVERING )?INDEX sqlite_autoindex_\w+ \(org_id=\?\)"
)


class House(NamedTuple):
    doorstep: Doorstep
    console: Console
    ids: Ids


@asynccontextmanager
async def visited(url: str, ids: Ids) -> AsyncIterator[House]:
    """A Doorstep without running services, so that only the pages query the store."""
    doorstep = reviewing(settings_for(url))
    await doorstep.open(migrate=False)
    try:
        async with listening(create_application(doorstep, SignInLinks(doorstep.clock))) as port:
            yield House(doorstep, await Console(f"http://127.0.0.1:{port}").sign_in(ADMIN_KEY), ids)
    finally:
        await doorstep.close()


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Ids]:
    path: Path = tmp_path_factory.mktemp("crowded") / "doorstep.db"
    database = Database("sqlite", f"sqlite:///{path}", path)
    return database.url, crowd(database, "http://127.0.0.1:9/nobody", 10_000, time.time_ns() // 1_000)


async def test_no_page_asks_more_of_the_store_than_a_bounded_number_of_times_nor_for_everything(
    crowded: tuple[str, Ids], monkeypatch: pytest.MonkeyPatch
) -> None:
    till = Till(monkeypatch)
    async with visited(*crowded) as house:
        costs = {path: await till.cost_of(house.console, path) for path in every_page(house.ids)}
    assert [text for text, plan in till.plans.items() if reads_everything(plan, text)] == []
    wide = costs.pop(f"/console/events/{house.ids['wide_id']}")
    assert wide.statements <= STATEMENTS_OF_TEN_MAX
    short = costs.pop(f"/console/search?q={house.ids['event_id'][-8:]}")
    assert short.statements <= STATEMENTS_OF_SHORT_ID_MAX
    assert {path: cost for path, cost in costs.items() if _is_dear(path, cost)} == {}


def _is_dear(path: str, cost: Cost) -> bool:
    if READS_ON.search(path):
        return cost.rows_at_once > ROWS_MAX
    return cost.statements > STATEMENTS_MAX or cost.rows > ROWS_MAX


async def test_a_page_that_asked_for_each_row_would_be_noticed(
    crowded: tuple[str, Ids], monkeypatch: pytest.MonkeyPatch
) -> None:
    till = Till(monkeypatch)
    async with visited(*crowded) as house:
        store = house.doorstep.components.store
        get_many = store.get_many

        async def asking_for_each(kind: type[Any], org_id: UUID | None, keys: Sequence[UUID]) -> list[Any]:
            return [one for each in keys for one in await get_many(kind, org_id, [each])]

        plain = await till.cost_of(house.console, "/console/dead-letters")
        monkeypatch.setattr(store, "get_many", asking_for_each)
        dear = await till.cost_of(house.console, "/console/dead-letters")
    assert plain.statements <= STATEMENTS_MAX < dear.statements


def test_a_statement_that_reads_all_deliveries_would_be_noticed(crowded: tuple[str, Ids]) -> None:
    url, ids = crowded
    by_join = DELIVERY.where(IN_ORG, events.c.uid == bindparam("event"))
    asked = connections.prepare(execute(by_join, org=DEFAULT_ORG, event=UUID(ids["event_id"])), connections._DIALECT)
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    plan = connection.execute(
        f"EXPLAIN QUERY PLAN {asked.text}", connections._driver_values(asked.arguments[0])
    ).fetchall()
    connection.close()
    assert reads_everything([line[-1] for line in plan])
