"""R7.6, R8.3: several consumers share the inbox over HTTP: they lease events, acknowledge them and give them back."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from tests.support.api import Api, lasting
from tests.support.scene import Scene

LEASED = {
    *("event_id", "status", "retry_attempts", "last_retry_at", "failed_at", "next_retry_at"),
    *("event_type", "created_at", "correlation_id", "deliveries", "receive_count", "leased_by", "visible_at"),
    *("payload", "metadata", "lease_token", "user_id"),
}


async def lease(api: Api, **body: Any) -> list[dict[str, Any]]:
    answer = await api.post("/v1/inbox/lease", body or None)
    assert answer.status == 200, answer.json
    events: list[dict[str, Any]] = answer.json["events"]
    return events


def token(event: dict[str, Any]) -> dict[str, Any]:
    return {"event_id": event["event_id"], "lease_token": event["lease_token"]}


async def test_leased_events_carry_everything_and_no_other_consumer_gets_them(api: Api) -> None:
    ids = [await api.send("polled", payload={"n": n}, metadata={"a": n}) for n in range(3)]
    leased = await lease(api, limit=2, visibility_seconds=120)
    assert [set(one) for one in leased] == [LEASED] * 2
    assert [(one["event_id"], one["payload"], one["metadata"]) for one in leased] == [
        (ids[n], {"n": n}, {"a": n}) for n in range(2)
    ]
    assert [(one["status"], one["receive_count"]) for one in leased] == [("received", 1)] * 2
    assert {one["leased_by"] for one in leased} == {"test"}, "the name of the key"
    assert [one["event_id"] for one in await lease(api)] == ids[2:]
    assert await lease(api) == []


async def test_the_list_still_shows_leased_events_and_says_who_holds_them_until_when(scene: Scene, api: Api) -> None:
    event_id = await api.send("polled")
    (leased,) = await lease(api)
    (listed,) = (await api.get("/v1/inbox")).json["events"]
    held = {name: leased[name] for name in ("leased_by", "visible_at", "receive_count")}
    assert {name: listed[name] for name in held} == held
    assert "lease_token" not in listed
    assert (await api.status(event_id))["status"] == "received"
    scene.leap(60)
    (free,) = (await api.get("/v1/inbox")).json["events"]
    assert (free["leased_by"], free["visible_at"], free["receive_count"]) == (None, None, 1)


async def test_the_events_of_a_consumer_that_vanished_come_back_when_their_lease_ends(scene: Scene, api: Api) -> None:
    event_id = await api.send("polled")
    (first,) = await lease(api, visibility_seconds=30)
    scene.leap(30)
    (second,) = await lease(api)
    assert (second["event_id"], second["receive_count"]) == (event_id, 2)
    late = await api.post(f"/v1/events/{event_id}/ack", {"lease_token": first["lease_token"]})
    assert (late.status, late.json["type"]) == (409, "urn:doorstep:problem:conflict")
    assert "was leased again" in late.json["detail"]
    assert (await api.status(event_id))["status"] == "received"
    assert (await api.post(f"/v1/events/{event_id}/ack", {"lease_token": second["lease_token"]})).status == 200
    assert (await api.status(event_id))["status"] == "delivered"


async def test_an_event_that_is_given_back_can_be_leased_at_once_or_after_its_delay(scene: Scene, api: Api) -> None:
    event_id = await api.send("polled")
    (first,) = await lease(api)
    answer = await api.post(f"/v1/events/{event_id}/nack", {"lease_token": first["lease_token"]})
    assert (answer.status, answer.json) == (200, {"event_id": event_id, "status": "received"})
    (second,) = await lease(api)
    body = {"lease_token": second["lease_token"], "delay_seconds": 10}
    assert (await api.post(f"/v1/events/{event_id}/nack", body)).status == 200
    (hidden,) = (await api.get("/v1/inbox")).json["events"]
    assert (hidden["leased_by"], hidden["visible_at"] is None) == (None, False)
    assert await lease(api) == []
    scene.leap(10)
    assert [one["receive_count"] for one in await lease(api)] == [3]
    (entry, _) = await api.all("/v1/audit?action=event.nack", "audit")
    assert (entry["subjects"], entry["actor"], entry["actor_id"]) == ([event_id], "test", api.key[:12])


async def test_a_batch_of_answers_has_a_result_for_each_event(scene: Scene, api: Api) -> None:
    await api.endpoint(scene.receiver.url(), event_types=["pushed"])
    pushed, stranger = await api.send("pushed"), str(uuid4())
    for _ in range(4):
        await api.send("polled")
    done, stale, back, gone = await lease(api)
    events = [
        token(done),
        token(stale) | {"lease_token": 7},
        {"event_id": pushed},
        {"event_id": stranger},
        {"event_id": gone["event_id"]},
    ]
    answer = await api.post("/v1/inbox/ack", {"events": events})
    assert answer.status == 200
    results = [(one["event_id"], one["result"]) for one in answer.json["events"]]
    assert results == [
        (done["event_id"], "acknowledged"),
        (stale["event_id"], "newer_lease"),
        (pushed, "not_in_inbox"),
        (stranger, "not_found"),
        (gone["event_id"], "acknowledged"),
    ]
    assert [one["refusal"] is None for one in answer.json["events"]] == [True, False, False, False, True]
    answer = await api.post("/v1/inbox/nack", {"events": [token(back), token(done)], "delay_seconds": 0})
    assert [one["result"] for one in answer.json["events"]] == ["nacked", "already_acknowledged"]
    (line,) = await api.all("/v1/audit?action=event.acknowledge", "audit")
    assert line["subjects"] == [done["event_id"], gone["event_id"]]


async def test_only_events_of_the_wanted_types_are_leased(api: Api) -> None:
    ids = [await api.send(name) for name in ("cart.left", "form.sent", "cart.left")]
    assert [one["event_id"] for one in await lease(api, event_types=["cart.left"])] == [ids[0], ids[2]]


async def test_a_single_answer_about_an_event_that_cannot_be_taken_is_a_conflict_or_not_found(
    scene: Scene, api: Api
) -> None:
    await api.endpoint(scene.receiver.url(), event_types=["pushed"])
    pushed = await api.send("pushed")
    for verb in ("ack", "nack"):
        assert (await api.post(f"/v1/events/{pushed}/{verb}")).status == 409
        assert (await api.post(f"/v1/events/{uuid4()}/{verb}")).status == 404
    acknowledged = await api.send("polled")
    await api.post(f"/v1/events/{acknowledged}/ack")
    assert (await api.post(f"/v1/events/{acknowledged}/nack")).status == 409


EVENT = {"event_id": str(uuid4())}
WRONG = [
    ("lease", {"limit": 0}, "limit"),
    ("lease", {"limit": 1_001}, "limit"),
    ("lease", {"visibility_seconds": 0.5}, "visibility_seconds"),
    ("lease", {"visibility_seconds": 43_201}, "visibility_seconds"),
    ("lease", {"event_types": ["a"] * 21}, "event_types"),
    ("lease", {"event_types": ["a", "cart.*"]}, "event_types"),
    ("lease", {"event_types": ["a\x00"]}, "event_types"),
    ("lease", {"wait": 3}, "wait"),
    ("ack", {"events": []}, "events"),
    ("ack", {"events": [EVENT] * 2}, "events"),
    ("ack", {"events": [{"event_id": str(uuid4())} for _ in range(1_001)]}, "events"),
    ("ack", {"events": [EVENT | {"lease_token": 0}]}, "events[0].lease_token"),
    ("ack", {"events": [EVENT], "delay_seconds": 3}, "delay_seconds"),
    ("nack", {"events": [EVENT], "delay_seconds": -1}, "delay_seconds"),
]


@lasting
@pytest.mark.parametrize(("route", "body", "field"), WRONG)
async def test_what_is_out_of_range_is_refused_and_named(
    lasting_api: Api, route: str, body: dict[str, Any], field: str
) -> None:
    answer = await lasting_api.post(f"/v1/inbox/{route}", body)
    assert (answer.status, answer.json["errors"][0]["field"]) == (422, field)
