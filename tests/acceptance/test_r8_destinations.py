"""R8.4: where an endpoint's events go, given as a destination of some kind or in a short form."""

from __future__ import annotations

from typing import Any

import pytest

from doorstep import Doorstep
from doorstep.telemetry.facts import Fact, Notice, json_lines
from tests.support.api import Api, lasting
from tests.support.builders import unused
from tests.support.scene import Scene, until


async def test_a_destination_and_its_short_form_make_the_same_endpoint(scene: Scene, api: Api) -> None:
    url = scene.receiver.url()
    for given in ({"url": url}, {"destination": {"kind": "http", "url": url}}):
        made = (await api.post("/v1/endpoints", {"name": unused("shop"), **given})).json
        assert (made["destination"], made["url"], made["handler"]) == ({"kind": "http", "url": url}, url, None)
    for given in ({"handler": "ship"}, {"destination": {"kind": "handler", "name": "ship"}}):
        made = (await api.post("/v1/endpoints", {"name": unused("job"), **given})).json
        assert (made["destination"], made["url"], made["handler"]) == (
            {"kind": "handler", "name": "ship"},
            None,
            "ship",
        )
        assert (await api.get(f"/v1/endpoints/{made['endpoint_id']}")).json["destination"] == made["destination"]


async def test_events_go_to_the_destination_that_was_given(scene: Scene, api: Api) -> None:
    seen: list[str] = []

    def with_handler(doorstep: Doorstep) -> None:
        doorstep.handler("nothing", name="ship")(lambda event: seen.append(event.event_type))

    await scene.open(with_handler)
    url = {"kind": "http", "url": scene.receiver.url()}
    await api.post("/v1/endpoints", {"name": "shop", "destination": url, "event_types": ["order.*"]})
    ship = {"kind": "handler", "name": "ship"}
    await api.post("/v1/endpoints", {"name": "job", "destination": ship, "event_types": ["order.*"]})
    await api.until_status(await api.send("order.paid"), "delivered")
    await scene.until_received(1)
    assert seen == ["order.paid"]
    assert "webhook-signature" in scene.receiver.requests[0].headers


async def test_a_new_destination_replaces_the_old_one_of_whatever_kind(scene: Scene, api: Api) -> None:
    path = f"/v1/endpoints/{(await api.endpoint(scene.receiver.url()))['endpoint_id']}"
    answer = await api.patch(path, {"destination": {"kind": "handler", "name": "ship"}})
    assert (answer.status, answer.json["url"], answer.json["handler"]) == (200, None, "ship")
    new = scene.receiver.url("/new")
    assert (await api.patch(path, {"destination": {"kind": "http", "url": new}, "url": new})).json["url"] == new
    await api.send()
    await until(lambda: [one.path for one in scene.receiver.requests] == ["/new"])


async def test_events_can_be_written_to_the_log_with_the_start_of_their_payload_and_no_credentials(
    scene: Scene, api: Api
) -> None:
    lines: list[Fact] = []
    scene.doorstep.telemetry.subscribe(lines.extend)
    made = (await api.post("/v1/endpoints", {"name": "look", "destination": {"kind": "log"}})).json
    assert (made["destination"], made["url"], made["handler"]) == ({"kind": "log"}, None, None)
    payload = {"order": 42, "api_key": "dsk_0123456789abcdef", "note": "é" * 5_000}
    event_id = await api.send("order.paid", payload)
    await api.until_status(event_id, "delivered")
    (line,) = (one for one in lines if isinstance(one, Notice) and "payload" in one.fields)
    assert (str(line.fields["event_id"]), line.fields["event_type"]) == (event_id, "order.paid")
    assert str(line.fields["payload"]).startswith('{"order": 42,')
    assert len(str(line.fields["payload"])) == 2_000
    assert "0123456789abcdef" not in json_lines(lines).decode()
    path = f"/v1/endpoints/{made['endpoint_id']}"
    assert (await api.patch(path, {"url": None})).json["destination"] == {"kind": "log"}, "it has none to take away"
    assert (await api.patch(path, {"url": scene.receiver.url()})).json["destination"]["kind"] == "http"


CONTRADICTIONS: list[tuple[dict[str, Any], str]] = [
    ({"url": "https://a.example/", "handler": "ship"}, "url"),
    ({"url": "https://a.example/", "destination": {"kind": "http", "url": "https://b.example/"}}, "url"),
    ({"url": "https://a.example/", "destination": {"kind": "handler", "name": "ship"}}, "url"),
    ({"handler": "ship", "destination": {"kind": "handler", "name": "bill"}}, "handler"),
    ({"handler": "ship", "destination": {"kind": "log"}}, "handler"),
    ({"destination": {"kind": "log"}, "envelope": True}, "envelope"),
    ({"destination": {"kind": "pigeon"}}, "destination.kind"),
    ({"destination": {"kind": "http"}}, "destination.url"),
    ({"destination": {"kind": "http", "url": "https://10.0.0.1/"}}, "destination.url"),
    ({"destination": {"kind": "handler", "name": "ship", "url": "https://a.example/"}}, "destination.url"),
    ({"destination": {"kind": "handler", "name": ""}}, "destination.name"),
    ({"destination": {"kind": "handler", "name": "ship"}, "envelope": True}, "envelope"),
]


@lasting
async def test_a_destination_that_cannot_be_used_is_a_422_that_names_the_field(
    lasting_scene: Scene, lasting_api: Api, subtests: pytest.Subtests
) -> None:
    endpoint = await lasting_api.endpoint(lasting_scene.receiver.url())
    path = f"/v1/endpoints/{endpoint['endpoint_id']}"
    for body, field in [*CONTRADICTIONS, ({"destination": None}, "destination")]:
        with subtests.test(body=body):
            if body != {"destination": None}:  # in a new endpoint, this is the same as no destination
                answer = await lasting_api.post("/v1/endpoints", {"name": "shop", **body})
                assert (answer.status, answer.json["errors"][0]["field"]) == (422, field)
            answer = await lasting_api.patch(path, body)
            assert (answer.status, answer.json["errors"][0]["field"]) == (422, field)
    assert (await lasting_api.get(path)).json["version"] == 1
