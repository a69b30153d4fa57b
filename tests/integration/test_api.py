"""The HTTP API of a running program: requests and responses."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest
from standardwebhooks import Webhook

from doorstep.policy.retry import BUILT_IN
from tests.support.builders import unused
from tests.support.commands import Remote
from tests.support.matrix import each_case
from tests.support.program import ADMIN_KEY, Program, wait_for
from tests.support.receiver import Receiver

TIMESTAMP = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$"


def new_type() -> str:
    """An event type that no other test uses."""
    return f"t{uuid4().hex}"


def create_endpoint(served: Program, url: str, event_type: str, **more: Any) -> dict[str, Any]:
    answer = served.post("/v1/endpoints", {"name": unused("shop"), "url": url, "event_types": [event_type], **more})
    assert answer.status == 201, answer.body
    return answer.json


def status_of(served: Program, event_id: str) -> dict[str, Any]:
    return served.get(f"/v1/events/{event_id}/status").json


def wait_for_status(served: Program, event_id: str, status: str) -> dict[str, Any]:
    return wait_for(lambda: found if (found := status_of(served, event_id))["status"] == status else None)


# -- sending ---------------------------------------------------------------------------------------------------


def test_an_event_is_delivered_byte_for_byte_and_signed_and_its_status_says_so(
    served: Program, receiver: Receiver
) -> None:
    event_type = new_type()
    endpoint = create_endpoint(served, receiver.url, event_type)
    payload = b'{"b" :1,  "a": 1.50, "big": 12345678901234567890123, "\\u00e9": "\xc3\xa9"}'
    body = b'{"event_type": "%s", "payload": %s}' % (event_type.encode(), payload)
    answer = served.post("/v1/events", body)
    assert answer.status == 202
    assert answer.json["status"] == "received"
    assert answer.json["deliveries"] == 1
    wait_for_status(served, answer.json["event_id"], "delivered")
    (request,) = receiver.received
    assert request.body == payload
    Webhook(endpoint["secret"]).verify(request.body, request.headers)
    with pytest.raises(Exception, match="No matching signature"):
        Webhook(endpoint["secret"]).verify(request.body + b" ", request.headers)


def test_the_status_has_exactly_its_six_fields_and_no_payload(served: Program) -> None:
    sent = served.post("/v1/events", {"event_type": new_type(), "payload": "c4n4ry"}).json
    answer = served.get(f"/v1/events/{sent['event_id']}/status")
    assert answer.json == {
        "event_id": sent["event_id"],
        "status": "received",
        "retry_attempts": 0,
        "last_retry_at": None,
        "failed_at": None,
        "next_retry_at": None,
    }
    assert b"c4n4ry" not in answer.body


def test_a_failed_attempt_is_in_the_log_with_its_reason_and_the_time_of_the_next(
    served: Program, receiver: Receiver
) -> None:
    receiver.status = 503
    event_type = new_type()
    create_endpoint(served, receiver.url, event_type, policy=[60, 300])
    event_id = served.post("/v1/events", {"event_type": event_type, "payload": 1}).json["event_id"]
    delivery = wait_for(
        lambda: found if (found := served.get(f"/v1/events/{event_id}").json["deliveries"][0])["error_code"] else None
    )
    assert (delivery["state"], delivery["retries_max"], delivery["attempts"]) == ("pending", 2, 1)
    listed = served.get(f"/v1/deliveries/{delivery['delivery_id']}/attempts").json
    (attempt,) = listed["attempts"]
    assert (attempt["number"], attempt["response_code"], attempt["error_category"]) == (1, 503, "transient")
    assert attempt["error_code"] == "SERVICE_UNAVAILABLE"
    assert attempt["next_retry_at"] == delivery["next_retry_at"] == status_of(served, event_id)["next_retry_at"]
    assert listed["pagination"] == {
        "limit": 1,
        "cursor": None,
        "has_more": False,
        "total_count": 1,
        "total_is_floor": False,
    }
    assert served.get(f"/v1/deliveries/{delivery['delivery_id']}").json == delivery


def test_a_permanent_failure_makes_the_event_failed(served: Program, receiver: Receiver) -> None:
    receiver.status = 400
    event_type = new_type()
    create_endpoint(served, receiver.url, event_type)
    event_id = served.post("/v1/events", {"event_type": event_type, "payload": 1}).json["event_id"]
    status = wait_for_status(served, event_id, "failed")
    assert status["failed_at"] is not None
    assert status["next_retry_at"] is None


def test_a_full_event_shows_its_payload_and_metadata_exactly_as_they_were_sent(served: Program) -> None:
    payload, metadata = b'{"n": 1.0, "big": 123456789012345678901234567890, "e": 1e400}', b'{"by":  "me"}'
    body = b'{"event_type": "%s", "payload": %s, "metadata": %s}' % (new_type().encode(), payload, metadata)
    event_id = served.post("/v1/events", body).json["event_id"]
    answer = served.get(f"/v1/events/{event_id}")
    assert b'"payload":' + payload in answer.body
    assert b'"metadata":' + metadata in answer.body


def test_a_batch_is_accepted_as_one_and_answered_in_order(served: Program) -> None:
    types = [new_type() for _ in range(3)]
    events = [{"event_type": event_type, "payload": n} for n, event_type in enumerate(types)]
    for path, body in (("/v1/events/batch", {"events": events}), ("/v1/events/batch", events), ("/v1/events", events)):
        answer = served.post(path, body)
        assert answer.status == 202, answer.body
        stored = [served.get(f"/v1/events/{event['event_id']}").json for event in answer.json["events"]]
        assert [event["event_type"] for event in stored] == types
        assert [event["payload"] for event in stored] == [0, 1, 2]


def test_a_batch_with_one_bad_event_stores_nothing_and_names_it(served: Program) -> None:
    good = {"event_type": new_type(), "payload": 1, "idempotency_key": uuid4().hex}
    for bad, field in (
        ({"event_type": 7, "payload": 1}, "events[1].event_type"),
        ({"event_type": "a b", "payload": 1}, "events[1].event_type"),
        ({"event_type": "a"}, "events[1].payload"),
        ({"event_type": "a", "payload": 1, "metadata": []}, "events[1].metadata"),
        ({"event_type": "a", "payload": 1, "deliver_at": "2026-01-01T00:00:00"}, "events[1].deliver_at"),
        ({"event_type": "a", "payload": 1, "endpoint_ids": [str(uuid4())]}, "events[1].endpoint_ids"),
        (5, "events[1]"),
    ):
        answer = served.post("/v1/events/batch", [good, bad])
        assert answer.status == 422, answer.body
        assert answer.json["errors"][0]["field"] == field
        assert answer.json["detail"].startswith(f"{field}: "), "people are told which one too"
    answer = served.post("/v1/events/batch", [good])
    assert answer.json["events"][0]["verdict"] == "accepted", "nothing of the refused batches was kept"


@each_case("count", [0, 1_001])
def test_a_batch_is_bounded(served: Program, count: int) -> None:
    answer = served.post("/v1/events/batch", [{"event_type": "a", "payload": 1}] * count)
    assert (answer.status, answer.json["errors"][0]["field"]) == (422, "events")


def test_a_repeated_idempotency_key_gives_the_first_answer_again_and_another_body_is_a_conflict(
    served: Program,
) -> None:
    event = {"event_type": new_type(), "payload": {"n": 1}}
    headers = {"Idempotency-Key": uuid4().hex}
    first = served.post("/v1/events", event, headers=headers)
    again = served.post("/v1/events", event, headers=headers)
    assert (again.status, again.json["event_id"]) == (202, first.json["event_id"])
    assert (first.json["verdict"], again.json["verdict"]) == ("accepted", "repeated")
    in_body = served.post("/v1/events", event | {"idempotency_key": headers["Idempotency-Key"]})
    assert in_body.json["event_id"] == first.json["event_id"]
    other = served.post("/v1/events", event | {"payload": {"n": 2}}, headers=headers)
    assert other.status == 409
    assert other.headers["content-type"] == "application/problem+json"


def test_two_different_idempotency_keys_for_one_event_are_refused(served: Program) -> None:
    event = {"event_type": new_type(), "payload": 1, "idempotency_key": "a"}
    answer = served.post("/v1/events", event, headers={"Idempotency-Key": "b"})
    assert (answer.status, answer.json["errors"][0]["field"]) == (422, "Idempotency-Key")


def test_a_key_in_the_header_that_cannot_be_used_is_named_as_the_header(served: Program) -> None:
    event = {"event_type": new_type(), "payload": 1}
    answer = served.post("/v1/events", event, headers={"Idempotency-Key": "k" * 256})
    assert (answer.status, answer.json["errors"][0]["field"]) == (422, "Idempotency-Key")


@each_case("path", ["/healthz", "/readyz"])
def test_monitors_may_ask_for_the_head_alone(served: Program, path: str) -> None:
    answer = served.request("HEAD", path, key=None)
    assert (answer.status, answer.body) == (200, b"")


def test_a_batch_says_which_of_its_events_conflicts(served: Program) -> None:
    key = uuid4().hex
    event = {"event_type": new_type(), "payload": 1, "idempotency_key": key}
    served.post("/v1/events", event)
    answer = served.post("/v1/events/batch", [event | {"payload": 2}, {"event_type": new_type(), "payload": 3}])
    assert answer.status == 207
    assert [event["verdict"] for event in answer.json["events"]] == ["conflict", "accepted"]


def test_an_event_can_be_held_until_a_time(served: Program, receiver: Receiver) -> None:
    event_type = new_type()
    create_endpoint(served, receiver.url, event_type)
    event = {"event_type": event_type, "payload": 1, "deliver_at": "2999-12-31T23:00:00+01:00"}
    event_id = served.post("/v1/events", event).json["event_id"]
    stored = served.get(f"/v1/events/{event_id}").json
    assert stored["deliver_at"] == stored["deliveries"][0]["due_at"] == "2999-12-31T22:00:00.000000Z"
    assert receiver.received == []


def test_an_event_can_be_sent_to_one_endpoint_alone(served: Program, receiver: Receiver) -> None:
    event_type = new_type()
    chosen = create_endpoint(served, receiver.url, new_type())["endpoint_id"]
    create_endpoint(served, receiver.url, event_type)
    event = {"event_type": event_type, "payload": 1, "endpoint_ids": [chosen]}
    event_id = served.post("/v1/events", event).json["event_id"]
    assert [d["endpoint_id"] for d in served.get(f"/v1/events/{event_id}").json["deliveries"]] == [chosen]
    unknown = served.post("/v1/events", event | {"endpoint_ids": [str(uuid4())]})
    assert (unknown.status, unknown.json["errors"][0]["field"]) == (422, "endpoint_ids")


# -- correlation -----------------------------------------------------------------------------------------------


def test_the_correlation_id_is_echoed_kept_and_in_every_line_of_the_log(served: Program, receiver: Receiver) -> None:
    event_type, correlation = new_type(), f"corr-{uuid4()}"
    create_endpoint(served, receiver.url, event_type)
    answer = served.post(
        "/v1/events", {"event_type": event_type, "payload": 1}, headers={"X-Correlation-Id": correlation}
    )
    assert answer.headers["x-correlation-id"] == correlation
    event_id = answer.json["event_id"]
    wait_for_status(served, event_id, "delivered")
    assert served.get(f"/v1/events/{event_id}").json["correlation_id"] == correlation
    statuses = wait_for(lambda: lines if len(lines := _transitions(served, event_id)) == 3 else None)
    assert [(line["old_status"], line["new_status"]) for line in statuses] == [
        (None, "received"),
        ("received", "queued"),
        ("queued", "delivered"),
    ]
    assert {line["correlation_id"] for line in statuses} == {correlation}


def _transitions(served: Program, event_id: str) -> list[dict[str, Any]]:
    return [line for line in served.facts("status_transition") if line["event_id"] == event_id]


def test_without_a_correlation_id_one_is_made(served: Program) -> None:
    assert UUID(served.get("/healthz").headers["x-correlation-id"]).version == 7


@each_case("given", ["", "a b", "x" * 129, "caf\xe9"])
def test_a_correlation_id_that_would_not_survive_the_journey_is_refused(served: Program, given: str) -> None:
    answer = served.get("/healthz", headers={"X-Correlation-Id": given})
    assert (answer.status, answer.json["errors"][0]["field"]) == (422, "X-Correlation-Id")


# -- endpoints -------------------------------------------------------------------------------------------------


def test_the_secret_of_an_endpoint_is_shown_once_and_its_headers_never(served: Program, receiver: Receiver) -> None:
    event_type = new_type()
    created = create_endpoint(served, receiver.url, event_type, headers={"X-Token": "c4n4ry-value"})
    assert created["secret"].startswith("whsec_")
    for path in (f"/v1/endpoints/{created['endpoint_id']}", "/v1/endpoints"):
        answer = served.get(path)
        assert answer.status == 200
        assert created["secret"].encode() not in answer.body
        assert b"c4n4ry" not in answer.body
    event_id = served.post("/v1/events", {"event_type": event_type, "payload": 1}).json["event_id"]
    wait_for_status(served, event_id, "delivered")
    assert receiver.received[0].headers["x-token"] == "c4n4ry-value"
    delivery_id = served.get(f"/v1/events/{event_id}").json["deliveries"][0]["delivery_id"]
    assert b"c4n4ry" not in served.get(f"/v1/deliveries/{delivery_id}/attempts").body
    assert "c4n4ry" not in "".join(served.out)


def test_a_paused_endpoint_holds_its_deliveries_until_it_is_resumed(served: Program, receiver: Receiver) -> None:
    event_type = new_type()
    endpoint_id = create_endpoint(served, receiver.url, event_type)["endpoint_id"]
    assert served.post(f"/v1/endpoints/{endpoint_id}/pause").json["state"] == "paused"
    event_id = served.post("/v1/events", {"event_type": event_type, "payload": 1}).json["event_id"]
    other_type = new_type()
    create_endpoint(served, receiver.url, other_type)
    other_id = served.post("/v1/events", {"event_type": other_type, "payload": 2}).json["event_id"]
    wait_for_status(served, other_id, "delivered")
    assert status_of(served, event_id)["status"] == "received"
    assert served.post(f"/v1/endpoints/{endpoint_id}/resume").json["state"] == "active"
    wait_for_status(served, event_id, "delivered")


def test_the_waiting_deliveries_of_a_deleted_endpoint_become_dead_letters(served: Program, receiver: Receiver) -> None:
    event_type = new_type()
    endpoint_id = create_endpoint(served, receiver.url, event_type)["endpoint_id"]
    served.post(f"/v1/endpoints/{endpoint_id}/pause")
    event_id = served.post("/v1/events", {"event_type": event_type, "payload": 1}).json["event_id"]
    assert served.request("DELETE", f"/v1/endpoints/{endpoint_id}").status == 204
    wait_for_status(served, event_id, "failed")
    (delivery,) = served.get(f"/v1/events/{event_id}").json["deliveries"]
    assert (delivery["state"], delivery["error_code"]) == ("dead", "ENDPOINT_DELETED")
    listed = served.get("/v1/endpoints").json["endpoints"]
    assert endpoint_id not in {endpoint["endpoint_id"] for endpoint in listed}


def test_a_body_is_json_whatever_its_content_type_says(served: Program, receiver: Receiver) -> None:
    """`curl -d` labels every body as a form."""
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    endpoint = {"name": unused("shop"), "url": receiver.url, "event_types": [new_type()]}
    assert served.post("/v1/endpoints", endpoint, headers=form).status == 201
    assert served.post("/v1/events", {"event_type": new_type(), "payload": 1}, headers=form).status == 202


def test_a_policy_is_given_by_name_by_delays_or_in_full(served: Program, receiver: Receiver) -> None:
    full = {"delays": [1, 2.5], "jitter": 0, "deadline_seconds": 60}
    for given, delays in (("quick", [5, 30, 300]), ([7], [7]), (full, [1, 2.5])):
        assert create_endpoint(served, receiver.url, new_type(), policy=given)["policy"]["delays"] == delays


BAD_ENDPOINTS: list[tuple[dict[str, Any], str]] = [
    ({"url": "https://example.com"}, "name"),
    ({"name": "a"}, "url"),
    ({"name": "a", "url": "https://example.com", "handler": "b"}, "url"),
    ({"name": "a", "url": "ftp://example.com"}, "url"),
    ({"name": "a", "url": "https://10.0.0.1"}, "url"),
    ({"name": "a", "url": "https://example.com/\x00"}, "url"),
    ({"name": "a", "url": "https://user:password@example.com/"}, "url"),
    ({"name": 1, "url": "https://example.com"}, "name"),
    ({"name": "", "url": "https://example.com"}, "name"),
    ({"name": "a\x00", "url": "https://example.com"}, "name"),
    ({"name": "a", "url": "https://example.com", "event_types": []}, "event_types"),
    ({"name": "a", "url": "https://example.com", "event_types": ["*.a"]}, "event_types"),
    ({"name": "a", "url": "https://example.com", "timeout_seconds": 10_000}, "timeout_seconds"),
    ({"name": "a", "url": "https://example.com", "timeout_seconds": "5"}, "timeout_seconds"),
    ({"name": "a", "url": "https://example.com", "concurrency_max": 0}, "concurrency_max"),
    ({"name": "a", "url": "https://example.com", "concurrency_max": 2**70}, "concurrency_max"),
    ({"name": "a", "url": "https://example.com", "policy": "eager"}, "policy"),
    ({"name": "a", "url": "https://example.com", "headers": {"Host": "evil"}}, "headers"),
    ({"name": "a", "url": "https://example.com", "headers": {"X-A": "b\r\nX-C: d"}}, "headers"),
    ({"name": "a", "url": "https://example.com", "circuit": {"failures_max": 0}}, "circuit.failures_max"),
    ({"name": "a", "url": "https://example.com", "circuit": {"failures": 1}}, "circuit.failures"),
    ({"name": "a", "url": "https://example.com", "colour": "red"}, "colour"),
]


@each_case(("body", "field"), BAD_ENDPOINTS)
def test_an_endpoint_that_cannot_work_is_refused_and_the_field_named(
    served: Program, body: dict[str, Any], field: str
) -> None:
    answer = served.post("/v1/endpoints", body)
    assert answer.status == 422, answer.body
    assert field in {error["field"] for error in answer.json["errors"]}, answer.body


# -- keys ------------------------------------------------------------------------------------------------------


@each_case("path", ["/v1/events", "/v1/endpoints", "/v1/nothing", "/v1/events/x/status"])
@each_case("key", [None, "wrong-key", "k" * 5_000])
def test_nobody_gets_in_without_a_valid_key(served: Program, path: str, key: str | None) -> None:
    for method in ("GET", "POST", "DELETE"):
        answer = served.request(method, path, b"{not json" if method == "POST" else None, key=key)
        assert (answer.status, answer.json["type"]) == (401, "urn:doorstep:problem:unauthenticated")
        assert answer.headers["www-authenticate"] == "Bearer"


def test_a_key_may_come_as_a_bearer_token(served: Program) -> None:
    assert served.get("/v1/endpoints", key=None, headers={"Authorization": f"Bearer {ADMIN_KEY}"}).status == 200
    assert served.get("/v1/endpoints", key=None, headers={"Authorization": f"Basic {ADMIN_KEY}"}).status == 401


# -- health ------------------------------------------------------------------------------------


def test_health_is_open_to_all_and_tells_nothing(served: Program) -> None:
    for path in ("/healthz", "/readyz"):
        answer = served.get(path, key=None)
        assert (answer.status, answer.json) == (200, {"status": "ok"})


def test_no_answer_may_be_kept_by_those_who_pass_it_on(served: Program) -> None:
    for path in ("/v1/endpoints", "/v1/nothing", "/healthz"):
        answer = served.get(path)
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_without_a_mail_server_the_channels_say_why_there_is_no_mail(served: Program) -> None:
    kinds = {one["kind"]: one for one in served.get("/v1/channel-kinds").json["kinds"]}
    assert (kinds["webhook"]["available"], kinds["webhook"]["reason"]) == (True, None)
    assert not kinds["email"]["available"] and "DOORSTEP_SMTP_URL" in kinds["email"]["reason"]
    assert "DOORSTEP_SMTP_URL" in Remote(served)("channels", "kinds").out


@pytest.mark.parametrize("given", [{"policy": "eager"}, {"policy_by_event_type": {"order.*": "eager"}}])
def test_a_policy_that_is_unknown_is_answered_with_those_that_are(served: Program, given: dict[str, Any]) -> None:
    refused = served.post("/v1/endpoints", {"name": unused("shop"), "url": "https://shop.example/", **given})
    assert refused.status == 422
    assert all(name in refused.json["detail"] for name in BUILT_IN), refused.json
