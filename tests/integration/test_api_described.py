"""The API's descriptions of itself: the OpenAPI document, the page at /docs, and the metrics."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest
from jsonschema import Draft202012Validator

from doorstep import Doorstep
from doorstep.api.application import ROUTES, create_application
from doorstep.model.org import ALLOWED
from tests.integration.test_api import create_endpoint, new_type, wait_for_status
from tests.support.matrix import each_case
from tests.support.program import Program, serving, wait_for
from tests.support.receiver import Receiver

OPEN = {"GET /healthz", "GET /readyz", "GET /metrics"}


@pytest.fixture(scope="module")
def document(served: Program) -> dict[str, Any]:
    found: dict[str, Any] = served.get("/openapi.json", key=None).json
    return found


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


async def test_the_document_is_encoded_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Encoding takes 10 ms of CPU, and needs no key."""
    encoded: list[object] = []
    encode = json.dumps
    monkeypatch.setattr(json, "dumps", lambda value, **options: encoded.append(value) or encode(value, **options))
    async with Doorstep("memory://") as doorstep:
        transport = httpx2.ASGITransport(create_application(doorstep))
        async with httpx2.AsyncClient(transport=transport, base_url="http://h") as client:
            answers = {(await client.get("/openapi.json")).content for _ in range(5)}
    assert len(answers) == 1
    assert len([one for one in encoded if isinstance(one, dict) and "openapi" in one]) == 1


def test_the_document_describes_exactly_the_routes_of_the_table(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    assert {line for line, _ in operations(document)} == set(ROUTES) | OPEN


def test_every_operation_has_a_name_of_its_own_and_a_sentence(document: dict[str, Any]) -> None:
    names = [operation["operationId"] for _, operation in operations(document)]
    assert len(set(names)) == len(names)
    assert [line for line, operation in operations(document) if not operation.get("description")] == []


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    text = json.dumps(document)
    named = set(re.findall(r'"#/components/schemas/([^"]+)"', text))
    assert named <= set(document["components"]["schemas"])


def test_every_request_and_answer_has_an_example_that_fits_its_schema(document: dict[str, Any]) -> None:
    shown = 0
    for line, operation in operations(document):
        for part in (operation.get("requestBody", {}), *operation["responses"].values()):
            for media in part.get("content", {}).values():
                whole = {"components": document["components"], **media["schema"]}
                problems = [error.message for error in Draft202012Validator(whole).iter_errors(media["example"])]
                assert problems == [], (line, media["example"])
                shown += 1
    assert shown > 300


@each_case("line", list(ROUTES))
def test_an_operation_lists_the_errors_that_it_can_give_and_no_others(document: dict[str, Any], line: str) -> None:
    operation = dict(operations(document))[line]
    errors = {int(status) for status in operation["responses"]} - {200, 201, 202, 204, 207}
    expected = {401, 422, 429, 503}
    expected |= {400, 413} if "requestBody" in operation else set()
    expected |= {404} if "{" in line or ROUTES[line].not_found else set()
    expected |= {409} if ROUTES[line].conflict else set()
    expected |= {400} if line.endswith("{entity_id}/retry") else set()
    everyone = all(ROUTES[line].permission in allowed for allowed in ALLOWED.values())
    expected |= set() if everyone and not ROUTES[line].default_org else {403}
    assert errors == expected
    for status in ("429", "503"):
        assert "Retry-After" in operation["responses"][status]["headers"]


def test_the_page_shows_every_route_and_loads_nothing_from_outside(served: Program) -> None:
    answer = served.get("/docs", key=None)
    page = answer.body.decode()
    assert answer.headers["content-type"].startswith("text/html")
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'") and "unsafe" not in policy
    assert re.findall(r'(?:src|href)=["\']?(?:https?:)?//', page) == []
    assert "<script" not in page and "style=" not in page
    for line in ROUTES:
        method, path = line.split(" ")
        assert f'<b class="{method.lower()}">{method}</b> <code>{path}</code>' in page
    assert served.get("/docs/style.css", key=None).headers["content-type"].startswith("text/css")


def test_metrics_count_what_happened(served: Program, receiver: Receiver) -> None:
    before = metrics(served)
    event_type = new_type()
    create_endpoint(served, receiver.url, event_type)
    good = served.post("/v1/events", {"event_type": event_type, "payload": 1}).json["event_id"]
    wait_for_status(served, good, "delivered")
    receiver.status = 400
    bad = served.post("/v1/events", {"event_type": event_type, "payload": 1}).json["event_id"]
    wait_for_status(served, bad, "failed")
    wait_for(lambda: metrics(served)["doorstep_events_failed_total"] > before["doorstep_events_failed_total"])
    after = metrics(served)
    grown = {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)}
    assert grown["doorstep_events_created_total"] == 2
    assert grown["doorstep_events_delivered_total"] == 1
    assert grown["doorstep_events_failed_total"] == 1
    assert grown['doorstep_attempts_total{outcome="succeeded"}'] == 1
    assert grown['doorstep_attempts_total{outcome="dead"}'] == 1


def test_metrics_tell_how_long_the_oldest_delivery_has_been_due(served: Program) -> None:
    assert metrics(served)["doorstep_oldest_due_seconds"] >= 0
    assert "doorstep_waiting_endpoints" in metrics(served)


def test_a_key_that_asks_too_often_is_told_when_to_come_back_and_others_are_not(tmp_path: Path) -> None:
    with serving(tmp_path, environment={"DOORSTEP_REQUESTS_PER_SECOND": "5"}) as program:
        other = program.post("/v1/keys", {"name": "other", "role": "viewer"}).json["key"]
        with ThreadPoolExecutor(10) as callers:  # sequential requests might stay below the limit
            answers = list(callers.map(lambda _: program.get("/v1/endpoints"), range(30)))
        refused = [answer for answer in answers if answer.status == 429]
        assert {answer.status for answer in answers} == {200, 429}
        assert refused[0].json["type"] == "urn:doorstep:problem:overloaded"
        assert "5 requests per second" in refused[0].json["detail"]
        assert int(refused[0].headers["retry-after"]) >= 1
        assert program.get("/v1/endpoints", key=other).status == 200
        assert program.get("/healthz").status == 200


def test_a_client_behind_a_proxy_on_this_machine_is_known_by_its_own_address(tmp_path: Path) -> None:
    with serving(tmp_path, environment={"DOORSTEP_FAILED_KEYS_PER_SECOND": "0.01"}) as program:

        def wrong_key_from(client: str) -> int:
            return program.get("/v1/endpoints", key="dsk_wrong", headers={"X-Forwarded-For": client}).status

        assert [wrong_key_from("192.0.2.1") for _ in range(3)] == [401, 429, 429]
        assert wrong_key_from("192.0.2.2") == 401
        assert wrong_key_from("203.0.113.9, 192.0.2.2") == 429, "what a client says of itself does not count"


def metrics(served: Program) -> dict[str, float]:
    answer = served.get("/metrics", key=None)
    assert answer.status == 200 and answer.headers["content-type"].startswith("text/plain")
    lines = [line for line in answer.body.decode().splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}
