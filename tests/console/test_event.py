"""The page of an event: everything known about the event, in every state, and the actions that are possible on it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from doorstep.api.application import create_application
from doorstep.app import Doorstep
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.clock import SECOND
from doorstep.config import Settings
from doorstep.console import attempts
from doorstep.console.attempts import curl_command
from doorstep.encryption import new_secret_key
from doorstep.model.action import ActionKind
from doorstep.model.claim import Moved
from doorstep.model.delivery import Delivery, DeliveryState
from doorstep.model.endpoint import CircuitRules, CircuitState, RetryPolicy
from doorstep.model.org import Role
from doorstep.model.outbox import OutboxMessage
from doorstep.model.record import uuid7
from tests.console.visiting import Console, Shown
from tests.support.api import listening
from tests.support.loop_receiver import Answer
from tests.support.scene import Scene, until
from tests.support.shortcuts import post

ONCE, LATER = RetryPolicy(()), RetryPolicy((600.0,))
PENDING, DEAD = DeliveryState.PENDING, DeliveryState.DEAD
ACTS = ("Retry", "Skip", "Cancel", "Mark as resolved", "Delete", "Replay", "Edit and retry", "Acknowledge")


async def a_dead_one(scene: Scene, **fields: Any) -> Delivery:
    scene.receiver.answer = lambda _: Answer(503, ("x-receiver: tired",), b'{"why":"asleep"}')
    await scene.endpoint(name="shop", policy=ONCE, **fields)
    return await scene.until_state(await scene.send(metadata={"tenant": "acme"}), DEAD)


async def a_waiting_one(scene: Scene) -> Delivery:
    """A delivery that failed once and is retried in ten minutes."""
    scene.receiver.says(503)
    await scene.endpoint(name="shop", policy=LATER)
    delivery = await scene.until_tried(await scene.send())
    return await scene.until_state(delivery, PENDING)


def place(delivery: Delivery) -> str:
    return f"/console/events/{delivery.event_id}"


async def page_of(console: Console, delivery: Delivery) -> Shown:
    shown = await console.get(place(delivery))
    assert shown.status == 200, shown.text
    return shown


# -- contents ----------------------------------------------------------------------------------------------


async def test_a_failed_event_shows_each_attempt_with_its_request_and_its_response(
    scene: Scene, console: Console
) -> None:
    delivery = await a_dead_one(scene)
    shown = await page_of(console, delivery)
    event = (await scene.doorstep.components.reader.event(DEFAULT_ORG, delivery.event_id)).event
    for words in (
        "order.paid failed",
        str(delivery.event_id),
        event.correlation_id,
        '"tenant": "acme"',
        '"n": 1',
        "dead shop",
        scene.receiver.url(),
        "SERVICE_UNAVAILABLE",
        "Retries 0 / 0",
        "x-receiver: tired",
        '"why": "asleep"',
        "webhook-signature: v1,",
        "curl --globoff",
        "dead: SERVICE_UNAVAILABLE",
        "No actions on this event; actions on many are bulk operations .",
    ):
        assert words in shown.text, words
    assert f'id="delivery-{delivery.delivery_id}"' in shown.source
    assert '<svg class="timeline"' in shown.source


async def test_an_attempt_has_a_page_of_its_own_with_everything_in_full(scene: Scene, console: Console) -> None:
    scene.receiver.answer = lambda _: Answer(503, (), b"x" * 9_000)
    await scene.endpoint(policy=ONCE)
    delivery = await scene.until_state(await scene.send(), DEAD)
    cut = (await page_of(console, delivery)).source
    assert "x" * 2_001 not in cut
    assert "-response" in cut and "-answer" in cut
    assert re.search('data-copy="[^"]*-response"', cut) and not re.search('data-copy="[^"]*-answer"', cut), "not half"
    base = f"/console/deliveries/{delivery.delivery_id}/attempts"
    shown = await console.get(f"{base}/1")
    assert shown.status == 200
    assert "x" * 9_000 in shown.source
    assert 'data-copy="#attempt-1-answer"' in shown.source
    assert [(await console.get(f"{base}/{wrong}")).status for wrong in ("2", "0", "first")] == [404, 404, 404]


async def test_of_a_try_that_was_not_worth_making_no_request_is_shown(
    scene: Scene, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def expire(*_: object) -> Moved:
        return Moved()

    monkeypatch.setattr(scene.doorstep.components.store, "expire", expire)  # so that a worker claims it first
    await scene.endpoint(name="shop")
    now = scene.clock.now()
    receipt = await scene.send(deliver_at=now + 100 * SECOND, expires_at=now + 200 * SECOND)
    scene.leap(300)
    shown = await page_of(console, await scene.until_state(receipt, DEAD))
    assert "EXPIRED" in shown.text and "Nothing was sent." in shown.text
    assert "x-correlation-id" not in shown.source and "curl --globoff" not in shown.source
    delivery = await scene.delivery(receipt)
    assert (await console.raw("GET", f"/console/deliveries/{delivery.delivery_id}/attempts/1/body")).status == 404


async def test_a_command_is_made_only_where_it_is_shown(
    scene: Scene, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    def counted(url: str, headers: bytes, body: bytes, file_name: str) -> str:
        made.append(len(body))
        return curl_command(url, headers, body, file_name)

    monkeypatch.setattr(attempts, "curl_command", counted)
    scene.receiver.says(503)
    await scene.endpoint(policy=RetryPolicy((1.0, 1.0)))
    receipt = await scene.send(payload=json.dumps("z" * 50_000).encode())
    for number in (1, 2, 3):
        delivery = await scene.until_tried(receipt, number)
        scene.leap(2)
    assert "curl --globoff" not in (await page_of(console, delivery)).text
    assert made == []
    shown = await console.get(f"/console/deliveries/{delivery.delivery_id}/attempts/2")
    assert "z" * 50_000 in shown.text
    assert made == [50_002], "of the one attempt"


async def test_a_success_after_a_retry_says_so(scene: Scene, console: Console) -> None:
    delivery = await a_waiting_one(scene)
    scene.receiver.says(200)
    scene.leap(700)
    shown = await page_of(console, await scene.until_state(delivery, DeliveryState.DELIVERED))
    assert "Succeeded on retry attempt 1" in shown.text
    assert "2 attempts in" in shown.source


async def test_the_payload_is_pretty_or_raw_and_can_be_downloaded_byte_for_byte(scene: Scene, console: Console) -> None:
    payload = b'{"b":1,"a":[1.10,"\xc3\xa9"]}'
    receipt = await scene.send(payload=payload)
    path = f"/console/events/{receipt.event_id}"
    assert '"a": [ 1.10, "é" ]' in (await console.get(path)).text
    assert payload.decode() in (await console.get(f"{path}?payload=raw")).text
    answer = await console.raw("GET", f"{path}/payload")
    assert answer.body == payload
    assert answer.headers["content-disposition"] == f'attachment; filename="{receipt.event_id}.json"'
    assert answer.headers["content-security-policy"].startswith("sandbox")


async def test_a_large_payload_is_cut_on_the_page_and_whole_in_the_download(scene: Scene, console: Console) -> None:
    payload = json.dumps("y" * 200_000).encode()
    receipt = await scene.send(payload=payload)
    shown = await console.get(f"/console/events/{receipt.event_id}")
    assert "Only the beginning is shown" in shown.text
    assert 'data-copy="#payload-text"' not in shown.source, "half of it would look like all"
    assert len(shown.source) < 100_000
    assert (await console.raw("GET", f"/console/events/{receipt.event_id}/payload")).body == payload


async def test_what_is_delivered_in_an_envelope_is_shown_as_it_was_sent(scene: Scene, console: Console) -> None:
    delivery = await a_dead_one(scene, envelope=True)
    shown = await console.get(f"/console/deliveries/{delivery.delivery_id}/attempts/1")
    assert '"data": { "n": 1 }' in shown.text
    assert scene.receiver.requests[0].body.decode() in shown.text, "in the command"


async def test_that_an_endpoint_was_changed_after_an_attempt_is_said_beside_what_depends_on_it(
    scene: Scene, console: Console
) -> None:
    delivery = await a_dead_one(scene)
    base, words = f"/console/deliveries/{delivery.delivery_id}", "URL or envelope changed on"
    change = partial(scene.doorstep.components.endpoints.update, DEFAULT_ORG, delivery.endpoint_id, actor="ops")
    await change({"name": "the shop"})
    assert words not in (await page_of(console, delivery)).text, "its name says nothing of where it went"
    await change({"url": scene.receiver.url("/moved"), "name": "shop"})
    for path in (place(delivery), f"{base}/attempts/1"):
        shown = await console.get(path)
        assert words in shown.text and "use the current settings" in shown.text
    await console.post(f"{base}/retry")
    scene.leap(10)
    await scene.until_tried(delivery, 2)
    assert words not in (await console.get(f"{base}/attempts/2")).text


async def test_an_attempt_shows_what_was_sent_then_though_the_payload_was_edited_since(
    scene: Scene, console: Console
) -> None:
    delivery = await a_dead_one(scene)
    await scene.doorstep.components.deliveries.act_on(
        ActionKind.RETRY, DEFAULT_ORG, delivery.delivery_id, "ops", payload=b'{"n":2}'
    )
    scene.leap(10)
    await scene.until_tried(delivery, 2)
    base = f"/console/deliveries/{delivery.delivery_id}"
    first, second = [(await console.get(f"{base}/attempts/{number}")).text for number in (1, 2)]
    assert '"n": 1' in first and '"n": 2' in second
    sent = [(await console.raw("GET", f"{base}/attempts/{number}/body")).body for number in (1, 2)]
    assert sent == [request.body for request in scene.receiver.requests] == [b'{"n": 1}', b'{"n":2}']
    assert "edited by an operator" in (await page_of(console, delivery)).text
    assert (await console.raw("GET", f"{base}/payload")).body == b'{"n":2}'


async def test_endpoints_that_did_not_get_it_are_named_with_the_reason(scene: Scene, console: Console) -> None:
    chosen = await scene.endpoint("/a", name="chosen")
    await scene.endpoint("/b", name="picky", event_types=("user.*",))
    await scene.endpoint("/c", name="left out")
    receipt = await scene.send(endpoint_ids=[chosen.endpoint_id])
    await scene.endpoint("/d", name="latecomer")
    shown = await console.get(f"/console/events/{receipt.event_id}")
    assert "3 endpoints not subscribed" in shown.text
    assert "picky It is subscribed to other event types: user.*." in shown.text
    assert "left out The sender chose other endpoints" in shown.text
    assert "latecomer It was created after the event." in shown.text


# -- reasons for waiting -----------------------------------------------------------------------------------


async def test_a_paused_endpoint_is_the_reason_for_waiting(scene: Scene, console: Console) -> None:
    endpoint = await scene.endpoint(name="shop")
    await scene.doorstep.components.endpoints.pause(DEFAULT_ORG, endpoint.endpoint_id, "ops", "they move house")
    receipt = await scene.send()
    scene.leap(60)
    shown = await console.get(f"/console/events/{receipt.event_id}")
    assert "The endpoint is paused: they move house" in shown.text
    assert "No attempts yet." in shown.text
    assert "Held: the endpoint was paused (they move house)" in shown.source


async def test_a_pause_of_the_past_stays_in_the_picture(scene: Scene, console: Console) -> None:
    endpoint = await scene.endpoint(name="shop")
    await scene.doorstep.components.endpoints.pause(DEFAULT_ORG, endpoint.endpoint_id, "ops", "tea")
    receipt = await scene.send()
    scene.leap(60)
    await scene.doorstep.components.endpoints.resume(DEFAULT_ORG, endpoint.endpoint_id, "ops")
    await scene.until_state(receipt, DeliveryState.DELIVERED)
    shown = await console.get(f"/console/events/{receipt.event_id}")
    assert "Held: the endpoint was paused (tea): 1" in shown.source
    assert re.search(
        r"in progress claimed by \S+ attempt 1 Held: the endpoint was paused \(tea\), for 1 min", shown.text
    )


async def test_an_open_circuit_is_the_reason_for_waiting(scene: Scene, console: Console) -> None:
    scene.receiver.says(503)
    rules = CircuitRules(failures_max=1, probe_seconds_min=300, open_seconds=300)
    endpoint = await scene.endpoint(name="shop", policy=RetryPolicy((5.0,)), circuit=rules)
    delivery = await scene.until_tried(await scene.send())

    async def opened() -> bool:
        return (
            await scene.doorstep.components.reader.circuit(DEFAULT_ORG, endpoint.endpoint_id)
        ).state is CircuitState.OPEN

    await until(opened)
    scene.leap(60)
    shown = await page_of(console, delivery)
    assert "The endpoint's circuit is open until" in shown.text
    assert "Held: the endpoint&#39;s circuit was open" in shown.source


async def test_an_event_behind_another_with_its_ordering_key_says_so(scene: Scene, console: Console) -> None:
    scene.receiver.says(503)
    await scene.endpoint(name="shop", policy=LATER)
    await scene.until_tried(await scene.send(ordering_key="order-7"))
    second = await scene.send(ordering_key="order-7")
    shown = await console.get(f"/console/events/{second.event_id}")
    assert "It is waiting for an earlier event with the same ordering key." in shown.text
    assert "Ordering key order-7" in shown.text
    scene.leap(30)
    shown = await console.get(f"/console/events/{second.event_id}")
    assert "Waits for an earlier event with the same ordering key: 30" in shown.source


async def test_an_event_in_the_outbox_says_so_and_nothing_can_be_done_to_it_there(database_url: str) -> None:
    """This Doorstep is open but runs no worker, so the event stays in the outbox."""
    settings = Settings(database_url=database_url, secret_key=new_secret_key())
    async with opened(Doorstep(settings)) as doorstep:
        _, key = await doorstep.components.keys.create(DEFAULT_ORG, "test", Role.ADMIN, "test")
        fields: dict[str, Any] = {
            "org_id": DEFAULT_ORG,
            "event_type": "order.paid",
            "payload": b"1",
            "created_at": doorstep.clock.now(),
        }
        waiting, refused = (OutboxMessage(event_id=uuid7(doorstep.clock.now()), **fields) for _ in range(2))
        await post(doorstep.components.store, [waiting, refused])
        await doorstep.components.store.reject(refused.event_id, "payload: too large", doorstep.clock.now())
        async with listening(create_application(doorstep)) as port:
            console = await Console(f"http://127.0.0.1:{port}").sign_in(key)
            shown = await console.get(f"/console/events/{waiting.event_id}")
            assert "Still in the outbox of the sending program" in shown.text
            assert not any(f">{act}<" in shown.source for act in ACTS)
            shown = await console.get(f"/console/events/{refused.event_id}")
            assert "because it can never be accepted: payload: too large" in shown.text


@asynccontextmanager
async def opened(doorstep: Doorstep) -> AsyncIterator[Doorstep]:
    await doorstep.open(migrate=False)
    try:
        yield doorstep
    finally:
        await doorstep.close()


# -- actions -----------------------------------------------------------------------------------------------


async def test_a_waiting_delivery_is_retried_at_once(scene: Scene, console: Console) -> None:
    delivery = await a_waiting_one(scene)
    scene.receiver.says(200)
    await page_of(console, delivery)
    shown = await console.post(f"/console/deliveries/{delivery.delivery_id}/retry", back=place(delivery))
    assert shown.path == place(delivery) and shown.said in ("Retrying…", "Retry succeeded.")
    await scene.until_state(delivery, DeliveryState.DELIVERED)


ENDINGS = [("skip", DEAD), ("cancel", DeliveryState.CANCELLED), ("resolve", None), ("delete", None)]


async def test_a_waiting_delivery_is_skipped_or_cancelled_and_nothing_else(
    scene: Scene, console: Console, subtests: pytest.Subtests
) -> None:
    scene.receiver.says(503)
    endpoint = await scene.endpoint(name="shop", policy=LATER)
    for act, state in ENDINGS:
        with subtests.test(act=act):
            (sent,) = await scene.send_to(endpoint)
            delivery = await scene.until_state(await scene.until_tried(sent), PENDING)
            asked = await console.get(f"/console/deliveries/{delivery.delivery_id}/{act}?back={place(delivery)}")
            assert 'id="question"' in asked.source
            shown = await console.post(
                f"/console/deliveries/{delivery.delivery_id}/{act}", reason="not wanted", back=place(delivery)
            )
            assert shown.path == place(delivery)
            assert (await scene.delivery(delivery)).state is (state or PENDING)
            if state is None:
                assert "is pending and cannot be" in (shown.said or "")
            else:
                assert f"{act} 1 done, 0 refused not wanted" in shown.text, "in the audit trail"


async def test_a_deleted_dead_letter_keeps_its_log(scene: Scene, console: Console) -> None:
    delivery = await a_dead_one(scene)
    await page_of(console, delivery)
    await console.post(f"/console/deliveries/{delivery.delivery_id}/delete", reason="old", back=place(delivery))
    shown = await page_of(console, delivery)
    assert "An operator deleted this dead letter. Its log is kept." in shown.text
    assert "x-receiver: tired" in shown.text
    assert "delete 1 done, 0 refused old" in shown.text
    assert "Mark as resolved" not in shown.text


async def test_the_log_of_a_deleted_event_can_still_be_read(scene: Scene, console: Console) -> None:
    delivery = await a_dead_one(scene)
    await page_of(console, delivery)
    refused = await console.post(f"{place(delivery)}/delete", back="/console/events")
    assert refused.asks_why and "Delete the event" in refused.text
    assert refused.field("back") == "/console/events"
    shown = await console.post(f"{place(delivery)}/delete", reason="asked by the customer", back="/console/events")
    assert (shown.path, shown.said) == ("/console/events", "The event was deleted.")
    shown = await page_of(console, delivery)
    assert "The event and its payload were deleted." in shown.text
    assert "asked by the customer" in shown.text
    assert "x-receiver: tired" in shown.text
    assert "event.delete" in shown.text
    assert not any(f">{act}<" in shown.source for act in ACTS)
    assert (await console.get(f"/console/deliveries/{delivery.delivery_id}")).status == 200
    assert (await console.get(f"/console/deliveries/{delivery.delivery_id}/attempts/1")).status == 200
    found = await console.get(f"/console/search?q={delivery.event_id}")
    assert found.path == place(delivery)


async def test_an_event_is_replayed_to_an_endpoint_that_did_not_get_it(scene: Scene, console: Console) -> None:
    receipt = await scene.send()
    endpoint = await scene.endpoint(name="latecomer")
    path = f"/console/events/{receipt.event_id}"
    assert "latecomer" in (await console.get(f"{path}/replay")).text
    shown = await console.post(f"{path}/replay", endpoint_id=endpoint.endpoint_id)
    assert shown.said == "The event was sent again, as this new event."
    assert str(receipt.event_id) not in shown.path
    await scene.until_received(1)
    assert "event.replay" in (await console.get(path)).text
    nowhere = await console.post(f"{path}/replay", back=path)
    assert nowhere.status == 422 and "choose the endpoint" in (nowhere.said or "")
    assert nowhere.field("back") == path


async def test_an_event_that_no_endpoint_takes_is_acknowledged(scene: Scene, console: Console) -> None:
    path = f"/console/events/{(await scene.send()).event_id}"
    assert "No endpoint is subscribed to this event." in (await console.get(path)).text
    shown = await console.post(f"{path}/acknowledge", back=path)
    assert shown.said == "The event was acknowledged."
    assert "order.paid delivered" in shown.text
    assert "Acknowledge" not in re.sub("acknowledged", "", shown.text)


async def test_an_event_in_the_inbox_shows_who_holds_it_until_when(scene: Scene, console: Console) -> None:
    sent = await scene.send()
    path, inbox = f"/console/events/{sent.event_id}", scene.doorstep.components.inbox
    assert "It stays in the inbox until it is acknowledged." in (await console.get(path)).text
    await inbox.lease(DEFAULT_ORG, "worker-7", 1, 300)
    held = (await console.get(path)).text
    assert re.search(r"Leased by worker-7 from the inbox; the lease ends in \d.* Leased 1 time so far\.", held)
    await inbox.nack(DEFAULT_ORG, sent.event_id, "worker-7", 1, 300)
    assert "It is in the inbox, and can be leased in " in (await console.get(path)).text
    await inbox.acknowledge(DEFAULT_ORG, sent.event_id, "worker-7")
    assert "A consumer of the inbox acknowledged it." in (await console.get(path)).text


async def test_all_deliveries_of_an_event_are_cancelled_or_retried_together(scene: Scene, console: Console) -> None:
    scene.receiver.says(503)
    for path in ("/a", "/b"):
        await scene.endpoint(path, policy=LATER)
    receipt = await scene.send()
    for delivery in await scene.deliveries(receipt):
        await scene.until_state(await scene.until_tried(delivery), PENDING)
    path = f"/console/events/{receipt.event_id}"
    assert "Retry all" in (await console.get(path)).text
    assert "Retry 2 deliveries of order.paid?" in (await console.get(f"{path}/retry")).text
    assert "Cancel 2 deliveries of order.paid?" in (await console.get(f"{path}/cancel")).text
    assert "2 waiting deliveries are cancelled. The" in (await console.get(f"{path}/delete")).text
    shown = await console.post(f"{path}/retry", back=path, reason="they are back")
    assert shown.said == "2 deliveries will be retried."
    assert "they are back" in shown.text
    for delivery in await scene.deliveries(receipt):
        await scene.until_state(await scene.until_tried(delivery, 2), DEAD)
    assert "The payload is erased, 2 dead letters are deleted." in (await console.get(f"{path}/delete")).text
    refused = await console.post(f"{path}/cancel", reason="a mistake", back=path)
    assert refused.said == f"event {receipt.event_id} has nothing to cancel: 2 are dead"


async def test_buttons_depend_on_the_state(scene: Scene, console: Console) -> None:
    delivery = await a_waiting_one(scene)
    waiting = await page_of(console, delivery)
    offered = [act for act in ACTS if re.search(f">{act}( now)?<", waiting.source)]
    assert offered == ["Retry", "Skip", "Cancel", "Replay"]
    scene.leap(700)
    dead = await page_of(console, await scene.until_state(delivery, DEAD))
    offered = [act for act in ACTS if re.search(f">{act}<", dead.source)]
    assert offered == ["Retry", "Mark as resolved", "Delete", "Replay", "Edit and retry"]


async def test_a_viewer_sees_everything_and_no_act(scene: Scene, viewer: Console) -> None:
    delivery = await a_dead_one(scene)
    shown = await page_of(viewer, delivery)
    assert "x-receiver: tired" in shown.text
    assert not any(re.search(f">{act}( now| all| event)?<", shown.source) for act in ACTS)
    for path in (f"/console/deliveries/{delivery.delivery_id}/retry", f"{place(delivery)}/retry"):
        assert (await viewer.post(path)).status == 403
    for path in (f"/console/deliveries/{delivery.delivery_id}/delete", f"{place(delivery)}/delete"):
        assert (await viewer.get(path)).status == 403
    assert (await scene.delivery(delivery)).state is DEAD


# -- many deliveries and invalid ids -----------------------------------------------------------------------


async def test_of_many_deliveries_those_that_need_somebody_come_first_and_all_can_be_reached(
    scene: Scene, console: Console
) -> None:
    for number in range(13):
        await scene.endpoint(f"/{number}", name=f"shop {number:02}", policy=ONCE)
    scene.receiver.answer = lambda request: Answer(400 if request.path == "/12" else 200)
    receipt = await scene.send()
    deliveries = await scene.deliveries(receipt)
    await asyncio.gather(*(scene.until_state(one, DEAD, DeliveryState.DELIVERED) for one in deliveries))
    shown = await console.get(f"/console/events/{receipt.event_id}")
    assert shown.text.index("dead shop 12") < shown.text.index("delivered shop 00")
    assert "3 more deliveries" in shown.text
    assert all(f'id="delivery-{one.delivery_id}"' in shown.source for one in deliveries)


async def test_what_is_no_id_is_not_found(console: Console, subtests: pytest.Subtests) -> None:
    for path in ("events/x", "events/x/payload", "deliveries/x", "deliveries/x/attempts/1"):
        with subtests.test(path=path):
            assert (await console.get(f"/console/{path}")).status == 404


async def test_only_what_may_be_asked_is_asked(scene: Scene, console: Console) -> None:
    delivery = await a_dead_one(scene)
    assert (await console.get(f"/console/deliveries/{delivery.delivery_id}/explode")).status == 404
    await console.get("/console/events/send")
    assert (await console.post(f"/console/deliveries/{delivery.delivery_id}/explode")).status == 404
