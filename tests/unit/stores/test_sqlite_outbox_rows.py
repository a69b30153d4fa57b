"""Outbox rows that programs write into a SQLite file themselves: unreadable rows are refused, and delay no others."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from uuid import UUID

import pytest

from doorstep import Doorstep
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.stores.sql.sqlite.store import SqliteStore
from tests.support.builders import NOW, new_id
from tests.support.patience import PATIENCE_SECONDS

INSERT = (
    "INSERT INTO doorstep_outbox (uid, org_uid, event_type, payload, options, created_at) VALUES (?, ?, ?, ?, ?, ?)"
)
COLUMNS = ("uid", "org_uid", "event_type", "payload", "options", "created_at")
UNREADABLE: dict[str, list[object]] = {
    "uid": [b"short", "0198c2a4-0000-7000-8000-000000000000", "sixteen letters.", 7],
    "org_uid": [b"", "0198c2a4-0000-7000-8000-000000000000"],
    "event_type": [b"order.paid"],
    "payload": [7, 7.5],
    "options": [None],
    "created_at": ["2026-01-01", 1.5],
}


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(str(tmp_path / "shop.db"))
    await store.migrate()
    await store.open()
    yield store
    await store.close()


def row(event_id: UUID, **changes: object) -> list[object]:
    fields = dict(zip(COLUMNS, (event_id.bytes, new_id().bytes, "order.paid", b"{}", "{}", NOW), strict=True))
    return list((fields | changes).values())


@pytest.mark.parametrize(("column", "value"), [(name, one) for name, ones in UNREADABLE.items() for one in ones])
async def test_a_row_that_nobody_could_read_is_refused_where_it_is_written(
    store: SqliteStore, tmp_path: Path, column: str, value: object
) -> None:
    first, last = new_id(), new_id()
    with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as connection:
        connection.execute(INSERT, row(first))
        with pytest.raises(sqlite3.IntegrityError):
            connection.execute(INSERT, row(new_id(), **{column: value}))
        with pytest.raises(sqlite3.IntegrityError):
            connection.execute(f"UPDATE doorstep_outbox SET {column} = ?", [value])
        connection.execute(INSERT, row(last))
    assert [message.event_id for message in await store.outbox(10)] == [first, last]


@pytest.mark.parametrize(
    "changes", [{"payload": '{"text": "é"}'}, {"options": b"{}"}, {"created_at": "1760000000000000"}]
)
async def test_what_can_be_read_may_be_written_by_hand(
    store: SqliteStore, tmp_path: Path, changes: dict[str, object]
) -> None:
    event_id = new_id()
    with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as connection:
        connection.execute(INSERT, row(event_id, **changes))
    (message,) = await store.outbox(10)
    assert (message.event_id, message.flaw) == (event_id, None)


@pytest.mark.parametrize("column", ["event_type", "payload", "options"])
async def test_text_that_is_none_is_rejected_and_holds_nobody_up(tmp_path: Path, column: str) -> None:
    doorstep = Doorstep(f"sqlite:///{tmp_path / 'shop.db'}")
    taken: list[object] = []
    doorstep.handler("order.*", name="taking")(lambda event: taken.append(event.json()))
    await doorstep.open()
    first, odd, last = new_id(), new_id(), new_id()
    org = DEFAULT_ORG.bytes
    with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as connection:
        connection.execute(INSERT, row(first, org_uid=org, payload="1"))
        written = INSERT.replace("?, ?, ?, ?, ?, ?", ", ".join(_marks(column)))
        connection.execute(written, row(odd, org_uid=org, **{column: b'"order.p\xffid"'}))
        connection.execute(INSERT, row(last, org_uid=org, payload="2"))
    async with doorstep, asyncio.timeout(PATIENCE_SECONDS):
        while len(taken) < 2:
            await asyncio.sleep(0.01)
        (refused,) = await doorstep.outbox.refused()
    assert (taken, refused.event_id) == ([1, 2], odd)


def _marks(column: str) -> list[str]:
    return ["CAST(? AS TEXT)" if name == column else "?" for name in COLUMNS]
