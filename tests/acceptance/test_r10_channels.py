"""R10.4: channels over a real mail server and real HTTP receivers, through the API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from doorstep.model.alert import OPERATIONS_ORG
from doorstep.model.listing import DeadLetterFilter, DeliveryAttempts
from tests.acceptance.mailbox import Mailbox, receiving_mail
from tests.support.api import Api, serving
from tests.support.loop_receiver import Answer, Receiver
from tests.support.scene import Scene, until

OPS, BOSS, GONE = "ops@shop.example", "boss@shop.example", "gone@shop.example"


@pytest.fixture
async def mailbox() -> AsyncIterator[Mailbox]:
    async with receiving_mail() as it:
        yield it


@pytest.fixture
async def scene(database_url: str, receiver: Receiver, mailbox: Mailbox) -> AsyncIterator[Scene]:
    made = Scene(database_url, receiver)
    await made.open(smtp_url=mailbox.url, smtp_from="doorstep@shop.example")
    yield made
    await made.close()


@pytest.fixture
async def api(scene: Scene) -> AsyncIterator[Api]:
    async with serving(scene) as it:
        yield it


class Channel:
    """One channel of the organization, through the API."""

    def __init__(self, api: Api, channel_id: str) -> None:
        self._api = api
        self._path = f"/v1/channels/{channel_id}"

    async def test(self) -> None:
        answer = await self._api.post(f"{self._path}/test")
        assert answer.status == 202, answer.body

    async def shown(self) -> dict[str, Any]:
        shown: dict[str, Any] = (await self._api.get(self._path)).json
        return shown

    async def until_shown(self, **fields: Any) -> dict[str, Any]:
        async def is_so() -> bool:
            shown = await self.shown()
            return {name: shown[name] for name in fields} == fields

        await until(is_so, f"a channel with {fields}")
        return await self.shown()


async def channel(api: Api, kind: str, target: str, **fields: Any) -> Channel:
    answer = await api.post("/v1/channels", {"name": kind, "kind": kind, "target": target, **fields})
    assert answer.status == 201, answer.body
    return Channel(api, answer.json["channel_id"])


async def test_of_a_mail_that_some_refuse_each_address_gets_one_and_those_refused_for_now_are_tried_again(
    scene: Scene, api: Api, mailbox: Mailbox
) -> None:
    mail = await channel(api, "email", f"{OPS}, {BOSS}, {GONE}")
    mailbox.answers = {BOSS: "450 mailbox busy", GONE: "550 no such user"}
    await mail.test()
    shown = await mail.until_shown(
        last_test="waiting",
        last_error=f"RECIPIENT_REFUSED: For {BOSS} the mail server answered 450: mailbox busy. 1 got it.",
    )
    assert (shown["failures"], shown["last_delivered_at"]) == (0, None)
    assert [one.to for one in mailbox.mails] == [[OPS]]

    mailbox.answers = {GONE: "550 no such user"}
    scene.leap(12)
    shown = await mail.until_shown(
        last_test="failed",
        last_error=f"RECIPIENT_REFUSED: For {GONE} the mail server answered 550: no such user. 2 got it.",
    )
    assert sorted(one.to for one in mailbox.mails) == [[BOSS], [OPS]]
    assert len({one.message["message-id"] for one in mailbox.mails}) == 1
    store = scene.doorstep.components.store
    (letter,) = (await store.page(OPERATIONS_ORG, DeadLetterFilter())).items
    attempts = await store.find(OPERATIONS_ORG, DeliveryAttempts(delivery_id=letter.delivery_id))
    assert GONE.encode() in attempts[-1].response_body and BOSS.encode() in attempts[0].response_body


async def test_a_mail_that_all_got_in_the_end_is_delivered(scene: Scene, api: Api, mailbox: Mailbox) -> None:
    mail = await channel(api, "email", f"{OPS}, {BOSS}")
    mailbox.answers = {BOSS: "450 mailbox busy"}
    await mail.test()
    await mail.until_shown(last_test="waiting")
    await until(lambda: len(mailbox.mails) == 1, "a mail")
    mailbox.answers = {}
    scene.leap(12)
    shown = await mail.until_shown(last_test="delivered")
    assert shown["last_delivered_at"] is not None
    assert sorted(one.to for one in mailbox.mails) == [[BOSS], [OPS]]


async def test_a_channel_is_tested_at_most_once_in_five_seconds(scene: Scene, api: Api) -> None:
    hook = await channel(api, "webhook", scene.receiver.url("/alerts"))
    await hook.test()
    channel_id = (await hook.shown())["channel_id"]
    answer = await api.post(f"/v1/channels/{channel_id}/test")
    assert (answer.status, answer.headers["retry-after"]) == (429, "5")
    assert "once in 5 seconds" in answer.json["detail"]
    await hook.until_shown(last_test="delivered")
    assert len(scene.receiver.requests) == 1
    scene.leap(5)
    await hook.test()
    await until(lambda: len(scene.receiver.requests) == 2, "the second")


async def test_a_channel_that_is_gone_is_disabled_and_can_be_resumed(scene: Scene, api: Api) -> None:
    scene.receiver.answer = lambda _: Answer(410)
    hook = await channel(api, "slack", scene.receiver.url("/slack"))
    await hook.test()
    shown = await hook.until_shown(state="disabled")
    assert shown["state_reason"] and shown["last_error"].startswith("GONE: ")
    scene.receiver.answer = lambda _: Answer(200)
    scene.leap(5)
    await hook.test()
    assert (await hook.shown())["last_test"] == "waiting"
    answer = await api.post(f"/v1/channels/{shown['channel_id']}/resume")
    assert (answer.status, answer.json["state"], answer.json["state_reason"]) == (200, "active", "")
    await hook.until_shown(last_test="delivered", failures=0)
    assert len(await api.all("/v1/audit?action=channel.resume", "audit")) == 1


async def test_a_channel_for_endpoints_that_are_not_there_is_refused(scene: Scene, api: Api) -> None:
    endpoint = await scene.endpoint("/shop", name="shop")
    url = scene.receiver.url("/alerts")
    body = {"name": "ops", "kind": "webhook", "target": url}
    answer = await api.post("/v1/channels", body | {"endpoint_ids": ["00000000-0000-7000-8000-000000000009"]})
    assert (answer.status, answer.json["errors"][0]["field"]) == (422, "endpoint_ids")
    hook = await channel(api, "webhook", url, endpoint_ids=[str(endpoint.endpoint_id)])
    assert (await hook.shown())["endpoint_ids"] == [str(endpoint.endpoint_id)]


async def test_a_deleted_channel_gets_nothing_that_still_waited(scene: Scene, api: Api) -> None:
    scene.receiver.answer = lambda _: Answer(503)
    hook = await channel(api, "webhook", scene.receiver.url("/alerts"))
    await hook.test()
    await until(lambda: len(scene.receiver.requests) == 1, "a try")
    channel_id = (await hook.shown())["channel_id"]
    assert (await api.delete(f"/v1/channels/{channel_id}")).status == 204
    assert (await api.get(f"/v1/channels/{channel_id}")).status == 404
    scene.leap(20)

    async def dropped() -> bool:
        return bool((await scene.doorstep.components.store.page(OPERATIONS_ORG, DeadLetterFilter())).items)

    await until(dropped, "that it is dropped")
    assert len(scene.receiver.requests) == 1
