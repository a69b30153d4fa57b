"""R8.5: a hostile field, query or path is accepted, or refused with a 4xx that names it; it never causes a 5xx."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from doorstep.api.application import ROUTES
from tests.support.api import Api, lasting
from tests.support.http_calls import Answer
from tests.support.matrix import each_case
from tests.support.scene import Scene

TEXTS = [
    "",
    "\x00",
    "a\x00b",
    "\ud800",
    "\udfff\ud800",
    "\u202e",
    "\uffff",
    "🚪",
    "' OR 1=1 --",
    "%",
    "_",
    "x" * 501,
    "*",
]
LISTS: dict[str, tuple[str, ...]] = {
    "/v1/events": ("status", "event_type", "created_from", "created_before", "limit", "cursor"),
    "/v1/inbox": ("status", "limit", "cursor"),
    "/v1/endpoints": ("state", "limit", "cursor"),
    "/v1/retry-queue": ("status", "event_type", "endpoint_id", "older_than_seconds", "limit", "cursor"),
    "/v1/dead-letters": ("status", "event_type", "endpoint_id", "cause", "died_from", "died_before", "limit", "cursor"),
    "/v1/dead-letters/groups": ("status", "event_type", "endpoint_id", "cause", "died_from", "died_before", "cursor"),
    "/v1/audit": ("actor", "action", "since", "until", "limit", "cursor"),
    "/v1/bulk": ("limit", "cursor"),
    "/v1/keys": ("limit", "cursor"),
    "/v1/orgs": ("limit", "cursor"),
}
NUMBERS = ["-1", "0", "1e400", "nan", "inf", "9" * 40, "0x10", "1_0", "١", "1.5", "-9223372036854775809"]
TIMES = ["1969-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2026-02-30T00:00:00Z", "1", "now"]


@lasting
@each_case("path", LISTS)
async def test_no_value_of_a_query_makes_a_list_fail(lasting_api: Api, path: str) -> None:
    for name in LISTS[path]:
        for value in (*TEXTS, *NUMBERS, *TIMES):
            answer = await lasting_api.get(f"{path}?{name}={quote(value, errors='surrogatepass')}")
            _check(answer, (name, value))
            if answer.status == 422:
                assert [error["field"] for error in answer.json["errors"]] == [name]


@lasting
@each_case("text", TEXTS)
async def test_no_text_in_a_body_makes_a_route_fail(lasting_scene: Scene, lasting_api: Api, text: str) -> None:
    lasting_scene.receiver.says(400)
    own_type = f"hostile.{TEXTS.index(text)}"
    endpoint = await lasting_api.endpoint(lasting_scene.receiver.url(), event_types=[own_type])
    path = f"/v1/endpoints/{endpoint['endpoint_id']}"
    dead = await lasting_api.until_delivery(await lasting_api.send(own_type), state="dead")
    letter = f"/v1/dead-letters/{dead['delivery_id']}"
    for method, where, body in (
        ("POST", "/v1/keys", {"name": text, "role": "viewer"}),
        ("POST", "/v1/orgs", {"name": text}),
        ("PATCH", path, {"name": text}),
        ("PATCH", path, {"code_map": {text: text}, "retry_on": [text], "give_up_on": [text]}),
        ("PATCH", path, {"headers": {"X-A": text}}),
        ("PATCH", path, {"policy": text}),
        ("PATCH", path, {"policy": {"delays": [1], "name": text}}),
        ("PATCH", path, {"url": text}),
        ("PATCH", path, {"handler": text, "url": None}),
        ("PATCH", path, {"url": lasting_scene.receiver.url(), "handler": None}),
        ("POST", f"{path}/pause", {"reason": text}),
        ("POST", f"{path}/resume", {}),
        ("POST", f"{path}/test", {"event_type": text}),
        ("POST", f"{path}/rotate-secret", {"signing": text}),
        ("POST", f"/v1/events/{dead['event_id']}/retry", {"reason": text}),
        ("POST", f"/v1/events/{dead['event_id']}/cancel", {"reason": text}),
        ("POST", f"{letter}/resolve", {"reason": text}),
        ("POST", f"{letter}/retry", {"reason": text}),
        ("POST", f"{letter}/retry", {"payload": text}),
        ("POST", "/v1/dead-letters/bulk-retry", {"filter": {"event_type": text}}),
        ("POST", "/v1/dead-letters/bulk-resolve", {"all": True, "reason": text}),
        ("POST", "/v1/retry-queue/bulk-skip", {"filter": {"event_type": text}, "preview": True}),
        ("POST", "/v1/events", {"event_type": text, "payload": 1}),
        ("POST", "/v1/events", {"event_type": "a", "payload": text, "metadata": {text: text}}),
        ("POST", "/v1/events", {"event_type": "a", "payload": 1, "ordering_key": text}),
        ("POST", "/v1/events", {"event_type": "a", "payload": 1, "idempotency_key": text}),
    ):
        _check(await lasting_api.request(method, where, body), (method, where, body))


@lasting
@each_case("body", [b"", b"null", b"[]", b"1", b'"a"', b"{", b"\xff\xfe", b"{}" * 2, b"[" * 5_000])
async def test_no_body_makes_a_route_fail(lasting_api: Api, body: bytes) -> None:
    nobody = "0198a4f2-6c1e-7b52-8a0d-5f1b7b6c9d01"
    for line in ROUTES:
        method, path = line.split(" ")
        if method in ("POST", "PATCH"):
            names = {part[1:-1]: nobody for part in path.split("/") if part.startswith("{")}
            _check(await lasting_api.request(method, path.format(**names), body), (line, body))


@lasting
@each_case("number", [-1, 0, 1.5, 10**40, 1e308, True, None, "5", [], {}])
async def test_no_number_in_a_body_makes_a_route_fail(lasting_scene: Scene, lasting_api: Api, number: Any) -> None:
    endpoint = await lasting_api.endpoint(lasting_scene.receiver.url(), event_types=["numbers"])
    path = f"/v1/endpoints/{endpoint['endpoint_id']}"
    numbers = ("timeout_seconds", "concurrency_max", "rate_per_second", "version")
    bodies: list[tuple[str, str, Any]] = [("PATCH", path, {name: number}) for name in numbers]
    bodies += [
        ("PATCH", path, {"name": "a", "version": number}),
        ("PATCH", path, {"circuit": {"failures_max": number}}),
        ("PATCH", path, {"circuit": {"open_seconds": number, "disable_after_seconds": number}}),
        ("PATCH", path, {"policy": [number]}),
        ("PATCH", path, {"policy": {"delays": [number], "jitter": number, "deadline_seconds": number}}),
        ("POST", f"{path}/resume", {"drain_per_second": number}),
        ("POST", f"{path}/rotate-secret", {"overlap_seconds": number}),
        ("POST", "/v1/dead-letters/bulk-retry", {"all": True, "rate_per_second": number}),
        ("POST", "/v1/retry-queue/bulk-retry", {"filter": {"older_than_seconds": number}, "preview": True}),
    ]
    for method, where, body in bodies:
        _check(await lasting_api.request(method, where, body), (where, body))


def _check(answer: Answer, asked: object) -> None:
    assert answer.status < 500, (asked, answer.body)
    if answer.status >= 400:
        assert answer.headers["content-type"] == "application/problem+json", asked
        assert {"type", "title", "status", "detail"} <= set(json.loads(answer.body)), asked
