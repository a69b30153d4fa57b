"""R8.5 and the promise of bounded resources: wrong keys, too many endpoints, and an empty choice of endpoints."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.errors import Conflict, InvalidInput
from doorstep.model.org import Role
from tests.support.api import Api, serving
from tests.support.http_calls import Answer
from tests.support.loop_receiver import Receiver
from tests.support.scene import Scene


@asynccontextmanager
async def set_to(database_url: str, receiver: Receiver, **settings: Any) -> AsyncIterator[tuple[Scene, Api]]:
    """A scene whose first Doorstep has these settings, and its API."""
    scene = Scene(database_url, receiver)
    await scene.open(**settings)
    try:
        async with serving(scene) as api:
            yield scene, api
    finally:
        await scene.close()


# -- wrong keys --------------------------------------------------------------------------------------------


async def until_refused(api: Api, tries: int = 100) -> Answer:
    """Send wrong keys until the answer is no longer 401."""
    for number in range(tries):
        answer = await api.with_key(f"dsk_wrong_{number}").get("/v1/events")
        if answer.status != 401:
            return answer
    raise AssertionError(f"{tries} wrong keys were all answered with 401")


async def test_a_client_that_goes_on_with_wrong_keys_is_told_to_slow_down(
    database_url: str, receiver: Receiver
) -> None:
    async with set_to(database_url, receiver, failed_keys_per_second=0.5) as (scene, api):
        refused = await until_refused(api)
        assert (refused.status, refused.json["type"]) == (429, "urn:doorstep:problem:overloaded")
        assert 1 <= int(refused.headers["retry-after"]) <= 2
        assert "check the key" in refused.json["detail"]
        scene.leap(2)
        assert (await api.with_key("dsk_wrong").get("/v1/events")).status == 401, "there is room again"


async def test_good_keys_are_let_in_from_an_address_that_sends_wrong_ones(
    database_url: str, receiver: Receiver
) -> None:
    async with set_to(database_url, receiver, failed_keys_per_second=0.01) as (scene, api):
        elsewhere = await scene.open()
        _, never_seen_here = await elsewhere.components.keys.create(DEFAULT_ORG, "new", Role.PUBLISHER, "ops")
        await until_refused(api)
        assert (await api.get("/v1/endpoints")).status == 200
        await api.with_key(never_seen_here).send()
        assert (await api.with_key("dsk_wrong").get("/v1/events")).status == 429, "as before"


async def test_a_request_without_a_key_or_with_no_possible_one_counts_too_and_asks_nothing_of_the_store(
    database_url: str, receiver: Receiver
) -> None:
    async with set_to(database_url, receiver, failed_keys_per_second=0.01) as (scene, api):

        async def find(*_: object) -> None:
            raise AssertionError("the store was asked")

        scene.doorstep.components.store.find = find  # type: ignore[method-assign,assignment]
        for key in ("", "short", "k" * 257, "with a blank"):
            assert (await api.with_key(key).get("/v1/events")).status in (401, 429)
        assert (await api.with_key("").get("/v1/events")).status == 429


async def test_without_a_limit_wrong_keys_are_told_so_for_ever(database_url: str, receiver: Receiver) -> None:
    async with set_to(database_url, receiver, failed_keys_per_second=0) as (_, api):
        with pytest.raises(AssertionError, match="all answered with 401"):
            await until_refused(api)


# -- endpoints ---------------------------------------------------------------------------------------------


async def test_an_organization_has_no_more_endpoints_than_the_setting_says(
    database_url: str, receiver: Receiver
) -> None:
    async with set_to(database_url, receiver, endpoints_max=3) as (scene, api):
        answers = await asyncio.gather(
            *(api.post("/v1/endpoints", {"name": f"shop {n}", "url": receiver.url()}) for n in range(8))
        )
        assert sorted(answer.status for answer in answers) == [201] * 3 + [409] * 5
        (sentence,) = {answer.json["detail"] for answer in answers if answer.status == 409}
        assert "at most 3 endpoints" in sentence and "endpoints_max" in sentence
        with pytest.raises(Conflict, match="at most 3 endpoints"):
            await scene.endpoint()
        made = next(answer.json["endpoint_id"] for answer in answers if answer.status == 201)
        assert (await api.delete(f"/v1/endpoints/{made}")).status == 204
        await api.endpoint(receiver.url())


async def test_one_organizations_endpoints_take_no_room_from_another(database_url: str, receiver: Receiver) -> None:
    async with set_to(database_url, receiver, endpoints_max=1) as (_, api):
        await api.endpoint(receiver.url())
        other = (await api.post("/v1/orgs", {"name": "shop"})).json
        await api.with_key(other["admin_key"]["key"]).endpoint(receiver.url())


# -- an empty choice ---------------------------------------------------------------------------------------


async def test_an_event_for_no_endpoint_at_all_is_refused_instead_of_going_to_the_inbox(scene: Scene, api: Api) -> None:
    await scene.endpoint()
    event = {"event_type": "order.paid", "payload": 1, "endpoint_ids": []}
    single = await api.post("/v1/events", event)
    batch = await api.post("/v1/events/batch", {"events": [event | {"endpoint_ids": None}, event]})
    for answer, field in ((single, "endpoint_ids"), (batch, "events[1].endpoint_ids")):
        assert (answer.status, answer.json["errors"][0]["field"]) == (422, field)
        assert "leave it out to send to all whose event types match" in answer.json["detail"]
    with pytest.raises(InvalidInput, match="leave it out"):
        await scene.doorstep.send("order.paid", {}, endpoint_ids=[])
    assert await api.all("/v1/events", "events") == []
