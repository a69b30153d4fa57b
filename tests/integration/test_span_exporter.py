"""The span exporter against a real collector: it reports dropped spans and blocks nothing."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from doorstep.services.exporters import end_tracing
from doorstep.telemetry.facts import Telemetry
from doorstep.telemetry.otlp import SpanKind, collector_from, encode_span, template
from doorstep.telemetry.tracing import Tracing
from doorstep.transports.span_exporter import SpanExporter
from tests.support.collector import Collector, collecting
from tests.support.program import wait_for


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as it:
        yield it


def exporter(url: str, warnings: list[str], **more: Any) -> SpanExporter:
    found = collector_from({"OTEL_EXPORTER_OTLP_ENDPOINT": url})
    assert found is not None
    return SpanExporter(found._replace(delay_seconds=60.0)._replace(**more), "1", warnings.append)


def span(number: int) -> bytes:
    form = template("doorstep.attempt", SpanKind.CLIENT, (), parent=False, linked=False)
    return encode_span(form, 1, number, 0, 1, 2, UUID(int=number), None, "")


def ids(collector: Collector) -> list[int]:
    return sorted(int(one.span_id, 16) for one in collector.spans)


def test_spans_that_find_no_room_are_counted_and_told_though_no_request_fails(collector: Collector) -> None:
    warnings: list[str] = []
    exporting = exporter(collector.url, warnings, queue_max=3)
    exporting([span(number) for number in range(1, 11)])
    exporting([span(11)])
    assert exporting.dropped == 8
    exporting.close()
    assert ids(collector) == [1, 2, 3]
    (line,) = warnings
    assert "faster than the trace collector" in line and "8 have been dropped" in line


def test_what_a_dead_collector_leaves_behind_at_the_end_is_told(collector: Collector) -> None:
    collector.status = 400
    warnings: list[str] = []
    exporting = exporter(collector.url, warnings, batch_max=10)
    exporting([span(number) for number in range(1, 6)])
    exporting.close()
    (line,) = warnings
    assert "it answered 400" in line and "5 have been dropped" in line


async def test_the_event_loop_goes_on_while_the_last_spans_are_sent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        exporting = exporter(f"http://127.0.0.1:{silent.getsockname()[1]}", [], timeout_seconds=0.5)
        exporting([span(1)])
        ending = asyncio.create_task(end_tracing(Telemetry(), exporting))
        turns = 0
        while not ending.done():
            await asyncio.sleep(0.01)
            turns += 1
    assert turns > 10


def test_a_forked_process_sends_its_own_spans_and_not_those_of_its_parent(collector: Collector) -> None:
    exporting = exporter(collector.url, [])
    recording = Tracing(exporting)
    recording.record([span(1)])
    child = os.fork()
    if child == 0:
        recording.record([span(2)])
        exporting.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    wait_for(lambda: ids(collector) == [2], lambda: f"{ids(collector)}")
    recording.record([span(3)])
    exporting.close()
    assert ids(collector) == [1, 2, 3]
