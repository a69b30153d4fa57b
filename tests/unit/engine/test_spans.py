"""Spans of acceptances and attempts, decoded with OpenTelemetry's own decoder."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from doorstep.clock import Instant
from doorstep.engine import facts
from doorstep.engine.reclaim import reclaim
from doorstep.model.attempt import Code
from doorstep.telemetry.otlp import Requests
from doorstep.telemetry.tracing import Tracing, never
from tests.unit.engine.scene import PLAIN, Bench

SENDER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Recorded:
    """A bench that records its spans."""

    def __init__(self) -> None:
        self._messages: list[bytes] = []
        self.bench = Bench()
        self.bench.telemetry.tracing = Tracing(self._messages.extend)

    @property
    def attempts(self) -> Sequence[Span]:
        request = ExportTraceServiceRequest.FromString(Requests({}, "1").request(self._messages))
        return list(request.resource_spans[0].scope_spans[0].spans)


def told(bench: Bench) -> list[str]:
    """The `traceparent` values that were sent to receivers."""
    lines = [line for one in bench.http.started for line in one.headers]
    return [line.removeprefix("traceparent: ") for line in lines if line.startswith("traceparent")]


def attribute(span: Span, name: str) -> str:
    (value,) = [pair.value.string_value for pair in span.attributes if pair.key == name]
    return str(value)


async def test_a_worker_that_comes_back_late_makes_no_second_span_with_the_id_of_its_attempt() -> None:
    recorded = Recorded()
    bench = recorded.bench
    (endpoint,) = await bench.prepare()
    await bench.accept(endpoint, trace=SENDER)
    await bench.deliverer.round()
    bench.clock.advance(PLAIN.lease_seconds)
    await reclaim(bench.store, bench.directory, bench.deliverer.settler, bench.clock.now(), lambda: 0.0)
    bench.http.answer(200)
    await bench.write_down()
    lost, late = recorded.attempts
    assert [attribute(span, "doorstep.state") for span in (lost, late)] == ["pending", "late"]
    assert lost.span_id.hex() == told(bench)[0].split("-")[2], "what the receiver was told of is there"
    assert late.span_id != lost.span_id
    assert [link.span_id for link in late.links] == [lost.span_id]
    assert lost.kind == Span.SPAN_KIND_INTERNAL, "nobody is left who could say what was done"


async def test_the_span_of_a_try_that_this_worker_could_not_make_is_no_request() -> None:
    recorded = Recorded()
    bench = recorded.bench
    (endpoint,) = await bench.prepare()
    await bench.accept(endpoint, trace=SENDER)
    bench.directory.profile = _deleted_meanwhile  # type: ignore[method-assign]
    await bench.deliverer.round()
    await bench.write_down()
    (span,) = recorded.attempts
    assert attribute(span, "error.type") == Code.ENDPOINT_DELETED
    assert span.kind == Span.SPAN_KIND_INTERNAL


def _deleted_meanwhile(endpoint_id: UUID, now: Instant) -> None:
    return None


@pytest.mark.parametrize("tracing", [None, Tracing(lambda spans: None, never)])
async def test_a_receiver_is_never_told_of_a_span_that_is_not_recorded(tracing: Tracing | None) -> None:
    bench = Bench()
    bench.telemetry.tracing = tracing
    (endpoint,) = await bench.prepare()
    await bench.accept(endpoint, trace=SENDER)
    await bench.deliverer.round()
    assert told(bench) == [SENDER]


async def test_what_senders_and_errors_say_takes_no_room_in_the_cache_of_templates() -> None:
    recorded = Recorded()
    bench = recorded.bench
    (endpoint,) = await bench.prepare(1, timeout_seconds=5)
    facts._attempt_template.cache_clear()
    for number in range(20):
        await bench.accept(endpoint, trace=f"{SENDER} shop={number}")
        await bench.deliver(400 if number % 2 else 200)
    assert {span.trace_state for span in recorded.attempts} == {f"shop={number}" for number in range(20)}
    assert facts._attempt_template.cache_info().currsize <= 2
