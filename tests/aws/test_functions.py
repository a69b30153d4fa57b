"""The functions in processes of their own, on a SQLite store: what they answer, log and measure."""

from __future__ import annotations

from typing import Any

import pytest

from doorstep.app import Doorstep
from doorstep.config import Settings
from doorstep.model.claim import Quota
from doorstep.model.record import uuid7
from doorstep.stores.dynamodb.messages import DueMessage, encode
from doorstep.telemetry.embedded_metrics import METRICS
from tests.aws.conftest import ADMIN_KEY
from tests.aws.function_process import FunctionProcess
from tests.aws.requests import answer, request
from tests.support.receiver import Receiver

Environ = dict[str, str]


def api(environ: Environ) -> FunctionProcess:
    return FunctionProcess("doorstep.aws.api", environ)


def delivery(environ: Environ) -> FunctionProcess:
    return FunctionProcess("doorstep.aws.delivery", environ)


def create_endpoint(function: FunctionProcess, receiver: Receiver, **fields: object) -> str:
    body = {"name": "crm", "url": receiver.url, "event_types": ["lead.*"], **fields}
    result = function.call(request("POST", "/v1/endpoints", ADMIN_KEY, body))
    assert result["statusCode"] == 201, result
    return str(answer(result)["endpoint_id"])


def send(function: FunctionProcess) -> str:
    result = function.call(
        request("POST", "/v1/events", ADMIN_KEY, {"event_type": "lead.created", "payload": {"n": 1}})
    )
    assert result["statusCode"] == 202, result
    return str(answer(result)["event_id"])


def status_of(function: FunctionProcess, event_id: str) -> Any:
    return answer(function.call(request("GET", f"/v1/events/{event_id}/status", ADMIN_KEY)))


def record(body: str, message_id: str = "m1") -> dict[str, Any]:
    return {"messageId": message_id, "body": body, "attributes": {"ApproximateReceiveCount": "1"}}


def due(event_id: str) -> dict[str, Any]:
    return record(encode(DueMessage(uuid7(1), uuid7(2), 1)), event_id)


def test_an_event_is_accepted_delivered_and_its_status_read_by_functions_in_separate_processes(
    environ: Environ, receiver: Receiver
) -> None:
    with api(environ) as requests, delivery(environ) as deliveries:
        create_endpoint(requests, receiver)
        event_id = send(requests)
        assert status_of(requests, event_id)["status"] == "received"
        assert deliveries.call({"Records": [due("m1")]}) == {"batchItemFailures": []}
        assert [one.headers["webhook-id"] != "" for one in receiver.received] == [True]
        assert status_of(requests, event_id)["status"] == "delivered"

    moves = [(one["old_status"], one["new_status"]) for one in requests.events("status_transition")]
    moves += [(one["old_status"], one["new_status"]) for one in deliveries.events("status_transition")]
    assert moves == [(None, "received"), ("received", "queued"), ("queued", "delivered")]
    assert {line["service"] for line in requests.lines + deliveries.lines} == {"triggers"}

    assert (requests.metric("EventsCreated"), requests.metric("EventsReceived")) == ([1], [1])
    assert requests.metric("StatusQueries") == [1, 1]
    assert [0 < one < 60_000 for one in requests.metric("StatusQueryLatency")] == [True, True]
    assert (deliveries.metric("EventsDelivered"), deliveries.metric("FailedPercent")) == ([1], [0])
    # Picked up and delivered in one call, it leaves one status and neither enters nor leaves the other.
    assert (deliveries.metric("EventsReceived"), deliveries.metric("EventsQueued")) == ([-1], [])
    assert deliveries.metric("RetryAttempts") == [0]
    (seconds,) = deliveries.metric("TimeToDelivery")
    assert 0 < seconds < 600
    for line in requests.events("metrics") + deliveries.events("metrics"):
        check_embedded_metrics(line)


