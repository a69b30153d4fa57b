"""A process has one name, which identifies it as the holder of deliveries and tasks, and in the log."""

from __future__ import annotations

import asyncio
import os
import re

import pytest

from doorstep import Doorstep, Permanent, Received
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.clock import Instant
from doorstep.model.outbox import OutboxMessage
from doorstep.stores.store import Task
from doorstep.telemetry.facts import Fact, Notice, Telemetry
from tests.support.builders import NOW, new_id
from tests.support.patience import PATIENCE_SECONDS
from tests.support.shortcuts import post


async def test_deliveries_tasks_and_the_log_have_the_same_name_of_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    facts: list[Fact] = []
    doorstep = Doorstep("memory://", telemetry=Telemetry(facts.extend))
    holders: dict[Task, str] = {}
    acquire = doorstep._store.acquire_lock

    async def watched_acquire(task: Task, holder: str, now: Instant, until: Instant) -> bool:
        holders[task] = holder
        return await acquire(task, holder, now, until)

    monkeypatch.setattr(doorstep._store, "acquire_lock", watched_acquire)
    doorstep.handler("paid", name="paid")(refuses)
    async with doorstep, asyncio.timeout(PATIENCE_SECONDS):
        receipt = await doorstep.send("paid", {})
        await post(doorstep.components.store, [message()])
        doorstep.wake()
        while not holders.keys() >= {Task.OUTBOX, Task.ROLLUPS, Task.ALERTS}:
            await asyncio.sleep(0.01)
        (delivery,) = await doorstep.components.reader.deliveries(DEFAULT_ORG, receipt.event_id)
        attempts = await doorstep.components.reader.attempts(DEFAULT_ORG, delivery.delivery_id)
    (told,) = [one.fields["worker"] for one in facts if isinstance(one, Notice) and "worker" in one.fields]
    assert {attempts[0].worker, *holders.values()} == {told}
    assert re.fullmatch(rf"[^:]+:{os.getpid()}:[0-9a-f]{{6}}", str(told))


def refuses(_: Received) -> None:
    """Fail permanently, so that the alerter has something to do."""
    raise Permanent("REJECTED", "No.")


def message() -> OutboxMessage:
    return OutboxMessage(event_id=new_id(), org_id=DEFAULT_ORG, event_type="posted", payload=b"{}", created_at=NOW)


async def test_two_that_share_a_process_are_told_apart() -> None:
    one, other = Doorstep("memory://"), Doorstep("memory://")
    async with one, other:
        assert one.components.worker_name != other.components.worker_name
