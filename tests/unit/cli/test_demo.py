"""The parts of the demo: receivers with simulated outages, and operators who cope with changes by others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from doorstep.app import Doorstep
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.cli.demo.operators import Operators
from doorstep.cli.demo.shop import (
    CRM,
    SAMPLES,
    STOREFRONT,
    behaviour_at,
    bill_pipeline,
    create_samples,
    declare_carrier,
    ensure_keys,
)
from doorstep.cli.listen import Behaviour, Receiver
from doorstep.clock import SECOND
from doorstep.config import Settings
from doorstep.errors import DoorstepError
from doorstep.pipelines.pipeline import Pipeline
from doorstep.testing.sandbox import FakeClock

RECEIVERS = "http://127.0.0.1:1"


@pytest.fixture
def pipeline() -> Pipeline:
    return bill_pipeline()


@pytest.fixture
async def doorstep(pipeline: Pipeline) -> AsyncIterator[Doorstep]:
    """The demo's Doorstep with its sample data, before any event was sent."""
    made = Doorstep(Settings(database_url="memory://", allow_addresses="127.0.0.0/8"))
    made.add(pipeline)
    declare_carrier(made)
    await made.open()
    await create_samples(made, lambda sample: RECEIVERS + sample.path, RECEIVERS)
    yield made
    await made.close()


def test_a_bad_time_comes_and_goes() -> None:
    outage = CRM.outage
    assert outage is not None
    begin = 1_000 * round(outage.every_seconds) * SECOND
    within, after = begin + SECOND, begin + round(outage.lasts_seconds) * SECOND
    assert behaviour_at(CRM.path, within).fail_share == 1.0
    assert behaviour_at(CRM.path, after).fail_share < 0.5
    assert behaviour_at(STOREFRONT.path, within) == behaviour_at(STOREFRONT.path, after) == STOREFRONT.behaviour


def test_a_path_that_nobody_has_is_not_found() -> None:
    assert behaviour_at("/nobody", 0) == Behaviour(404, fail_share=1.0)


@pytest.mark.parametrize(("fail_share", "expected"), [(1.0, (422, b'{"error": "no"}')), (0.0, (200, b""))])
async def test_a_receiver_gives_its_reason_to_those_that_fail_alone(
    fail_share: float, expected: tuple[int, bytes]
) -> None:
    behaviour = Behaviour(422, fail_share=fail_share, body=b'{"error": "no"}')
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"{}"}

    async def send(message: Any) -> None:
        sent.append(message)

    receiver = Receiver(lambda _: behaviour, FakeClock(), lambda: 0.5)
    await receiver({"headers": [], "path": "/", "method": "POST"}, receive, send)
    assert (sent[0]["status"], sent[1]["body"]) == expected


async def test_a_demo_is_furnished_once_however_often_it_is_begun(doorstep: Doorstep) -> None:
    async def furniture() -> tuple[list[str], list[str], list[str]]:
        keys, channels = doorstep.components.keys, doorstep.components.channels.reader
        return (
            sorted(one.name for one in await doorstep.endpoints()),
            sorted(one.name for one in await keys.keys(DEFAULT_ORG)),
            sorted(one.name for one in await channels.channels(DEFAULT_ORG)),
        )

    before = await furniture()
    assert {one.name for one in SAMPLES} < set(before[0])
    await create_samples(doorstep, lambda sample: RECEIVERS + sample.path, "http://127.0.0.1:2")
    assert await furniture() == before


async def test_people_find_nothing_to_do_where_nothing_happened_and_everything_deleted(
    doorstep: Doorstep, pipeline: Pipeline
) -> None:
    operators = Operators(doorstep, pipeline, await ensure_keys(doorstep))
    await each(operators)
    for endpoint in await doorstep.endpoints():
        await doorstep.components.endpoints.delete(DEFAULT_ORG, endpoint.endpoint_id, "a visitor")
    await each(operators)


async def test_what_people_do_is_done_with_keys_that_there_are(doorstep: Doorstep, pipeline: Pipeline) -> None:
    keys = await ensure_keys(doorstep)
    await each(Operators(doorstep, pipeline, keys))
    actors = {line.actor for line in (await doorstep.components.reader.audit(DEFAULT_ORG, None, None, None, 100)).items}
    assert actors == {"program", *keys}
    assert await doorstep.components.reader.key_names(DEFAULT_ORG, keys) == {
        keys.admin: "lena",
        keys.operator: "marco",
    }


async def each(operators: Operators) -> None:
    """Perform every operator action of a day; an impossible action may raise only a `DoorstepError`."""
    await operators.review()
    for act in operators.actions():
        try:
            await act()
        except DoorstepError:
            pass
