"""R8.1 to R8.3: events over HTTP: status, lists, the inbox, and actions on whole events."""

from __future__ import annotations

import json
import re
from typing import Any
from uuid import uuid4

import pytest

from tests.support.api import Api, lasting
from tests.support.scene import Scene, until

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
NOBODY = str(uuid4())


# -- R8.1: lists -------------------------------------------------------------------------------------------


async def test_events_are_listed_newest_first_page_by_page_without_their_payloads(api: Api) -> None:
    sent = [await api.send(payload=f"c4n4ry {number}") for number in range(7)]
    pages = [page async for page in api.pages("/v1/events", "events", 3)]
    listed = [event["event_id"] for page in pages for event in page]
    assert listed == sent[::-1]
    assert "c4n4ry" not in json.dumps(pages)
    assert set(pages[0][0]) == {
        *("event_id", "status", "retry_attempts", "last_retry_at", "failed_at", "next_retry_at"),
        *("event_type", "created_at", "correlation_id", "deliveries", "user_id"),
    }


async def test_events_are_found_by_status_by_type_and_by_time(scene: Scene, api: Api) -> None:
    scene.receiver.says(400)
    await api.endpoint(scene.receiver.url(), event_types=["bad.*"])
    failed = await api.send("bad.order")
    await api.until_status(failed, "failed")
    middle = (await api.get(f"/v1/events/{failed}")).json["created_at"]
    waiting = await api.send("good.order")
    assert await _ids(api, "/v1/events?status=failed") == [failed]
    assert await _ids(api, "/v1/events?status=received") == [waiting]
    assert await _ids(api, "/v1/events?event_type=good.*") == [waiting]
    assert await _ids(api, "/v1/events?event_type=good.order&status=failed") == []
    for end, begin in (("until", "since"), ("created_before", "created_from")):
        assert await _ids(api, f"/v1/events?{end}={middle}") == []
        assert await _ids(api, f"/v1/events?{begin}={middle}") == [waiting, failed]


@lasting
@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("status=lost", "status"),
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=many", "limit"),
        ("cursor=rubbish", "cursor"),
        ("created_from=yesterday", "created_from"),
        ("since=yesterday", "since"),
        ("since=2026-01-01T00:00:00Z&created_from=2026-01-01T00:00:00Z", "created_from"),
        ("created_from=2026-01-01T00:00:00", "created_from"),
        ("colour=red", "colour"),
        ("limit=5&limit=6", "limit"),
    ],
)
async def test_a_list_that_is_asked_for_wrongly_names_the_parameter(lasting_api: Api, query: str, field: str) -> None:
    answer = await lasting_api.get(f"/v1/events?{query}")
    assert (answer.status, answer.headers["content-type"]) == (422, "application/problem+json")
    assert [error["field"] for error in answer.json["errors"]] == [field]


# -- R8.1: acting on whole events --------------------------------------------------------------------------


async def test_retrying_a_failed_event_delivers_it_and_is_audited(scene: Scene, api: Api) -> None:
    scene.receiver.says(400, 200)
    await api.endpoint(scene.receiver.url())
    event_id = await api.send()
    await api.until_status(event_id, "failed")
    answer = await api.post(f"/v1/events/{event_id}/retry", {"reason": "the shop is mended"})
    delivery = await api.delivery_of(event_id)
    assert answer.status == 202
    assert answer.json == {"event_id": event_id, "retried": [delivery["delivery_id"]], "refused": []}
    assert (delivery["state"], delivery["retry_attempts"]) == ("pending", 0)
    scene.leap(5)
    await api.until_status(event_id, "delivered")
    (line,) = await api.all("/v1/audit?action=retry", "audit")
    assert (line["actor_id"], line["reason"]) == (api.key[:12], "the shop is mended")
    assert line["subjects"] == [delivery["delivery_id"]]


async def test_retrying_an_event_that_has_nothing_to_retry_is_a_409_that_says_why(scene: Scene, api: Api) -> None:
    await api.endpoint(scene.receiver.url(), event_types=["order.*"])
    delivered = await api.send()
    await api.until_status(delivered, "delivered")
    answer = await api.post(f"/v1/events/{delivered}/retry")
    assert (answer.status, answer.json["type"]) == (409, "urn:doorstep:problem:conflict")
    assert "1 is delivered" in answer.json["detail"]
    in_the_inbox = await api.send("nobody.takes.it")
    assert (await api.post(f"/v1/events/{in_the_inbox}/retry")).status == 409


