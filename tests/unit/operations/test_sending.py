"""A forgotten `await` of `send` and its like is an error in the log that names the line; nothing is lost in silence."""

from __future__ import annotations

import asyncio
import gc
import inspect
import re
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from typing import Any

import aiosqlite
import pytest

from doorstep import Doorstep, Pipeline, Stage
from doorstep.errors import InvalidInput
from doorstep.operations.sending import Sending
from doorstep.testing import Sandbox, sandbox


@pytest.fixture
async def box() -> AsyncIterator[Sandbox]:
    ds = Doorstep("memory://")
    ds.batch("sms.batch")(_handle)
    ds.add(Pipeline("parcel", first="packed", stages=[Stage("sending", failed="unsent")], last="sent"))
    async with sandbox(ds) as box:
        yield box


def _handle(event: object) -> None:
    pass


FORGOTTEN: dict[str, Callable[[Doorstep], Any]] = {
    "send('order.paid', …)": lambda ds: ds.send("order.paid", {}),
    "send_many() of 1 events": lambda ds: ds.send_many([("a", 1)]),
    "submit('sms.batch', …)": lambda ds: ds.batches.submit("sms.batch", []),
    "start() of pipeline 'parcel'": lambda ds: ds.registry.pipelines["parcel"].start({}),
}


async def test_what_is_dropped_without_an_await_is_an_error_that_names_the_event_and_the_line(
    box: Sandbox, caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    for subject, forget in FORGOTTEN.items():
        caplog.clear()
        forget(box.doorstep)
        (record,) = caplog.records
        assert (record.name, record.levelname) == ("doorstep", "ERROR")
        assert f"{subject} was never awaited at {__file__}:{_line_of(forget)}, so nothing was sent" in record.message
    box.assert_nothing_sent()
    assert not recwarn.list, "Python's own warning would say the same again"


def _line_of(function: Callable[..., object]) -> int:
    return inspect.getsourcelines(function)[1]


async def test_one_that_only_the_garbage_collector_finds_is_reported_too(
    box: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    cycle: list[object] = [box.doorstep.send("order.paid", {})]
    cycle.append(cycle)
    del cycle
    assert not caplog.records
    gc.collect()
    assert [record.levelname for record in caplog.records] == ["ERROR"]


async def test_an_asyncio_connection_gets_nothing_before_the_await_and_the_drop_is_reported(
    box: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    async with aiosqlite.connect(":memory:") as connection:
        box.doorstep.send("order.paid", {}, connection=connection)  # type: ignore[unused-coroutine]
    assert re.search(r"send\('order.paid', …\) was never awaited at .*test_sending.py", caplog.text)
    box.assert_nothing_sent()


async def test_whatever_is_awaited_is_sent_once_and_not_reported(
    box: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    ds = box.doorstep
    await ds.send("order.paid", 1)
    await asyncio.gather(ds.send("order.paid", 2), asyncio.wait_for(ds.send("order.paid", 3), 60))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(ds.send("order.paid", 4))
    with closing(sqlite3.connect(":memory:")) as connection:
        await ds.send("order.paid", 5, connection=connection)
        ds.send_sync("order.paid", 6, connection=connection)
    ds.send("order.paid", 7).close()
    gc.collect()
    assert not caplog.records
    assert [event.payload for event in box.assert_sent("order.paid", count=6)] == [b"1", b"2", b"3", b"4", b"5", b"6"]


def test_it_runs_as_the_whole_program_of_an_event_loop() -> None:
    ds = Doorstep("memory://")
    assert asyncio.run(ds.send("order.paid", {})).deliveries == 0
    ds.close_sync()


async def test_what_cannot_be_sent_fails_at_the_call_even_without_an_await(box: Sandbox) -> None:
    with pytest.raises(InvalidInput, match="cannot be written as JSON"):
        box.doorstep.send("order.paid", object())


async def test_a_misspelled_option_is_refused_instead_of_ignored(box: Sandbox) -> None:
    wrong: Any = {"idempotencykey": "o-1"}
    known = "is not an option of send; use one of org_id, endpoint_ids, deliver_at, "
    for call, field in (
        (lambda: box.doorstep.send("order.paid", {}, **wrong), "idempotencykey"),
        (lambda: box.doorstep.send_sync("order.paid", {}, **wrong), "idempotencykey"),
        (lambda: box.doorstep.batches.submit("sms.batch", [], **wrong), "idempotencykey"),
        (lambda: box.doorstep.send_many([("order.paid", {}, wrong)]), "events[0].idempotencykey"),
    ):
        with pytest.raises(InvalidInput, match=re.escape(f"{field}: {known}")):
            call()
    box.assert_nothing_sent()


async def test_an_event_of_send_many_that_is_no_such_tuple_is_refused_by_its_position(box: Sandbox) -> None:
    events: list[Any] = ["ab", ("order.paid",), ("order.paid", {}, "o-1"), {"event_type": "order.paid"}, None]
    for wrong in events:
        with pytest.raises(InvalidInput, match=re.escape("events[1]: must be a tuple of event type and payload")):
            box.doorstep.send_many([("order.paid", {}), wrong])
    box.assert_nothing_sent()


async def test_it_can_be_awaited_only_once(box: Sandbox) -> None:
    sending = box.doorstep.send("order.paid", {})
    await sending
    with pytest.raises(RuntimeError, match="already awaited"):
        await sending
    assert isinstance(sending, Sending)
    box.assert_sent("order.paid", count=1)
