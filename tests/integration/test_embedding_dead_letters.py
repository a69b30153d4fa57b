"""A program is notified of its dead letters, whatever the cause; on both stores."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from doorstep.app import Doorstep
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.config import Settings
from doorstep.encryption import new_secret_key
from doorstep.errors import Permanent, Transient
from doorstep.model.action import ActionKind
from doorstep.model.delivery import DeadLetter
from doorstep.transports.handler_replies import Received
from tests.support.patience import PATIENCE_SECONDS
from tests.support.stores import EITHER_STORE


@pytest.fixture(params=EITHER_STORE)
def ds(request: pytest.FixtureRequest, tmp_path: Path) -> Doorstep:
    sqlite = request.param == "sqlite"
    url = f"sqlite:///{tmp_path}/app.db" if sqlite else request.getfixturevalue("emptied_postgres_url")
    return Doorstep(Settings(database_url=url, secret_key=new_secret_key(), grace_seconds=1))


async def until(reached: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not reached():
            await asyncio.sleep(0.01)


async def test_each_way_to_die_is_told_of_once_with_its_reason(ds: Doorstep) -> None:
    told: list[DeadLetter] = []
    ds.on_dead_letter(told.append)

    @ds.handler("refused")
    def refuse(received: Received) -> None:
        raise Permanent("BATCH_REJECTED", f"refused for {received.metadata['tenant']}")

    @ds.handler("tried", policy=[0.01, 0.01])
    async def give_up(_: Received) -> None:
        raise Transient("RATE_LIMIT", "slow down")

    @ds.handler("held.*")
    def held(_: Received) -> None: ...

    async with ds:
        (endpoint,) = [one for one in await ds.endpoints() if one.name == "held"]
        await ds.components.endpoints.pause(DEFAULT_ORG, endpoint.endpoint_id, "ops")
        await ds.send("refused", {}, metadata={"tenant": "Acme"})
        await ds.send("tried", {})
        skipped = await ds.send("held.skipped", {})
        await ds.send("held.buried", {}, expires_at=datetime.now(UTC) + timedelta(days=1))
        (delivery,) = await ds.components.reader.deliveries(DEFAULT_ORG, skipped.event_id)
        await ds.components.deliveries.act(ActionKind.SKIP, DEFAULT_ORG, [delivery.delivery_id], "ops")
        await ds.components.endpoints.delete(DEFAULT_ORG, endpoint.endpoint_id, "ops")
        await until(lambda: len(told) >= 4)
    by_type = {letter.event_type: letter for letter in told}
    assert len(by_type) == len(told) == 4
    seen = {name: (letter.endpoint, letter.code, letter.attempts) for name, letter in by_type.items()}
    assert seen == {
        "refused": ("refuse", "BATCH_REJECTED", 1),
        "tried": ("give_up", "RATE_LIMIT", 3),
        "held.skipped": ("held", "SKIPPED", 0),
        "held.buried": ("held", "ENDPOINT_DELETED", 0),
    }
    assert by_type["refused"].reason == "refused for Acme"


async def test_what_dies_while_the_program_stops_is_told_of_too(ds: Doorstep) -> None:
    told: list[DeadLetter] = []
    ds.on_dead_letter(told.append)
    begun, go_on = asyncio.Event(), asyncio.Event()

    @ds.handler("late")
    async def late(_: Received) -> None:
        begun.set()
        await go_on.wait()
        raise Permanent("NO", "never")

    async with ds:
        await ds.send("late", {})
        await begun.wait()
        asyncio.get_running_loop().call_later(0.1, go_on.set)
    assert [letter.code for letter in told] == ["NO"]