async def test_cancelling_an_event_calls_off_what_waits_and_only_that(scene: Scene, api: Api) -> None:
    endpoint = await api.endpoint(scene.receiver.url())
    await api.post(f"/v1/endpoints/{endpoint['endpoint_id']}/pause")
    event_id = await api.send()
    answer = await api.post(f"/v1/events/{event_id}/cancel")
    assert answer.status == 200
    assert answer.json["cancelled"] == [(await api.delivery_of(event_id))["delivery_id"]]
    assert (await api.delivery_of(event_id))["state"] == "cancelled"
    assert (await api.post(f"/v1/events/{event_id}/cancel")).status == 409
    await api.post(f"/v1/endpoints/{endpoint['endpoint_id']}/resume")
    await scene.nothing_more_arrives()


async def test_a_replay_is_a_new_event_with_the_same_content_to_one_endpoint(scene: Scene, api: Api) -> None:
    first = await api.endpoint(scene.receiver.url("/first"))
    second = await api.endpoint(scene.receiver.url("/second"), event_types=["none"])
    body = b'{"event_type": "order.paid", "payload": {"n":  1.50}, "metadata": {"by":  "me"}}'
    event_id = (await api.post("/v1/events", body, X_Correlation_Id="trace-1")).json["event_id"]
    await api.until_status(event_id, "delivered")
    answer = await api.post(f"/v1/events/{event_id}/replay", {"endpoint_id": second["endpoint_id"]})
    assert (answer.status, answer.json["deliveries"]) == (202, 1)
    await api.until_status(answer.json["event_id"], "delivered")
    assert [(request.path, request.body) for request in scene.receiver.requests] == [
        ("/first", b'{"n":  1.50}'),
        ("/second", b'{"n":  1.50}'),
    ]
    again = await api.get(f"/v1/events/{answer.json['event_id']}")
    assert b'"metadata":{"by":  "me"}' in again.body
    assert again.json["correlation_id"] == "trace-1"
    assert answer.json["event_id"] != event_id
    assert first["endpoint_id"] != second["endpoint_id"]


async def test_a_replay_to_an_endpoint_that_is_not_there_names_the_field(scene: Scene, api: Api) -> None:
    event_id = await api.send()
    gone = (await api.endpoint(scene.receiver.url()))["endpoint_id"]
    await api.delete(f"/v1/endpoints/{gone}")
    for wrong in (NOBODY, gone, "rubbish", None):
        answer = await api.post(f"/v1/events/{event_id}/replay", {"endpoint_id": wrong})
        assert (answer.status, answer.json["errors"][0]["field"]) == (422, "endpoint_id")


async def test_a_deleted_event_is_gone_with_its_payload_and_its_log_stays(scene: Scene, api: Api) -> None:
    scene.receiver.says(400)
    await api.endpoint(scene.receiver.url())
    event_id = await api.send(payload="c4n4ry")
    await api.until_status(event_id, "failed")
    delivery_id = (await api.delivery_of(event_id))["delivery_id"]
    assert (await api.delete(f"/v1/events/{event_id}")).status == 204
    for path in (f"/v1/events/{event_id}", f"/v1/events/{event_id}/status"):
        assert (await api.get(path)).status == 404
    assert (await api.delete(f"/v1/events/{event_id}")).status == 404
    assert await api.all("/v1/events", "events") == []
    assert await api.all("/v1/dead-letters", "dead_letters") == []
    assert len((await api.get(f"/v1/deliveries/{delivery_id}/attempts")).json["attempts"]) == 1


async def test_an_event_that_is_being_delivered_cannot_be_deleted(scene: Scene, api: Api) -> None:
    scene.receiver.hold.clear()
    await api.endpoint(scene.receiver.url())
    event_id = await api.send()
    await scene.until_received(1)
    answer = await api.delete(f"/v1/events/{event_id}")
    assert answer.status == 409
    scene.receiver.hold.set()
    await api.until_status(event_id, "delivered")


# -- R8.2: the status --------------------------------------------------------------------------------------


async def test_the_status_has_exactly_its_fields_with_the_times_that_the_worker_uses(scene: Scene, api: Api) -> None:
    scene.receiver.says(503)
    await api.endpoint(scene.receiver.url(), policy=[60, 300])
    event_id = await api.send(payload="c4n4ry")
    waiting = await api.until_delivery(event_id, attempts=1, state="pending")
    status = await api.status(event_id)
    assert status == {
        "event_id": event_id,
        "status": "queued",
        "retry_attempts": 0,
        "last_retry_at": None,
        "failed_at": None,
        "next_retry_at": waiting["next_retry_at"],
    }
    assert TIME.fullmatch(status["next_retry_at"])
    scene.leap(70)
    await api.until_delivery(event_id, attempts=2, state="pending")
    status = await api.status(event_id)
    assert (status["retry_attempts"], status["failed_at"]) == (1, None)
    assert TIME.fullmatch(status["last_retry_at"])


