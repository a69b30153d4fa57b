"""R7.3 and R8.4 over HTTP: bulk operations are previewed, started, monitored and controlled."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from tests.support.api import Api, lasting
from tests.support.loop_receiver import Answer
from tests.support.scene import Scene, until

STARTS = (
    "/v1/retry-queue/bulk-retry",
    "/v1/retry-queue/bulk-skip",
    "/v1/dead-letters/bulk-retry",
    "/v1/dead-letters/bulk-resolve",
    "/v1/dead-letters/bulk-delete",
)


async def test_a_bulk_retry_of_everything_that_matches_a_filter_tells_its_progress_to_the_end(
    scene: Scene, api: Api
) -> None:
    await _dead_letters(scene, api, good=3, bad=2)
    scene.receiver.answer = lambda request: Answer(200 if request.path == "/good" else 400)
    answer = await api.post("/v1/dead-letters/bulk-retry", {"filter": {"event_type": "*"}, "reason": "all is well"})
    assert answer.status == 202, answer.body
    assert (answer.json["kind"], answer.json["total"], answer.json["actor_id"]) == ("retry", 5, api.key[:12])
    done = await _until_finished(api, answer.json["bulk_id"])
    assert (done["succeeded"], done["failed"], done["in_flight"]) == (3, 2, 0)
    assert done["progress"] == "3/5 succeeded, 2 failed"
    failures = await api.all(f"/v1/bulk/{done['bulk_id']}/failures", "deliveries", 1)
    assert {one["event_type"] for one in failures} == {"bad"} and len(failures) == 2
    assert [one["bulk_id"] for one in await api.all("/v1/bulk", "bulk")] == [done["bulk_id"]]


async def test_a_bulk_retry_of_a_selection_touches_only_that(scene: Scene, api: Api) -> None:
    await _dead_letters(scene, api, good=3)
    scene.receiver.says(200)
    letters = await api.all("/v1/dead-letters", "dead_letters")
    chosen = [letter["delivery_id"] for letter in letters[:2]]
    answer = await api.post("/v1/dead-letters/bulk-retry", {"delivery_ids": chosen})
    await _until_finished(api, answer.json["bulk_id"])
    left = await api.all("/v1/dead-letters", "dead_letters")
    assert [letter["delivery_id"] for letter in left] == [letters[2]["delivery_id"]]


async def test_a_preview_counts_by_endpoint_and_does_nothing(scene: Scene, api: Api) -> None:
    await _dead_letters(scene, api, good=3, bad=2)
    answer = await api.post("/v1/dead-letters/bulk-retry", {"all": True, "preview": True})
    assert (answer.status, answer.json["count"], answer.json["count_is_floor"]) == (200, 5, False)
    assert {share["endpoint_name"]: share["count"] for share in answer.json["endpoints"]} == {"good": 3, "bad": 2}
    assert await api.all("/v1/bulk", "bulk") == []
    assert len(await api.all("/v1/dead-letters", "dead_letters")) == 5


async def test_with_canaries_a_cause_is_retried_only_if_its_first_letter_is_delivered(scene: Scene, api: Api) -> None:
    await _dead_letters(scene, api, good=4, bad=4)
    before = len(scene.receiver.requests)
    scene.receiver.answer = lambda request: Answer(200 if request.path == "/good" else 400)
    answer = await api.post("/v1/dead-letters/bulk-retry", {"all": True, "canary": True})
    done = await _until_finished(api, answer.json["bulk_id"])
    paths = [request.path for request in scene.receiver.requests[before:]]
    assert (paths.count("/good"), paths.count("/bad")) == (4, 1)
    assert sorted(canary["succeeded"] for canary in done["canaries"]) == [False, True]
    assert done["note"] != ""


@pytest.mark.parametrize(("act", "state"), [("bulk-resolve", "resolved"), ("bulk-delete", None)])
async def test_dead_letters_are_resolved_and_deleted_in_bulk(
    scene: Scene, api: Api, act: str, state: str | None
) -> None:
    await _dead_letters(scene, api, good=3)
    letters = await api.all("/v1/dead-letters", "dead_letters")
    answer = await api.post(f"/v1/dead-letters/{act}", {"all": True})
    assert (await _until_finished(api, answer.json["bulk_id"]))["taken"] == 3
    assert await api.all("/v1/dead-letters", "dead_letters") == []
    if state is not None:
        assert (await api.get(f"/v1/deliveries/{letters[0]['delivery_id']}")).json["state"] == state


async def test_the_retry_queue_is_retried_and_skipped_in_bulk(scene: Scene, api: Api) -> None:
    scene.receiver.says(503)
    await api.endpoint(scene.receiver.url(), policy=[3600], event_types=["one", "two"])
    for event_type in ("one", "one", "two"):
        await api.until_delivery(await api.send(event_type), attempts=1, state="pending")
    scene.receiver.says(200)
    answer = await api.post("/v1/retry-queue/bulk-skip", {"filter": {"event_type": "two"}})
    await _until_finished(api, answer.json["bulk_id"])
    assert [letter["event_type"] for letter in await api.all("/v1/dead-letters", "dead_letters")] == ["two"]
    answer = await api.post("/v1/retry-queue/bulk-retry", {"all": True})
    assert (await _until_finished(api, answer.json["bulk_id"]))["progress"] == "2/2 succeeded, 0 failed"
    assert await api.all("/v1/retry-queue", "deliveries") == []


async def test_a_bulk_operation_is_paused_resumed_and_cancelled(scene: Scene, api: Api) -> None:
    await _dead_letters(scene, api, good=6)
    scene.receiver.says(200)
    body = {"all": True, "rate_per_second": 0.01}
    bulk_id = (await api.post("/v1/dead-letters/bulk-retry", body)).json["bulk_id"]
    paused = await api.post(f"/v1/bulk/{bulk_id}/pause")
    assert (paused.status, paused.json["state"]) == (200, "paused")
    resumed = (await api.post(f"/v1/bulk/{bulk_id}/resume")).json
    assert (resumed["state"], resumed["note"].partition(" by ")[0]) == ("running", "resumed")
    cancelled = (await api.post(f"/v1/bulk/{bulk_id}/cancel")).json
    assert cancelled["state"] == "cancelled" and cancelled["taken"] < 6
    for act in ("pause", "resume"):
        refused = await api.post(f"/v1/bulk/{bulk_id}/{act}")
        assert (refused.status, refused.json["type"]) == (409, "urn:doorstep:problem:conflict")
    actions = {line["action"] for line in await api.all("/v1/audit", "audit")}
    assert {"bulk.retry.start", "bulk.retry.pause", "bulk.retry.resume", "bulk.retry.cancel"} <= actions


@lasting
@pytest.mark.parametrize("path", STARTS)
@pytest.mark.parametrize("body", [{}, {"filter": {}}, {"reason": "all of them"}, {"delivery_ids": [], "all": True}])
async def test_emptiness_is_refused_with_the_explicit_form(lasting_api: Api, path: str, body: dict[str, Any]) -> None:
    answer = await lasting_api.post(path, body)
    assert answer.status == 422
    if "delivery_ids" not in body:
        assert '"all": true' in answer.json["detail"]


@lasting
@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"all": False}, "all"),
        ({"all": True, "filter": {"event_type": "a"}}, "body"),
        ({"delivery_ids": ["rubbish"]}, "delivery_ids[0]"),
        ({"delivery_ids": ["0198a4f2-6c1e-7b52-8a0d-5f1b7b6c9d02"] * 1_001}, "delivery_ids"),
        ({"filter": {"colour": "red"}}, "filter.colour"),
        ({"all": True, "rate_per_second": 0}, "rate_per_second"),
        ({"all": True, "reason": "x" * 501}, "reason"),
        ({"all": True, "canary": "yes"}, "canary"),
    ],
)
async def test_a_bulk_operation_that_cannot_work_names_the_field(
    lasting_api: Api, body: dict[str, Any], field: str
) -> None:
    answer = await lasting_api.post("/v1/dead-letters/bulk-retry", body)
    assert (answer.status, answer.json["errors"][0]["field"]) == (422, field), answer.body


@lasting
@pytest.mark.parametrize("path", STARTS[:2])
@pytest.mark.parametrize("preview", [True, False])
async def test_what_is_in_progress_cannot_be_acted_upon_and_stands_for_nothing_else(
    lasting_api: Api, path: str, preview: bool
) -> None:
    answer = await lasting_api.post(path, {"filter": {"status": "in_progress"}, "preview": preview})
    assert (answer.status, answer.json["errors"][0]["field"]) == (422, "status"), answer.body
    assert "in progress cannot be acted upon" in answer.json["detail"]


async def test_events_of_a_time_range_are_replayed_to_an_endpoint_oldest_first(scene: Scene, api: Api) -> None:
    sent = [await api.send("old.one", payload=number) for number in range(4)]
    times = [(await api.get(f"/v1/events/{event_id}")).json["created_at"] for event_id in sent]
    endpoint = await api.endpoint(scene.receiver.url(), concurrency_max=1)
    path = f"/v1/endpoints/{endpoint['endpoint_id']}/replay"
    older_names = {"created_from": times[1], "created_before": times[3], "event_type": "old.*"}
    assert (await api.post(path, older_names | {"preview": True})).json["count"] == 2
    chosen = {"since": times[1], "until": times[3], "event_type": "old.*"}
    preview = await api.post(path, chosen | {"preview": True})
    assert (preview.status, preview.json["count"]) == (200, 2)
    assert [share["endpoint_name"] for share in preview.json["endpoints"]] == [endpoint["name"]]
    assert (await api.post(f"/v1/endpoints/{uuid4()}/replay", chosen | {"preview": True})).status == 404
    assert scene.receiver.requests == []
    answer = await api.post(path, chosen)
    assert (answer.status, answer.json["kind"], answer.json["endpoint_id"]) == (202, "replay", endpoint["endpoint_id"])
    await _until_finished(api, answer.json["bulk_id"])
    await scene.until_received(2)
    assert [request.body for request in scene.receiver.requests] == [b"1", b"2"]
    for field, wrong in (
        ("created_before", {"created_from": times[3], "created_before": times[1]}),
        ("until", {"since": times[3], "until": times[1]}),
        ("until", {"since": times[1]}),
        ("since", {"until": times[1]}),
        ("created_from", chosen | {"created_from": times[1]}),
    ):
        refused = await api.post(path, wrong)
        assert (refused.status, refused.json["errors"][0]["field"]) == (422, field), wrong


async def _dead_letters(scene: Scene, api: Api, **counts: int) -> None:
    """Create endpoints with these names, and this many dead letters for each."""
    scene.receiver.says(400)
    for name, count in counts.items():
        await api.endpoint(scene.receiver.url(f"/{name}"), name=name, event_types=[name])
        for _ in range(count):
            await api.until_status(await api.send(name), "failed")


async def _until_finished(api: Api, bulk_id: str) -> dict[str, Any]:
    async def finished() -> bool:
        return bool((await api.get(f"/v1/bulk/{bulk_id}")).json["state"] == "finished")

    await until(finished, "the end of a bulk operation")
    return (await api.get(f"/v1/bulk/{bulk_id}")).json
