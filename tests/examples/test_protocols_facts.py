"""What the protocols profile was asked for, asserted over HTTP on its running server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from typing import Any
from uuid import uuid4

import pytest

from examples.counterpart import Answer, running
from examples.protocols.extraction import Extraction
from examples.protocols.story import Story
from examples.theatre import Theatre, staged
from tests.examples.conftest import served as on_a_port
from tests.examples.served import Served, fact, profile_served
from tests.support import http_calls
from tests.support.program import wait_for
from tests.support.stores import EITHER_STORE

DAY = 86_400
STATUSES = [
    "uploaded",
    "extracting",
    "extraction_failed",
    "grounding",
    "grounding_failed",
    "pending_review",
    "complete",
    "dead_letter",
    "archived",
]
Json = dict[str, Any]


@pytest.fixture(scope="module")
def running_services() -> Iterator[Extraction]:
    with running(Extraction) as it:
        yield it


@pytest.fixture
def services(running_services: Extraction) -> Iterator[Extraction]:
    """The services of the server. They work again after each test."""
    yield running_services
    running_services.answers.clear()


@pytest.fixture(scope="module", params=EITHER_STORE)
def protocols(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, running_services: Extraction
) -> Iterator[Served]:
    """The profile with quick retries."""
    server = request.getfixturevalue("postgres_server") if request.param == "postgres" else None
    given = {"SERVICES_URL": running_services.url, "RETRY_DELAYS": "0.2,0.2"}
    with profile_served("protocols", request.param, tmp_path_factory.mktemp("protocols"), server, **given) as served:
        yield served


def new_id() -> str:
    return f"P-{uuid4().hex[:12]}"


def upload(served: Served, text: str = "Open the valve, as in [pump].") -> str:
    protocol_id = new_id()
    uploaded = served.program.post("/protocols", {"protocol_id": protocol_id, "text": text})
    assert uploaded.status == 202, uploaded.body
    assert uploaded.json == {"protocol_id": protocol_id, "status": "uploaded"}
    return protocol_id


def read(served: Served, protocol_id: str) -> Json:
    """A protocol; empty until its event has created it."""
    answer = served.program.get(f"/protocols/{protocol_id}")
    return dict(answer.json) if answer.status == 200 else {}


def ended(served: Served, protocol_id: str, status: str) -> Json:
    """The protocol, once it has this status."""
    wait_for(lambda: read(served, protocol_id).get("status") == status, lambda: str(read(served, protocol_id)))
    return read(served, protocol_id)


def dead(served: Served, services: Extraction, path: str = "/extract") -> str:
    """A protocol whose three attempts have failed."""
    services.answers[path] = Answer(503)
    protocol_id = upload(served)
    ended(served, protocol_id, "dead_letter")
    return protocol_id


def history(served: Served, protocol_id: str) -> list[Json]:
    return list(served.program.get(f"/protocols/{protocol_id}/history").json["history"])


def statuses(served: Served, protocol_id: str) -> list[str]:
    return [one["new_status"] for one in history(served, protocol_id)]


def listed(served: Served, path: str) -> set[str]:
    return {one["protocol_id"] for one in served.program.get(path).json["protocols"]}


# -- statuses ------------------------------------------------------------------------------------------------------------


@fact("statuses: uploaded, extracting, grounding, pending_review, complete")
def test_a_good_document_passes_its_stages(protocols: Served, services: Extraction) -> None:
    protocol_id = upload(protocols)
    pending = ended(protocols, protocol_id, "pending_review")
    assert (pending["data"], pending["error_reason"], pending["metadata"]) == (
        {"words": 6, "cites": ["pump"]},
        None,
        {},
    )
    assert protocols.program.post(f"/protocols/{protocol_id}/approve").json["status"] == "complete"
    assert statuses(protocols, protocol_id) == ["uploaded", "extracting", "grounding", "pending_review", "complete"]


@fact(
    "statuses: extraction_failed, grounding_failed, dead_letter",
    "3 failures make a dead_letter",
    "each status is one of the nine",
)
@pytest.mark.parametrize(
    ("path", "failed", "before"),
    [("/extract", "extraction_failed", []), ("/sources/pump", "grounding_failed", ["extracting"])],
)
def test_three_failures_make_a_dead_letter(
    protocols: Served, services: Extraction, path: str, failed: str, before: list[str]
) -> None:
    protocol_id = dead(protocols, services, path)
    stage = {"extraction_failed": "extracting", "grounding_failed": "grounding"}[failed]
    assert statuses(protocols, protocol_id) == ["uploaded", *before, *[stage, failed] * 3, "dead_letter"]
    (pipeline,) = protocols.program.get("/v1/pipelines").json["pipelines"]
    assert sorted(pipeline["statuses"]) == sorted(STATUSES)


@fact(
    "error_reason is a sentence for people",
    "metadata.error has category pipeline_failed, reason, retry_count and more",
)
def test_a_failed_document_says_why(protocols: Served, services: Extraction) -> None:
    seen = read(protocols, dead(protocols, services))
    assert seen["error_reason"] == "The extraction service answered 503."
    error = seen["metadata"]["error"]
    asked = {"category": "pipeline_failed", "reason": "The extraction service answered 503.", "retry_count": 2}
    assert error.items() >= asked.items()
    assert (error["kind"], error["code"], error["attempt_count"]) == ("transient", "SERVICE_UNAVAILABLE", 3)


@fact("between tries there is a pause: a one-second outage ends no document")
def test_a_second_without_the_service_ends_no_document(
    tmp_path_factory: pytest.TempPathFactory, services: Extraction
) -> None:
    """With the pauses that the profile has by default."""
    given = {"SERVICES_URL": services.url}
    with profile_served("protocols", "sqlite", tmp_path_factory.mktemp("pauses"), None, **given) as served:
        services.answers["/extract"] = Answer(503)
        protocol_id = upload(served)
        ended(served, protocol_id, "extraction_failed")
        services.answers.clear()
        ended(served, protocol_id, "pending_review")
        begun = statuses(served, protocol_id)
        assert begun[:4] == ["uploaded", "extracting", "extraction_failed", "extracting"]
        (line,) = served.facts("retry_scheduled")
        assert line["duration_seconds"] < 5


# -- retry ---------------------------------------------------------------------------------------------------------------


@fact(
    "a retry from dead_letter is answered with retry_queued and the protocol_id",
    "its status is uploaded, its error is cleared",
    "there is a new event in the outbox",
)
def test_a_dead_letter_is_retried(protocols: Served, services: Extraction) -> None:
    protocol_id = dead(protocols, services)
    old_event = history(protocols, protocol_id)[0]["event_id"]
    services.answers.clear()
    retried = protocols.program.post(f"/protocols/{protocol_id}/retry", {"reason": "it is repaired"})
    assert (retried.status, retried.json) == (200, {"status": "retry_queued", "protocol_id": protocol_id})
    again = ended(protocols, protocol_id, "pending_review")
    assert (again["error_reason"], again["metadata"]) == (None, {})
    (_, new) = [one for one in history(protocols, protocol_id) if one["new_status"] == "uploaded"]
    assert new["event_id"] not in (None, old_event)
    assert new["reason"].endswith(": it is repaired")
    assert protocols.program.get(f"/v1/events/{new['event_id']}/status").json["status"] == "delivered"


@fact("a retry from any other status is a 400", "a retry of an unknown protocol is a 404")
def test_only_what_has_failed_can_be_retried(protocols: Served, services: Extraction) -> None:
    protocol_id = upload(protocols)
    for status in ("pending_review", "complete"):
        ended(protocols, protocol_id, status)
        refused = protocols.program.post(f"/protocols/{protocol_id}/retry")
        assert refused.status == 400
        assert refused.json["detail"] == (
            f"protocol {protocol_id} is {status} and cannot be retried;"
            " only extraction_failed, grounding_failed, dead_letter can"
        )
        if status == "pending_review":
            assert protocols.program.post(f"/protocols/{protocol_id}/approve").status == 200
    assert protocols.program.post(f"/protocols/{new_id()}/retry").status == 404
    dead_id = dead(protocols, services)
    assert protocols.program.post(f"/protocols/{dead_id}/retry", key=protocols.key("viewer")).status == 403


# -- archive, on a simulated clock ---------------------------------------------------------------------------------------


@pytest.fixture
def story(services: Extraction) -> Story:
    return Story(services)


@pytest.fixture
async def stage(database_url: str, story: Story) -> AsyncIterator[Theatre]:
    async with staged(database_url, say=lambda _: None, served=on_a_port, create=story.create) as it:
        yield it


async def call(stage: Theatre, method: str, path: str, body: Any = None) -> http_calls.Answer:
    headers = {"X-API-Key": stage.doorstep.generated_admin_key or "", "Content-Type": "application/json"}
    return await asyncio.to_thread(http_calls.call, stage.url, method, path, body, headers)


async def on_stage(stage: Theatre, services: Extraction, path: str, pass_seconds: float) -> Json:
    services.answers[path] = Answer(503)
    uploaded = await call(stage, "POST", "/protocols", {"protocol_id": "p1", "text": "As in [pump]."})
    assert uploaded.status == 202, uploaded.body
    await stage.pass_time(pass_seconds)
    return dict((await call(stage, "GET", "/protocols/p1")).json)


@fact("a retry is possible from extraction_failed and grounding_failed")
@pytest.mark.parametrize(("path", "failed"), [("/extract", "extraction_failed"), ("/sources/pump", "grounding_failed")])
async def test_a_failed_document_is_retried_before_its_next_try(
    stage: Theatre, services: Extraction, path: str, failed: str
) -> None:
    """On a simulated clock."""
    assert (await on_stage(stage, services, path, 1))["status"] == failed
    services.answers.clear()
    retried = await call(stage, "POST", "/protocols/p1/retry")
    assert (retried.status, retried.json) == (200, {"status": "retry_queued", "protocol_id": "p1"})
    seen = (await call(stage, "GET", "/protocols/p1")).json
    assert (seen["status"], seen["error_reason"], seen["metadata"]) == ("uploaded", None, {})
    await stage.pass_time()
    assert (await call(stage, "GET", "/protocols/p1")).json["status"] == "pending_review"


@fact("the pauses between tries are 5 and 30 s")
async def test_the_tries_follow_the_schedule(stage: Theatre, services: Extraction) -> None:
    """On a simulated clock."""
    await on_stage(stage, services, "/extract", 3_600)
    (letter,) = await stage.api.dead_letters.page()
    started = [one.started_at for one in await stage.api.deliveries.attempts(letter.delivery_id)]
    assert [(later - sooner).total_seconds() for sooner, later in pairwise(started)] == [5, 30]


@fact(
    "a dead letter untouched for 7 days reads as archived on access",
    "GET /protocols hides archived protocols, without and with a slash",
    "GET /protocols?status=archived shows them",
    "an archived protocol cannot be retried: 400",
)
async def test_an_untouched_dead_letter_is_archived(stage: Theatre, services: Extraction) -> None:
    """On a simulated clock that no worker follows: reading is enough."""
    assert (await on_stage(stage, services, "/extract", 35))["status"] == "dead_letter"
    lists = ("/protocols", "/protocols/", "/protocols?status=archived", "/protocols/?status=archived")
    stage.clock.advance(7 * DAY - 60)
    assert (await call(stage, "GET", "/protocols/p1")).json["status"] == "dead_letter"
    assert [await shown_in(stage, path) for path in lists] == [["p1"], ["p1"], [], []]
    stage.clock.advance(61)
    assert (await call(stage, "GET", "/protocols/p1")).json["status"] == "archived"
    assert [await shown_in(stage, path) for path in lists] == [[], [], ["p1"], ["p1"]]
    refused = await call(stage, "POST", "/protocols/p1/retry")
    assert (refused.status, "is archived and cannot be retried" in refused.json["detail"]) == (400, True)


async def shown_in(stage: Theatre, path: str) -> list[str]:
    answer = await call(stage, "GET", path)
    assert answer.status == 200, answer.body
    return [one["protocol_id"] for one in answer.json["protocols"]]


# -- outbox --------------------------------------------------------------------------------------------------------------


def rows(served: Served, protocol_id: str) -> list[str]:
    found = served.rows(f"SELECT text FROM protocol_documents WHERE protocol_id = '{protocol_id}'")
    return [one["text"] for one in found]


def arrivals(served: Served, protocol_id: str) -> int:
    """How many uploads of a protocol were sent."""
    query = f"/v1/events?event_type=protocol.uploaded&payload[entity_id]={protocol_id}"
    answer = served.program.get(query)
    assert answer.status == 200, answer.body
    return len(answer.json["events"])


@fact("the event is written in the author's own transaction with the author's own row")
def test_the_row_and_the_event_are_written_together(protocols: Served, services: Extraction) -> None:
    protocol_id = upload(protocols, "Close the valve.")
    assert rows(protocols, protocol_id) == ["Close the valve."]
    ended(protocols, protocol_id, "pending_review")
    assert arrivals(protocols, protocol_id) == 1
    again = protocols.program.post("/protocols", {"protocol_id": protocol_id, "text": "Another text."})
    assert (again.status, again.json["detail"]) == (409, f"protocol {protocol_id} already exists")
    assert rows(protocols, protocol_id) == ["Close the valve."]
    assert arrivals(protocols, protocol_id) == 1, "without its row, there is no event"
    refused = protocols.program.post("/protocols", {"protocol_id": "no valid id", "text": "A text."})
    assert (refused.status, refused.json["errors"][0]["field"]) == (422, "protocol_id")
    assert rows(protocols, "no valid id") == [], "without its event, there is no row"


def test_a_document_that_one_store_cannot_hold_is_refused_by_both(protocols: Served) -> None:
    protocol_id = upload(protocols, "Close the valve.")
    for method, path in (("POST", "/protocols"), ("PUT", f"/protocols/{protocol_id}")):
        refused = protocols.program.request(method, path, {"text": "a\0b"})
        assert (refused.status, refused.json["errors"][0]["field"]) == (422, "text")


def test_a_deleted_protocol_leaves_no_document(protocols: Served, services: Extraction) -> None:
    protocol_id = upload(protocols, "Close the valve.")
    ended(protocols, protocol_id, "pending_review")
    assert protocols.program.request("DELETE", f"/protocols/{protocol_id}").status == 204
    assert rows(protocols, protocol_id) == []
    assert protocols.program.request("DELETE", f"/protocols/{protocol_id}").status == 404
    again = protocols.program.post("/protocols", {"protocol_id": protocol_id, "text": "Open it."})
    assert again.status == 202


@fact("a replaced document is used by the retry")
def test_a_replaced_document_is_used_by_the_retry(protocols: Served, services: Extraction) -> None:
    protocol_id = upload(protocols, "\x89PNG")
    assert ended(protocols, protocol_id, "dead_letter")["error_reason"] == "The document is a picture, not a text."
    replaced = protocols.program.request("PUT", f"/protocols/{protocol_id}", {"text": "Close it."})
    assert replaced.status == 204, replaced.body
    assert protocols.program.request("PUT", f"/protocols/{new_id()}", {"text": "Close it."}).status == 404
    assert protocols.program.post(f"/protocols/{protocol_id}/retry").status == 200
    assert ended(protocols, protocol_id, "pending_review")["data"] == {"words": 2, "cites": []}


# -- gate ----------------------------------------------------------------------------------------------------------------


@fact("nothing passes the gate without a person")
async def test_a_document_waits_at_the_gate(stage: Theatre, services: Extraction) -> None:
    """On a simulated clock."""
    assert (await on_stage(stage, services, "/sources/other", 30 * DAY))["status"] == "pending_review"


@fact("a person approves or rejects at the gate, once, and is named")
def test_a_person_decides_at_the_gate(protocols: Served, services: Extraction) -> None:
    good, bad = upload(protocols), upload(protocols)
    for protocol_id in (good, bad):
        ended(protocols, protocol_id, "pending_review")
    mary = protocols.key("operator")
    assert protocols.program.post(f"/protocols/{good}/approve", key=protocols.key("viewer")).status == 403
    assert protocols.program.post(f"/protocols/{good}/approve", key=mary).json["status"] == "complete"
    rejected = protocols.program.post(f"/protocols/{bad}/reject", {"reason": "wrong pump"}, key=mary)
    assert rejected.json["status"] == "dead_letter"
    assert rejected.json["error_reason"] == "rejected by operator: wrong pump"
    assert protocols.program.post(f"/protocols/{good}/reject", key=mary).status == 409
    entries = protocols.program.get("/v1/audit?action=entity.approve").json["audit"]
    assert [one["actor"] for one in entries if good in one["subjects"]] == ["operator"]


@fact("keys of other organizations have no protocols")
def test_another_organization_has_no_protocols(protocols: Served, services: Extraction) -> None:
    protocol_id = upload(protocols)
    ended(protocols, protocol_id, "pending_review")
    other = protocols.program.post("/v1/orgs", {"name": f"other-{new_id()}"})
    assert other.status == 201, other.body
    key = other.json["admin_key"]["key"]
    for method, path, body in (
        ("GET", "/protocols", None),
        ("GET", f"/protocols/{protocol_id}", None),
        ("POST", f"/protocols/{protocol_id}/approve", None),
        ("POST", f"/protocols/{protocol_id}/retry", None),
        ("POST", "/protocols", {"text": "A text."}),
        ("PUT", f"/protocols/{protocol_id}", {"text": "A text."}),
    ):
        assert protocols.program.request(method, path, body, key=key).status == 404, (method, path)
    assert protocols.program.get("/protocols", key="no-key").status == 401
