"""The list of events: what it shows, how to filter it, how to find one event, and how to send one by hand."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.model.delivery import DeliveryState
from doorstep.model.org import Role
from tests.console.visiting import Console
from tests.support.api import Api
from tests.support.scene import Scene


async def test_events_are_listed_the_newest_first(scene: Scene, console: Console) -> None:
    endpoint = await scene.endpoint(event_types=("order.*",))
    first, second = await scene.send("order.paid"), await scene.send("user.created")
    await scene.until_state(first, DeliveryState.DELIVERED)
    shown = await console.get("/console/events")
    assert shown.source.index(str(second.event_id)) < shown.source.index(str(first.event_id))
    assert "order.paid delivered 1 –" in shown.text
    assert "user.created received inbox –" in shown.text
    assert endpoint.name not in shown.text


async def test_the_list_is_narrowed_by_type_status_and_time(scene: Scene, console: Console) -> None:
    paid, created = await scene.send("order.paid"), await scene.send("user.created")
    for query, expected in {
        "event_type=order.*": [paid],
        "status=received": [paid, created],
        "status=failed": [],
        "created_from=2020-01-01T00:00&event_type=user.created": [created],
        "created_before=2020-01-01": [],
    }.items():
        shown = await console.get(f"/console/events?{query}")
        found = [one for one in (paid, created) if str(one.event_id) in shown.source]
        assert found == expected, query
        assert expected or "No events for this filter." in shown.text


async def test_a_filter_that_cannot_be_used_says_so(console: Console, subtests: pytest.Subtests) -> None:
    for query in ("status=lost", "created_from=yesterday", "cursor=nonsense"):
        with subtests.test(query=query):
            shown = await console.get(f"/console/events?{query}")
            assert shown.status == 422
            assert query.partition("=")[0] in shown.text


async def test_pages_follow_each_other_without_gaps(scene: Scene, console: Console) -> None:
    sent = {str((await scene.send()).event_id) for _ in range(53)}
    first = await console.get("/console/events")
    onward = first.source.partition('rel="next"')[0].rpartition('href="')[2].partition('"')[0].replace("&amp;", "&")
    second = await console.get(onward)
    on_first, on_second = ({one for one in sent if one in page.source} for page in (first, second))
    assert (len(on_first), len(on_second)) == (50, 3)
    assert on_first | on_second == sent


async def test_without_any_event_it_says_what_to_do(console: Console) -> None:
    assert "No events yet." in (await console.get("/console/events")).text


async def test_an_event_of_another_organization_is_not_found(scene: Scene, console: Console) -> None:
    caller, _ = await scene.doorstep.components.keys.create(DEFAULT_ORG, "an admin", Role.ADMIN, "test")
    org, *_ = await scene.doorstep.components.keys.create_org("other", caller)
    receipt = await scene.send(org_id=org.org_id)
    assert str(receipt.event_id) not in (await console.get("/console/events")).source
    assert (await console.get(f"/console/events/{receipt.event_id}")).status == 404
    assert (await console.get(f"/console/events/{receipt.event_id}/payload")).status == 404


async def test_an_event_is_sent_by_hand_and_shown(scene: Scene, console: Console) -> None:
    taker, other = await scene.endpoint("/a", name="taker"), await scene.endpoint("/b", name="other")
    await console.get("/console/events/send")
    shown = await console.post(
        "/console/events/send",
        event_type="order.paid",
        payload='{"order":\r\n 1}',
        endpoint_id=taker.endpoint_id,
        ordering_key="order-1",
    )
    assert shown.said == "The event was accepted."
    await scene.until_received(1)
    (request,) = scene.receiver.requests
    assert (request.path, request.body) == ("/a", b'{"order":\n 1}')
    assert other.name in shown.text, "it is among those that did not get it"


async def test_a_form_that_is_sent_twice_sends_one_event_and_one_that_was_changed_another(
    scene: Scene, console: Console
) -> None:
    form = await console.get("/console/events/send")
    said: dict[str, object] = {"once": form.field("once"), "event_type": "order.paid", "payload": "1"}
    first, second = await asyncio.gather(*(console.post("/console/events/send", said) for _ in range(2)))
    assert (first.status, first.path) == (200, second.path)
    changed = await console.post("/console/events/send", said | {"payload": "2"})
    assert changed.path != first.path
    again = await console.get("/console/events/send")
    assert (await console.post("/console/events/send", said | {"once": again.field("once")})).path != first.path


UNSENDABLE = [
    ({"event_type": "order paid", "payload": "{}"}, "event_type"),
    ({"event_type": "order.paid", "payload": "{"}, "payload"),
    ({"event_type": "order.paid", "payload": "{}", "endpoint_id": str(uuid4())}, "endpoint"),
    ({"event_type": "order.paid", "payload": "{}", "endpoint_id": "x"}, "endpoint_id"),
]


async def test_what_cannot_be_sent_is_kept_in_the_form(console: Console, subtests: pytest.Subtests) -> None:
    for fields, named in UNSENDABLE:
        with subtests.test(fields=fields):
            await console.get("/console/events/send")
            shown = await console.post("/console/events/send", fields)
            assert shown.status == 422
            assert named in (shown.said or "")
            assert str(fields["event_type"]) in shown.source


async def test_a_viewer_looks_and_sends_nothing(scene: Scene, viewer: Console) -> None:
    shown = await viewer.get("/console/events")
    assert "Send an event" not in shown.text
    assert (await viewer.get("/console/events/send")).status == 403
    assert (await viewer.post("/console/events/send", event_type="a", payload="{}")).status == 403
    assert (await scene.doorstep.components.reader.stats(DEFAULT_ORG)).inbox.value == 0


async def test_an_operator_sends(scene: Scene, api: Api) -> None:
    _, key = await scene.doorstep.components.keys.create(DEFAULT_ORG, "an operator", Role.OPERATOR, "test")
    operator = await Console(api.url).sign_in(key)
    await operator.get("/console/events/send")
    assert (await operator.post("/console/events/send", event_type="a", payload="1")).said == "The event was accepted."