# -- R8.3: the inbox ---------------------------------------------------------------------------------------


async def test_the_inbox_holds_what_no_endpoint_takes_oldest_first_until_it_is_acknowledged(
    scene: Scene, api: Api
) -> None:
    await api.endpoint(scene.receiver.url(), event_types=["pushed"])
    await api.send("pushed")
    ids = [await api.send("polled", payload={"n": number}) for number in range(5)]
    pages = [page async for page in api.pages("/v1/inbox", "events", 2)]
    assert [len(page) for page in pages][:2] == [2, 2]
    events = [event for page in pages for event in page]
    assert [event["event_id"] for event in events] == ids
    assert [event["payload"] for event in events] == [{"n": number} for number in range(5)]
    acknowledged = await api.post(f"/v1/events/{ids[0]}/ack")
    assert (acknowledged.status, acknowledged.json) == (200, {"event_id": ids[0], "status": "delivered"})
    assert (await api.post(f"/v1/events/{ids[0]}/ack")).status == 200
    assert (await api.status(ids[0]))["status"] == "delivered"
    left = (await api.get("/v1/inbox")).json
    assert [event["event_id"] for event in left["events"]] == ids[1:]
    assert left["pagination"] == {
        "limit": 50,
        "cursor": None,
        "has_more": False,
        "total_count": 4,
        "total_is_floor": False,
    }


async def test_the_inbox_gives_failed_events_with_the_same_paging(scene: Scene, api: Api) -> None:
    scene.receiver.says(400)
    await api.endpoint(scene.receiver.url())
    ids = [await api.send(payload={"n": number}) for number in range(3)]
    for event_id in ids:
        await api.until_status(event_id, "failed")
    answer = await api.get("/v1/inbox?status=failed&limit=2")
    assert [event["event_id"] for event in answer.json["events"]] == ids[:2]
    assert answer.json["pagination"]["has_more"] is True
    assert answer.json["pagination"]["total_count"] == 3
    assert [event["payload"] for event in answer.json["events"]] == [{"n": 0}, {"n": 1}]
    rest = await api.get(f"/v1/inbox?status=failed&limit=2&cursor={answer.json['pagination']['cursor']}")
    assert [event["event_id"] for event in rest.json["events"]] == ids[2:]


@lasting
@pytest.mark.parametrize("status", ["queued", "delivered", "FAILED", ""])
async def test_the_inbox_has_no_other_status(lasting_api: Api, status: str) -> None:
    answer = await lasting_api.get(f"/v1/inbox?status={status}")
    assert (answer.status, answer.json["errors"]) == (
        422,
        [{"field": "status", "message": "must be one of received, failed"}],
    )


async def test_an_event_that_endpoints_take_cannot_be_acknowledged(scene: Scene, api: Api) -> None:
    endpoint = await api.endpoint(scene.receiver.url())
    await api.post(f"/v1/endpoints/{endpoint['endpoint_id']}/pause")
    event_id = await api.send()
    answer = await api.post(f"/v1/events/{event_id}/ack")
    assert (answer.status, answer.json["type"]) == (409, "urn:doorstep:problem:conflict")
    assert (await api.status(event_id))["status"] == "received"


async def test_the_acknowledgement_of_an_event_is_a_change_of_its_status_in_the_log(scene: Scene, api: Api) -> None:
    event_id = await api.send("polled")
    await api.post(f"/v1/events/{event_id}/ack")
    await until(lambda: bool(_moves(scene, event_id)), "a line in the log")
    assert _moves(scene, event_id) == [("received", "delivered")]


async def test_who_took_an_event_out_of_the_inbox_is_audited_once(api: Api) -> None:
    event_id = await api.send("polled")
    for _ in range(2):
        await api.post(f"/v1/events/{event_id}/ack")
    (line,) = await api.all("/v1/audit?action=event.acknowledge", "audit")
    assert (line["subjects"], line["result"], line["actor_id"]) == ([event_id], "delivered", api.key[:12])


async def test_retrying_what_no_endpoint_takes_is_refused_for_that_reason(api: Api) -> None:
    answer = await api.post(f"/v1/events/{await api.send('polled')}/retry")
    assert (answer.status, "no endpoint takes it" in answer.json["detail"]) == (409, True)


def _moves(scene: Scene, event_id: str) -> list[tuple[Any, Any]]:
    return [
        (line["old_status"], line["new_status"])
        for line in scene.log()
        if line["event"] == "status_transition" and line["event_id"] == event_id and line["old_status"]
    ]


async def _ids(api: Api, path: str) -> list[str]:
    return [event["event_id"] for event in await api.all(path, "events")]
