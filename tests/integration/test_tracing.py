"""One trace from the acceptance of an event to its last attempt, across processes and retries, at a real collector."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from doorstep.app import Doorstep
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.model.listing import DeliveryAttempts, EventDeliveries
from doorstep.transports.handler_replies import Received
from tests.support.collector import Collected, Collector, collecting
from tests.support.program import Program, running, serving, wait_for
from tests.support.receiver import Receiver, receiving

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
GIVEN = {"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "shop=1", "X-Correlation-Id": "order-17"}


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as it:
        yield it


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as it:
        yield it


def exporting(collector: Collector, **more: str) -> dict[str, str]:
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "20"} | more


def send(program: Program, receiver: Receiver, headers: dict[str, str]) -> str:
    shape = {"name": "shop", "url": receiver.url, "event_types": ["order"]}
    assert program.post("/v1/endpoints", shape).status == 201
    return send_event(program, headers)


def send_event(program: Program, headers: dict[str, str] | None = None) -> str:
    return str(
        program.post("/v1/events", {"event_type": "order", "payload": 1}, headers=headers or {}).json["event_id"]
    )


def attempts(collector: Collector, count: int) -> list[Collected]:
    wait_for(lambda: len(collector.named("doorstep.attempt")) >= count, lambda: f"{collector.spans}")
    return collector.named("doorstep.attempt")


def test_one_trace_goes_from_the_accepting_request_over_all_retries_though_processes_change(
    tmp_path: Path, collector: Collector, receiver: Receiver
) -> None:
    receiver.status = 503
    environment = exporting(collector) | {"DOORSTEP_RETRY_DELAYS": "0.3,2,0.3"}
    with serving(tmp_path, environment=environment) as program:
        event_id = send(program, receiver, GIVEN)
        wait_for(lambda: len(receiver.received) == 2)
    receiver.status = 200
    allowed = {"DOORSTEP_ALLOW_ADDRESSES": "127.0.0.0/8"}
    with running(
        "worker", folder=tmp_path, environment=environment | allowed | {"OTEL_SERVICE_NAME": "second"}
    ) as worker:
        third = attempts(collector, 3)[2]
        delivered = wait_for(lambda: [f for f in worker.facts("status_transition") if f["new_status"] == "delivered"])
    (accepted,) = collector.named("doorstep.accept")
    tries = attempts(collector, 3)
    assert {span.trace_id for span in collector.spans} == {TRACE}
    assert (accepted.parent_id, accepted.kind, accepted.state) == (SPAN, "PRODUCER", "shop=1")
    assert [span.parent_id for span in tries] == [accepted.span_id] * 3
    assert [span.links for span in tries] == [[], [tries[0].span_id], [tries[1].span_id]]
    assert [span.attributes["doorstep.attempt"] for span in tries] == [1, 2, 3]
    assert [span.attributes["doorstep.state"] for span in tries] == ["pending", "pending", "delivered"]
    assert [span.attributes["http.response.status_code"] for span in tries] == [503, 503, 200]
    assert [bool(span.error) for span in tries] == [True, True, False]
    assert (tries[0].service, third.service) == ("doorstep", "second")
    assert {span.attributes["doorstep.correlation_id"] for span in collector.spans} == {"order-17"}
    assert {span.attributes["doorstep.event_id"] for span in collector.spans} == {event_id}
    assert delivered[0]["correlation_id"] == "order-17"
    told = [(one.headers["traceparent"], one.headers["tracestate"]) for one in receiver.received]
    assert told == [(f"00-{TRACE}-{span.span_id}-01", "shop=1") for span in tries]
    assert {one.headers["x-correlation-id"] for one in receiver.received} == {"order-17"}


def test_a_trace_is_passed_on_though_nobody_records_it(tmp_path: Path, receiver: Receiver) -> None:
    with serving(tmp_path) as program:
        event_id = send(program, receiver, GIVEN)
        wait_for(lambda: receiver.received)
        (delivery,) = program.get(f"/v1/events/{event_id}").json["deliveries"]
        path = f"/v1/deliveries/{delivery['delivery_id']}/attempts"
        (attempt,) = wait_for(lambda: program.get(path).json["attempts"])
    headers = receiver.received[0].headers
    assert (headers["traceparent"], headers["tracestate"]) == (GIVEN["traceparent"], "shop=1")
    assert f"traceparent: {headers['traceparent']}" in attempt["request_headers"]
    assert "x-correlation-id: order-17" in attempt["request_headers"]


@pytest.mark.parametrize("headers", [{}, {"traceparent": "00-nonsense-01"}, {"tracestate": "shop=1"}])
def test_a_receiver_is_told_of_no_trace_that_nobody_began(
    tmp_path: Path, receiver: Receiver, headers: dict[str, str]
) -> None:
    """A receiver would read an unsampled trace context as an instruction not to record its own spans."""
    with serving(tmp_path) as program:
        send(program, receiver, headers)
        wait_for(lambda: receiver.received)
    assert not {"traceparent", "tracestate"} & receiver.received[0].headers.keys()


def test_an_event_without_a_trace_begins_one(tmp_path: Path, collector: Collector, receiver: Receiver) -> None:
    packed = {"OTEL_EXPORTER_OTLP_COMPRESSION": "gzip", "OTEL_EXPORTER_OTLP_HEADERS": "x-key=abc"}
    with serving(tmp_path, environment=exporting(collector, **packed)) as program:
        event_id = send(program, receiver, {})
        attempts(collector, 1)
    assert {(span.trace_id) for span in collector.spans} == {event_id.replace("-", "")}
    (accepted,) = collector.named("doorstep.accept")
    assert accepted.parent_id == ""
    path, headers = collector.requests[0]
    assert (path, headers["x-key"], headers["content-type"]) == ("/v1/traces", "abc", "application/x-protobuf")


def test_a_sender_that_samples_nothing_gets_no_spans_and_receivers_hear_so(
    tmp_path: Path, collector: Collector, receiver: Receiver
) -> None:
    with serving(tmp_path, environment=exporting(collector)) as program:
        send(program, receiver, {"traceparent": f"00-{TRACE}-{SPAN}-00"})
        wait_for(lambda: receiver.received)
    assert receiver.received[0].headers["traceparent"] == f"00-{TRACE}-{SPAN}-00"
    assert collector.requests == []


def test_a_collector_that_is_away_costs_a_line_in_the_log_and_nothing_else(
    tmp_path: Path, collector: Collector, receiver: Receiver
) -> None:
    collector.status = 400
    with serving(tmp_path, environment=exporting(collector)) as program:
        send(program, receiver, {})
        for count in (1, 2, 3):
            wait_for(lambda count=count: len(collector.requests) >= count)
            send_event(program)
        delivered = wait_for(lambda: [f for f in program.facts("status_transition") if f["new_status"] == "delivered"])
        (line,) = wait_for(lambda: [one for one in program.facts("notice") if "trace collector" in one["message"]])
    assert delivered and line["level"] == "warning"
    assert "it answered 400" in line["message"]
    assert collector.url not in line["message"]


def test_what_is_wrong_with_variables_that_are_not_ours_alone_stops_nothing(
    tmp_path: Path, collector: Collector
) -> None:
    with serving(tmp_path, environment=exporting(collector, OTEL_EXPORTER_OTLP_PROTOCOL="grpc")) as program:
        (line,) = wait_for(lambda: [one for one in program.facts("notice") if "no traces" in one["message"]])
    assert "OTEL_EXPORTER_OTLP_PROTOCOL must be http/protobuf" in line["message"]


# -- in a program that uses OpenTelemetry itself ---------------------------------------------------------------

tracer = TracerProvider().get_tracer("the program")


def seen(event: Received) -> dict[str, Any]:
    context = trace.get_current_span().get_span_context()
    return {"trace": f"{context.trace_id:032x}", "span": f"{context.span_id:016x}", "told": event.traceparent}


def isolated(event: Received) -> dict[str, Any]:
    return seen(event)


@pytest.mark.parametrize("kind", ["async", "plain", "isolated"])
async def test_a_handler_runs_within_the_trace_in_which_its_event_was_sent(tmp_path: Path, kind: str) -> None:
    doorstep = Doorstep(f"sqlite:///{tmp_path}/app.db")
    found: list[dict[str, Any]] = []

    async def asynchronous(event: Received) -> None:
        found.append(seen(event))

    def plain(event: Received) -> None:
        found.append(seen(event))

    function: Any = {"async": asynchronous, "plain": plain, "isolated": isolated}[kind]
    doorstep.handler("order", name="job", isolated=kind == "isolated")(function)
    async with doorstep:
        with tracer.start_as_current_span("checkout") as span:
            receipt = await doorstep.send("order", {})
        attempt = await _first_attempt(doorstep, receipt.event_id)
    if kind == "isolated":
        found.append(json.loads(attempt.response_body))
    context = span.get_span_context()
    (one,) = found
    assert one["trace"] == f"{context.trace_id:032x}"
    assert one["told"] == f"00-{one['trace']}-{one['span']}-01"
    assert one["span"] == f"{context.span_id:016x}", "no span of ours is recorded that could be the parent"
    assert f"traceparent: {one['told']}" in attempt.request_headers.decode()


async def _first_attempt(doorstep: Doorstep, event_id: Any) -> Any:
    for _ in range(1_000):
        (delivery,) = await doorstep.components.store.find(DEFAULT_ORG, EventDeliveries(event_id=event_id))
        attempts = await doorstep.components.store.find(DEFAULT_ORG, DeliveryAttempts(delivery_id=delivery.delivery_id))
        if attempts:
            return attempts[0]
        await asyncio.sleep(0.02)
    raise AssertionError("it was not tried")
