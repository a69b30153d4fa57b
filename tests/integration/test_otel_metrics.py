"""OpenTelemetry: a real collector gets the same figures that /metrics shows, and only one process sends them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from doorstep.errors import ConfigError
from doorstep.telemetry.metrics import MEASURES
from doorstep.telemetry.otlp import exporter_from
from tests.support.collector import Collector, collecting
from tests.support.program import Program, running, serving, wait_for
from tests.support.receiver import receiving

INTERVAL = "300"


def environment(collector: Collector) -> dict[str, str]:
    return {
        "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": f"{collector.url}/v1/metrics",
        "OTEL_METRIC_EXPORT_INTERVAL": INTERVAL,
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=test",
        "DOORSTEP_ALLOW_ADDRESSES": "127.0.0.0/8",
    }


def received(collector: Collector) -> list[dict[str, Any]]:
    """The metrics of each export request by name, decoded by OpenTelemetry's own library."""
    requests = [ExportMetricsServiceRequest.FromString(body) for body in list(collector.others)]
    return [
        {one.name: one for whole in request.resource_metrics for scope in whole.scope_metrics for one in scope.metrics}
        for request in requests
    ]


def said(program: Program) -> Callable[[], str]:
    """A failure message for a missing export, with the program's own output."""
    return lambda: "\n".join(["it did not come", *program.err, *program.out[-20:]])


def test_a_collector_gets_the_figures_that_metrics_shows(tmp_path: Path) -> None:
    with collecting() as collector, receiving() as receiver:
        with serving(tmp_path, environment=environment(collector)) as program:
            program.post("/v1/endpoints", {"name": "shop", "url": receiver.url})
            program.post("/v1/events", {"event_type": "order.paid", "payload": 1})
            wait_for(lambda: delivered(collector) == 1, said(program))
            told = received(collector)[-1]
        assert told.keys() >= {one.name.removesuffix("_total") for one in MEASURES}
        assert {one.unit for one in told.values() if one.unit != "s" and not one.unit.startswith("{")} == set(), (
            "a bare 1 is a ratio to a collector, which adds that to the name"
        )
        created = told["doorstep_events_created"].sum
        assert created.is_monotonic and created.aggregation_temporality == 2, "cumulative"
        times = told["doorstep_time_to_delivery_seconds"].histogram.data_points[0]
        assert times.count == 1 and sum(times.bucket_counts) == 1 and len(times.explicit_bounds) == 20
        assert {point.attributes[0].value.string_value for point in told["doorstep_events"].gauge.data_points} == {
            "received", "queued", "delivered", "failed"
        }  # fmt: skip
        resource = ExportMetricsServiceRequest.FromString(collector.others[-1]).resource_metrics[0].resource
        named = {one.key: one.value.string_value for one in resource.attributes}
        assert named["service.name"] == "doorstep" and named["deployment.environment"] == "test"


def delivered(collector: Collector) -> float:
    told = received(collector)
    if not told:
        return 0
    point = told[-1]["doorstep_events_delivered"].sum.data_points[0]
    return float(point.as_double or point.as_int)


def test_of_several_processes_one_sends_and_another_goes_on_when_that_has_ended(tmp_path: Path) -> None:
    with (
        collecting() as first,
        collecting() as second,
        serving(tmp_path, environment=environment(first)) as program,
    ):
        wait_for(lambda: len(first.others) >= 2, said(program))
        with running("worker", folder=tmp_path, environment=environment(second)) as worker:
            before = len(first.others)
            wait_for(lambda: len(first.others) >= before + 4, said(program))
            assert second.others == []
            assert program.stop() == 0
            wait_for(lambda: second.others, said(worker))
            assert worker.process.poll() is None


def test_a_collector_that_refuses_is_told_once_and_costs_nothing_else(tmp_path: Path) -> None:
    with collecting() as collector:
        collector.status = 400
        with serving(tmp_path, environment=environment(collector)) as program:
            wait_for(lambda: len(collector.others) >= 4, said(program))
            assert program.get("/readyz").status == 200
            notices = [one["message"] for one in program.facts("notice") if "does not accept metrics" in one["message"]]
            assert len(notices) == 1


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_METRICS_EXPORTER": "none"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"},
    ],
    ids=["nothing said", "no metrics", "switched off"],
)
def test_nothing_is_sent_that_nobody_asked_for(variables: dict[str, str]) -> None:
    assert exporter_from(variables) is None


def test_an_interval_that_cannot_be_meant_and_a_missing_extra_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = {"OTEL_METRICS_EXPORTER": "otlp"}
    with pytest.raises(ConfigError, match="OTEL_METRIC_EXPORT_INTERVAL"):
        exporter_from(wanted | {"OTEL_METRIC_EXPORT_INTERVAL": "soon"})
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.metric_exporter", None)
    with pytest.raises(ConfigError, match="otel"):
        exporter_from(wanted)
