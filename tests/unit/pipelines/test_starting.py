"""How entities enter a pipeline."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from doorstep import Doorstep
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.errors import InvalidInput, NotFound
from doorstep.model.delivery import DeliveryState
from doorstep.model.listing import EventDeliveries
from doorstep.pipelines.pipeline import Pipeline
from doorstep.pipelines.plan import Stage
from tests.support.patience import PATIENCE_SECONDS

NO_SESSION = "connection: .*got None; leave it out"


@pytest.fixture
def pipeline() -> Pipeline:
    pipeline = Pipeline(
        "parcel", first="packed", stages=[Stage("sending", failed="sending_failed")], last="sent", policy=(0, 0)
    )
    Doorstep("memory://").add(pipeline)
    return pipeline


async def test_a_session_that_was_forgotten_to_be_made_starts_nothing(pipeline: Pipeline) -> None:
    with pytest.raises(InvalidInput, match=NO_SESSION):
        await pipeline.start({}, connection=None)


def test_nor_does_it_in_a_program_without_an_event_loop(pipeline: Pipeline) -> None:
    with pytest.raises(InvalidInput, match=NO_SESSION):
        pipeline.start_sync({}, connection=None)


async def test_what_is_deleted_is_not_left_in_the_event_that_brought_it(tmp_path: Path) -> None:
    doorstep = Doorstep(f"sqlite:///{tmp_path / 'shop.db'}")
    pipeline = Pipeline(
        "parcel", first="packed", stages=[Stage("sending", failed="unsent")], last="sent", policy=(0, 0)
    )
    doorstep.add(pipeline)
    await doorstep.open()
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        begun = await pipeline.start({"to": "c4n4ry street"}, "p1", connection=connection)
        connection.commit()
    direct = await pipeline.start({}, "p2")
    async with doorstep, asyncio.timeout(PATIENCE_SECONDS):
        while not await arrived(pipeline):
            await asyncio.sleep(0.01)
        assert b"c4n4ry" in contents(tmp_path / "shop.db")
        await pipeline.delete("p1", "ops")
        await pipeline.delete("p2", "ops")
        assert begun.event_id is not None and direct.event_id is not None
        with pytest.raises(NotFound):
            await doorstep.components.reader.event(DEFAULT_ORG, begun.event_id)
        assert (
            await doorstep.components.reader.event(DEFAULT_ORG, direct.event_id)
        ).event.event_type == "parcel.sending"
    assert b"c4n4ry" not in contents(tmp_path / "shop.db")


async def arrived(pipeline: Pipeline) -> bool:
    """Whether the entity exists and its event was delivered, since an event in progress cannot be deleted."""
    try:
        history = await pipeline.history("p1")
    except NotFound:
        return False
    host = pipeline._opened
    assert history[0].event_id is not None
    (delivery,) = await host.components.store.find(DEFAULT_ORG, EventDeliveries(event_id=history[0].event_id))
    return delivery.state is DeliveryState.DELIVERED


def contents(path: Path) -> bytes:
    """Every value of every table, read by SQL: deleted values can remain in the file's free pages."""
    with closing(sqlite3.connect(path)) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return b"".join(str(row).encode() for one in tables for row in connection.execute(f"SELECT * FROM {one}"))
