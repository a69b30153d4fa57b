"""R7 and R8.4 over HTTP: the retry queue, dead letters with their causes, actions on both, and the audit log."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any
from uuid import uuid4

import pytest

from tests.support.api import Api, lasting
from tests.support.loop_receiver import Answer
from tests.support.scene import Scene, until

WEEK_SECONDS = 7 * 86_400


# -- R7.1, R7.2: the retry queue ---------------------------------------------------------------------------


async def test_the_retry_queue_shows_what_failed_and_will_be_tried_again_the_next_first(scene: Scene, api: Api) -> None:
    scene.receiver.says(503)
    await api.endpoint(scene.receiver.url(), name="slow", policy=[900, 900], event_types=["slow.*"])
    await api.endpoint(scene.receiver.url(), name="soon", policy=[60, 60, 60], event_types=["soon.*"])
    slow, soon = await api.send("slow.one"), await api.send("soon.one")
    await _until_waiting(api, slow, soon)
    listed = (await api.get("/v1/retry-queue")).json
    assert [one["event_id"] for one in listed["deliveries"]] == [soon, slow]
    assert (listed["pagination"]["total_count"], listed["pagination"]["total_is_floor"]) == (2, False)
    first = listed["deliveries"][0]
    assert (first["event_type"], first["endpoint_name"], first["retry_count"]) == ("soon.one", "soon", "0 / 3")
    assert (first["error"], first["state"]) == ("SERVICE_UNAVAILABLE", "pending")
    assert "503" in first["error_reason"]
    assert first["next_retry_at"] is not None and first["first_failed_at"] is not None


async def test_the_retry_queue_is_filtered_by_status_type_endpoint_and_age(scene: Scene, api: Api) -> None:
    scene.receiver.says(503)
    one = await api.endpoint(scene.receiver.url(), policy=[3600], event_types=["one.*"])
    two = await api.endpoint(scene.receiver.url(), policy=[3600], event_types=["two.*"])
    early = await api.send("one.a")
    await _until_waiting(api, early)
    scene.leap(100)
    late = await api.send("two.b")
    await _until_waiting(api, late)
    assert await _queued(api, f"?endpoint_id={one['endpoint_id']}") == [early]
    assert await _queued(api, f"?endpoint_id={two['endpoint_id']}&event_type=one.*") == []
    assert await _queued(api, "?event_type=two.*") == [late]
    assert await _queued(api, "?older_than_seconds=50") == [early]
    assert await _queued(api, "?status=in_progress") == []
    assert sorted(await _queued(api, "?status=pending")) == sorted([early, late])


@lasting
@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("status=dead", "status"),
        ("endpoint_id=rubbish", "endpoint_id"),
        ("older_than_seconds=-1", "older_than_seconds"),
        ("older_than_seconds=nan", "older_than_seconds"),
        ("limit=201", "limit"),
        ("cursor=x", "cursor"),
        ("state=pending", "state"),
    ],
)
async def test_a_wrong_filter_of_the_retry_queue_names_the_parameter(lasting_api: Api, query: str, field: str) -> None:
    answer = await lasting_api.get(f"/v1/retry-queue?{query}")
    assert (answer.status, answer.json["errors"][0]["field"]) == (422, field)


async def test_retry_now_tries_at_once_and_on_failure_the_count_grows_and_the_time_is_new(
    scene: Scene, api: Api
) -> None:
    scene.receiver.says(503)
    await api.endpoint(scene.receiver.url(), policy={"delays": [3600, 3600], "jitter": 0})
    event_id = await api.send()
    waiting = await api.until_delivery(event_id, attempts=1, state="pending")
    answer = await api.post(f"/v1/retry-queue/{waiting['delivery_id']}/retry", {"reason": "try it"})
    assert answer.status == 202
    assert answer.json["delivery_id"] == waiting["delivery_id"]
    again = await api.until_delivery(event_id, attempts=2, state="pending")
    assert again["retry_attempts"] == 1
    assert again["next_retry_at"] > waiting["next_retry_at"]
    scene.receiver.says(200)
    await api.post(f"/v1/retry-queue/{waiting['delivery_id']}/retry")
    done = await api.until_delivery(event_id, state="delivered")
    assert done["remark"] == "Succeeded on retry attempt 2"
    assert await _queued(api) == []


async def test_skip_moves_a_waiting_delivery_to_the_dead_letters(scene: Scene, api: Api) -> None:
    scene.receiver.says(503)
    await api.endpoint(scene.receiver.url(), policy=[3600])
    event_id = await api.send()
    waiting = await api.until_delivery(event_id, attempts=1, state="pending")
    answer = await api.post(f"/v1/retry-queue/{waiting['delivery_id']}/skip", {"reason": "nobody needs it"})
    assert (answer.status, answer.json["state"]) == (200, "dead")
    assert await _queued(api) == []
    assert await _dead(api) == [event_id]
    (letter,) = await api.all("/v1/dead-letters", "dead_letters")
    assert (letter["error"], letter["error_reason"]) == (waiting["error_code"], waiting["remark"])
    (group,) = await api.all("/v1/dead-letters/groups", "groups")
    assert (group["cause"], group["error_code"]) == (letter["cause"], "SERVICE_UNAVAILABLE")
    again = await api.post(f"/v1/retry-queue/{waiting['delivery_id']}/skip")
    assert again.status == 409 and "is dead" in again.json["detail"]


# -- R7.4: dead letters ------------------------------------------------------------------------------------


async def test_dead_letters_are_listed_newest_first_with_what_people_want_to_know(scene: Scene, api: Api) -> None:
    scene.receiver.says(400)
    await api.endpoint(scene.receiver.url(), name="shop")
    ids = []
    for number in range(5):
        ids.append(await api.send(payload=f"c4n4ry {number}"))
        await api.until_status(ids[-1], "failed")
    pages = [page async for page in api.pages("/v1/dead-letters", "dead_letters", 2)]
    letters = [letter for page in pages for letter in page]
    assert [letter["event_id"] for letter in letters] == ids[::-1]
    assert "c4n4ry" not in json.dumps(letters)
    newest = letters[0]
    assert (newest["endpoint_name"], newest["event_type"], newest["error"]) == ("shop", "order.paid", "INVALID_FORMAT")
    assert (newest["state"], newest["retry_count"]) == ("dead", "0 / 7")
    assert newest["first_failed_at"] is not None
    assert len(newest["cause"]) == 16


async def test_dead_letters_read_as_their_causes(scene: Scene, api: Api) -> None:
    scene.receiver.answer = lambda request: Answer(400 if request.path == "/a" else 404)
    a = await api.endpoint(scene.receiver.url("/a"), name="a", event_types=["a"])
    b = await api.endpoint(scene.receiver.url("/b"), name="b", event_types=["b"])
    sent = [await api.send(event_type) for event_type in ("a", "a", "a", "b", "b")]
    for event_id in sent:
        await api.until_status(event_id, "failed")
    groups = {group["endpoint_name"]: group for group in await api.all("/v1/dead-letters/groups", "groups")}
    assert {name: (group["count"], group["error_code"]) for name, group in groups.items()} == {
        "a": (3, "INVALID_FORMAT"),
        "b": (2, "NOT_FOUND"),
    }
    assert groups["a"]["endpoint_id"] == a["endpoint_id"]
    assert groups["a"]["count_is_floor"] is False
    assert groups["a"]["first_died_at"] < groups["a"]["last_died_at"]
    assert sorted(await _dead(api, f"?cause={groups['b']['cause']}")) == sorted(sent[3:])
    assert sorted(await _dead(api, f"?endpoint_id={b['endpoint_id']}")) == sorted(sent[3:])
    assert len(await api.all(f"/v1/dead-letters/groups?cause={groups['a']['cause']}", "groups")) == 1


async def test_dead_letters_are_filtered_by_type_and_time_of_death(scene: Scene, api: Api) -> None:
    scene.receiver.says(400)
    await api.endpoint(scene.receiver.url())
    first = await api.send("one.a")
    await api.until_status(first, "failed")
    scene.leap(100)
    second = await api.send("two.b")
    await api.until_status(second, "failed")
    died = (await api.delivery_of(second))["settled_at"]
    assert await _dead(api, "?event_type=one.*") == [first]
    for begin, end in (("since", "until"), ("died_from", "died_before")):
        assert await _dead(api, f"?{begin}={died}") == [second]
        assert await _dead(api, f"?{end}={died}") == [first]


@lasting
@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("status=pending", "status"),
        ("cause=xyz", "cause"),
        ("cause=4BE1C0A97F3D2E65", "cause"),
        ("died_from=1", "died_from"),
    ],
)
async def test_a_wrong_filter_of_the_dead_letters_names_the_parameter(lasting_api: Api, query: str, field: str) -> None:
    for path in ("/v1/dead-letters", "/v1/dead-letters/groups"):
        answer = await lasting_api.get(f"{path}?{query}")
        assert (answer.status, answer.json["errors"][0]["field"]) == (422, field)


@pytest.mark.parametrize("deadline_seconds", [None, 240])
async def test_a_retried_dead_letter_starts_again_in_five_seconds_with_a_fresh_count(
    scene: Scene, api: Api, deadline_seconds: float | None
) -> None:
    scene.receiver.says(503)
    await api.endpoint(scene.receiver.url(), policy={"delays": [60], "deadline_seconds": deadline_seconds})
    event_id = await api.send()
    await api.until_delivery(event_id, attempts=1, state="pending")
    scene.leap(70)
    dead = await api.until_delivery(event_id, state="dead")
    scene.leap(300)  # past the first deadline
    answer = await api.post(f"/v1/dead-letters/{dead['delivery_id']}/retry")
    assert (answer.status, answer.json["state"], answer.json["retry_attempts"]) == (202, "pending", 0)
    await scene.nothing_more_arrives()
    scene.leap(5)
    again = await api.until_delivery(event_id, attempts=3, state="pending")
    assert again["retry_attempts"] == 0, "a new failure returns it to the retry queue, not straight to the dead letters"
    assert await _queued(api) == [event_id]


async def test_a_dead_letter_can_be_retried_with_another_payload_which_is_delivered_byte_for_byte(
    scene: Scene, api: Api
) -> None:
    scene.receiver.says(400, 200)
    await api.endpoint(scene.receiver.url())
    event_id = await api.send(payload={"total": None})
    dead = await api.until_delivery(event_id, state="dead")
    body = b'{"reason": "the total was missing", "payload": {"total":  49.90}}'
    answer = await api.post(f"/v1/dead-letters/{dead['delivery_id']}/retry", body)
    assert (answer.status, answer.json["edited"]) == (202, True)
    assert (await api.get(f"/v1/deliveries/{dead['delivery_id']}/payload")).body == b'{"total":  49.90}'
    scene.leap(5)
    await api.until_delivery(event_id, state="delivered")
    assert [request.body for request in scene.receiver.requests] == [b'{"total": null}', b'{"total":  49.90}']
    history = (await api.get(f"/v1/deliveries/{dead['delivery_id']}/history")).json["history"]
    assert any("edited" in line["note"] for line in history)
    assert (await api.get(f"/v1/events/{event_id}")).json["payload"] == {"total": None}


@lasting
@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"payload": {"a": }}', 400),
        (b'{"payload": %s1%s}' % (b"[" * 70, b"]" * 70), 422),
        (b'{"payload": "%s"}' % (b"x" * 300_000), 422),
        (b'{"payload": "%s"}' % (b"x" * 1_000_000), 413),
        (b'{"payload": 1, "colour": 2}', 422),
        (b'{"reason": "%s"}' % (b"x" * 501), 422),
        (b'{"reason": 1}', 422),
        (b'"retry"', 422),
        (b"\xff", 400),
    ],
)
async def test_an_edited_payload_is_checked_like_a_new_one(
    lasting_scene: Scene, lasting_api: Api, body: bytes, status: int
) -> None:
    lasting_scene.receiver.says(400)
    own_type = f"edited.{uuid4().hex}"
    await lasting_api.endpoint(lasting_scene.receiver.url(), event_types=[own_type])
    dead = await lasting_api.until_delivery(await lasting_api.send(own_type), state="dead")
    assert (await lasting_api.post(f"/v1/dead-letters/{dead['delivery_id']}/retry", body)).status == status


async def test_a_resolved_dead_letter_needs_no_delivery_and_its_event_counts_as_delivered(
    scene: Scene, api: Api
) -> None:
    scene.receiver.says(400)
    await api.endpoint(scene.receiver.url())
    event_id = await api.send()
    dead = await api.until_delivery(event_id, state="dead")
    answer = await api.post(f"/v1/dead-letters/{dead['delivery_id']}/resolve", {"reason": "done by hand"})
    assert (answer.status, answer.json["state"]) == (200, "resolved")
    assert (await api.status(event_id))["status"] == "delivered"
    assert await _dead(api) == []


async def test_a_deleted_dead_letter_leaves_every_list_and_its_log_stays(scene: Scene, api: Api) -> None:
    scene.receiver.says(400)
    await api.endpoint(scene.receiver.url())
    event_id = await api.send()
    dead = await api.until_delivery(event_id, state="dead")
    assert (await api.delete(f"/v1/dead-letters/{dead['delivery_id']}")).status == 204
    assert await _dead(api) == []
    assert (await api.delete(f"/v1/dead-letters/{dead['delivery_id']}")).status == 404
    assert len((await api.get(f"/v1/deliveries/{dead['delivery_id']}/attempts")).json["attempts"]) == 1


async def test_an_untouched_dead_letter_is_archived_after_a_week_and_hidden_unless_asked_for(
    scene: Scene, api: Api
) -> None:
    scene.receiver.says(400)
    await api.endpoint(scene.receiver.url())
    event_id = await api.send()
    await api.until_delivery(event_id, state="dead")
    scene.leap(WEEK_SECONDS + 1)
    assert await _dead(api) == []
    (letter,) = await api.all("/v1/dead-letters?status=archived", "dead_letters")
    assert (letter["event_id"], letter["state"]) == (event_id, "archived")


# -- R7.5: refusals ----------------------------------------------------------------------------------------


async def test_what_is_delivered_or_in_progress_cannot_be_retried_and_the_409_says_its_state(
    scene: Scene, api: Api
) -> None:
    await api.endpoint(scene.receiver.url())
    delivered = await api.until_delivery(await api.send(), state="delivered")
    scene.receiver.hold.clear()
    in_progress = await api.until_delivery(await api.send(), state="in_progress")
    for delivery, state in ((delivered, "delivered"), (in_progress, "in_progress")):
        for path in ("retry-queue", "dead-letters"):
            answer = await api.post(f"/v1/{path}/{delivery['delivery_id']}/retry")
            assert answer.status == 409
            assert f"is {state} and cannot be retried" in answer.json["detail"]
    scene.receiver.hold.set()


async def test_what_has_moved_on_to_another_list_is_not_acted_upon_in_this_one(scene: Scene, api: Api) -> None:
    scene.receiver.says(503)
    await api.endpoint(scene.receiver.url(), policy=[600])
    one = (await api.until_delivery(await api.send(), attempts=1, state="pending"))["delivery_id"]
    two = (await api.until_delivery(await api.send(), attempts=1, state="pending"))["delivery_id"]
    early = await api.post(f"/v1/dead-letters/{one}/retry")
    await api.post(f"/v1/retry-queue/{one}/skip")
    late = await api.post(f"/v1/retry-queue/{one}/retry")
    for answer, state in ((early, "pending"), (late, "dead")):
        assert answer.status == 409
        assert answer.json["detail"].endswith(f"is {state} by now and was not retried; check it and decide again")
    begun = await api.post("/v1/retry-queue/bulk-retry", {"delivery_ids": [one, two]})

    async def over() -> bool:
        bulk = (await api.get(f"/v1/bulk/{begun.json['bulk_id']}")).json
        return bool((bulk["taken"], bulk["refused"], bulk["state"]) == (1, 1, "finished"))

    await until(over, "one retried, one refused")
    assert (await api.get(f"/v1/deliveries/{one}")).json["state"] == "dead"


async def test_editing_the_payload_of_what_still_waits_is_refused_as_that_and_not_as_a_retry(
    scene: Scene, api: Api
) -> None:
    scene.receiver.says(503)
    await api.endpoint(scene.receiver.url(), policy=[600])
    waiting = await api.until_delivery(await api.send(), attempts=1, state="pending")
    answer = await api.post(f"/v1/dead-letters/{waiting['delivery_id']}/retry", {"payload": 2})
    assert answer.status == 409
    assert answer.json["detail"].endswith("is pending and cannot be retried with another payload")


# -- R1.4, R4.1: the log -----------------------------------------------------------------------------------


async def test_the_whole_life_of_a_delivery_can_be_read_back_in_order(scene: Scene, api: Api) -> None:
    scene.receiver.says(503, 200)
    await api.endpoint(scene.receiver.url(), policy=[10])
    event_id = await api.send()
    await api.until_delivery(event_id, attempts=1, state="pending")
    scene.leap(12)
    delivery = await api.until_delivery(event_id, state="delivered")
    answer = (await api.get(f"/v1/deliveries/{delivery['delivery_id']}/history")).json
    assert [(line["old_state"], line["new_state"]) for line in answer["history"]] == [
        (None, "pending"),
        ("pending", "in_progress"),
        ("in_progress", "pending"),
        ("pending", "in_progress"),
        ("in_progress", "delivered"),
    ]
    times = [line["at"] for line in answer["history"]]
    assert times == sorted(times)


# -- R7.6: the audit ---------------------------------------------------------------------------------------


async def test_every_act_is_in_the_audit_log_with_who_what_when_on_which_ids_with_what_result(
    scene: Scene, api: Api
) -> None:
    scene.receiver.says(400)
    endpoint = await api.endpoint(scene.receiver.url())
    endpoint_id = endpoint["endpoint_id"]
    dead = await api.until_delivery(await api.send(), state="dead")
    await api.post(f"/v1/endpoints/{endpoint_id}/pause", {"reason": "moving"})
    await api.patch(f"/v1/endpoints/{endpoint_id}", {"name": "new"})
    await api.post(f"/v1/endpoints/{endpoint_id}/rotate-secret")
    await api.post(f"/v1/endpoints/{endpoint_id}/resume")
    await api.post(f"/v1/endpoints/{endpoint_id}/test")
    await api.post(f"/v1/events/{dead['event_id']}/replay", {"endpoint_id": endpoint_id})
    await api.post(f"/v1/dead-letters/{dead['delivery_id']}/resolve", {"reason": "by hand"})
    await api.delete(f"/v1/events/{dead['event_id']}")
    key = (await api.post("/v1/keys", {"name": "a", "role": "viewer"})).json
    await api.delete(f"/v1/keys/{key['key_id']}")
    await api.delete(f"/v1/endpoints/{endpoint_id}")
    lines = await api.all("/v1/audit", "audit", 3)
    mine = [line for line in lines if line["actor_id"] == api.key[:12]]
    assert [line["action"] for line in reversed(mine)] == [
        *("endpoint.create", "endpoint.pause", "endpoint.change", "endpoint.rotate_secret", "endpoint.resume"),
        *("endpoint.test", "event.replay", "resolve", "event.delete", "key.create", "key.revoke", "endpoint.delete"),
    ]
    by_action = {line["action"]: line for line in mine}
    assert by_action["endpoint.pause"]["reason"] == "moving"
    assert by_action["endpoint.pause"]["subjects"] == [endpoint_id]
    assert by_action["endpoint.change"]["reason"] == "name"
    assert by_action["resolve"]["result"] == "1 done, 0 refused"
    assert await api.all("/v1/audit?action=key.create&actor=nobody", "audit") == []
    assert len(await api.all(f"/v1/audit?action=key.create&actor={api.key[:12]}", "audit")) == 1


async def test_an_actor_is_told_by_the_name_of_its_key_in_histories_bulk_operations_and_the_audit_log(
    scene: Scene, api: Api
) -> None:
    scene.receiver.answer = lambda _: Answer(400)
    await api.endpoint(scene.receiver.url())
    await api.until_delivery(await api.send("order.paid"), state="dead")
    made = (await api.post("/v1/keys", {"name": "Lena", "role": "operator"})).json
    lena = api.with_key(made["key"])
    (letter,) = await api.all("/v1/dead-letters", "dead_letters")
    path = f"/v1/dead-letters/{letter['delivery_id']}"
    assert (await lena.post(f"{path}/retry", {"payload": 2, "reason": "corrected"})).status == 202
    history = (await api.get(f"/v1/deliveries/{letter['delivery_id']}/history")).json["history"]
    assert "payload edited by Lena, retried: corrected" in [one["note"] for one in history]
    (entry,) = await api.all("/v1/audit?actor=Lena", "audit")
    assert (entry["actor"], entry["actor_id"], entry["action"]) == ("Lena", made["prefix"], "retry")
    assert sha256(b"2").hexdigest() in entry["result"]
    bulk = (await lena.post("/v1/dead-letters/bulk-retry", {"all": True})).json
    assert (bulk["actor"], bulk["actor_id"]) == ("Lena", made["prefix"])
    assert (await lena.post(f"/v1/bulk/{bulk['bulk_id']}/cancel")).status in (200, 409)
    assert {one["actor_id"] for one in await api.all("/v1/audit?actor=Lena", "audit", 1)} == {made["prefix"]}


async def test_the_audit_log_is_read_by_date(api: Api) -> None:
    for name in ("a", "b"):
        await api.post("/v1/keys", {"name": name, "role": "viewer"})
    newest, older, *_ = await api.all("/v1/audit?action=key.create", "audit")
    assert await api.all(f"/v1/audit?since={newest['at']}&action=key.create", "audit") == [newest]
    assert (await api.all(f"/v1/audit?until={newest['at']}&action=key.create", "audit"))[0] == older
    assert (await api.get("/v1/audit?since=yesterday")).status == 422


async def test_figures_of_now_are_told_by_the_stats(scene: Scene, api: Api) -> None:
    scene.receiver.answer = lambda request: Answer(400 if request.path == "/dead" else 503)
    await api.endpoint(scene.receiver.url("/dead"), event_types=["dead"])
    await api.endpoint(scene.receiver.url("/late"), event_types=["late"], policy=[3600])
    for event_type in ("dead", "dead", "late", "polled"):
        await api.send(event_type)

    async def settled() -> bool:
        return bool((await _stats(api))["deliveries"] == {"retrying": 1, "dead": 2, "archived": 0})

    await until(settled, "the figures")
    stats = await _stats(api)
    assert stats["events"] == {"inbox": 1, "failed": 2}
    assert (stats["floors"], stats["oldest_due_at"]) == ([], None)


async def _stats(api: Api) -> dict[str, Any]:
    return (await api.get("/v1/stats")).json


async def _until_waiting(api: Api, *event_ids: str) -> None:
    for event_id in event_ids:
        await api.until_delivery(event_id, attempts=1, state="pending")


async def _queued(api: Api, query: str = "") -> list[str]:
    return [one["event_id"] for one in await api.all(f"/v1/retry-queue{query}", "deliveries")]


async def _dead(api: Api, query: str = "") -> list[str]:
    return [one["event_id"] for one in await api.all(f"/v1/dead-letters{query}", "dead_letters")]