def check_embedded_metrics(line: dict[str, Any]) -> None:
    """The rules of the embedded metric format, without which CloudWatch ignores a line."""
    (directive,) = line["_aws"]["CloudWatchMetrics"]
    assert directive["Namespace"] == "Doorstep"
    assert directive["Dimensions"] == [["service"]]
    assert isinstance(line["service"], str)
    assert line["_aws"]["Timestamp"] > 1_700_000_000_000  # milliseconds
    for metric in directive["Metrics"]:
        assert METRICS[metric["Name"]] == metric["Unit"]
        values = line[metric["Name"]]
        values = values if isinstance(values, list) else [values]
        assert 0 < len(values) <= 100
        assert all(isinstance(value, (int, float)) for value in values)


def test_a_failed_attempt_is_logged_and_measured_with_its_next_retry(environ: Environ, receiver: Receiver) -> None:
    receiver.status = 503
    with api(environ) as requests, delivery(environ) as deliveries:
        create_endpoint(requests, receiver, policy="standard")
        event_id = send(requests)
        deliveries.call({"Records": [due("m1")]})
        status = status_of(requests, event_id)
    assert status["status"] == "queued"
    assert status["next_retry_at"] is not None
    (failure,) = deliveries.events("delivery_failure")
    assert failure["event_id"] == event_id
    (scheduled,) = deliveries.events("retry_scheduled")
    assert scheduled["duration_seconds"] in deliveries.metric("RetryScheduledTime")
    assert deliveries.metric("EventsFailed") == []


def test_a_message_that_cannot_be_read_stays_in_the_queue_and_the_others_are_dealt_with(
    environ: Environ, receiver: Receiver
) -> None:
    poisoned = record("not a message of Doorstep", message_id=ADMIN_KEY)
    with api(environ) as requests, delivery(environ) as deliveries:
        create_endpoint(requests, receiver)
        event_id = send(requests)
        kept = deliveries.call({"Records": [poisoned, due("m2")]})
        assert kept == {"batchItemFailures": [{"itemIdentifier": ADMIN_KEY}]}
        assert status_of(requests, event_id)["status"] == "delivered"
    (notice,) = deliveries.events("notice")
    assert (notice["level"], notice["receive_count"]) == ("error", 1)
    assert notice["message_id"] == "***"  # whatever is in a message, the keys of the process are never logged


async def test_the_sweeper_settles_the_attempt_of_a_lost_function(environ: Environ, receiver: Receiver) -> None:
    settings = Settings(database_url=environ["DOORSTEP_DATABASE_URL"], secret_key=environ["DOORSTEP_SECRET_KEY"])
    with api(environ) as requests, FunctionProcess("doorstep.aws.sweeper", environ) as sweeper:
        create_endpoint(requests, receiver)
        event_id = send(requests)
        doorstep = Doorstep(settings)
        await doorstep.open(migrate=False)
        try:
            store, now = doorstep.components.store, doorstep.clock.now()
            (lane,) = await store.due_lanes(now)
            (claim,) = await store.claim([Quota(lane.endpoint_id, 1)], now, now, "lost")
        finally:
            await doorstep.close()
        rounds = sweeper.call({"detail-type": "Scheduled Event"})
        assert rounds["reclaimer"] >= 1
        assert rounds["cleaner"] >= 1
        (failure,) = sweeper.events("delivery_failure")
        assert failure["error"]["code"] == "WORKER_LOST"
        assert failure["delivery_id"] == str(claim.delivery_id)
        assert status_of(requests, event_id)["status"] == "queued"


@pytest.mark.parametrize("missing", ["EVENTS_TABLE_NAME", "DELIVERY_QUEUE_URL"])
def test_a_function_without_its_table_or_queue_says_which_variable_is_missing(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from doorstep.aws.environment import database_url
    from doorstep.errors import ConfigError

    given = {"EVENTS_TABLE_NAME": "events", "DELIVERY_QUEUE_URL": "https://sqs.eu-central-1.amazonaws.com/1/q"}
    assert database_url(given | {"AWS_REGION": "eu-central-1"}) == (
        "dynamodb://events?region=eu-central-1&queue=https%3A%2F%2Fsqs.eu-central-1.amazonaws.com%2F1%2Fq"
    )
    with pytest.raises(ConfigError, match=missing):
        database_url({name: value for name, value in given.items() if name != missing})
