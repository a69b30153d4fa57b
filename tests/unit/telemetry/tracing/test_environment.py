"""The OpenTelemetry variables that set where spans are exported, and which spans."""

from __future__ import annotations

import pytest

from doorstep.errors import ConfigError
from doorstep.telemetry.otlp import Collector, collector_from
from doorstep.telemetry.tracing import TraceContext, at_most, parent_based

HERE = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318/"}


def collector(**more: str) -> Collector:
    found = collector_from(HERE | more)
    assert found is not None
    return found


def test_nothing_is_exported_unless_somebody_asks_for_it() -> None:
    assert collector_from({}) is None
    assert collector_from({"OTEL_SERVICE_NAME": "shop"}) is None
    assert collector_from(HERE | {"OTEL_SDK_DISABLED": "true"}) is None
    assert collector_from(HERE | {"OTEL_TRACES_EXPORTER": "none"}) is None
    assert collector_from(HERE | {"OTEL_TRACES_EXPORTER": "console"}) is None


def test_the_general_endpoint_is_completed_and_the_one_for_traces_is_taken_as_it_is() -> None:
    assert collector().url == "http://127.0.0.1:4318/v1/traces"
    assert collector(OTEL_EXPORTER_OTLP_TRACES_ENDPOINT="https://collector/in").url == "https://collector/in"
    asked = collector_from({"OTEL_TRACES_EXPORTER": "otlp"})
    assert asked is not None and asked.url == "http://localhost:4318/v1/traces"


def test_headers_and_resource_are_lists_of_pairs_in_percent_encoding() -> None:
    found = collector(
        OTEL_EXPORTER_OTLP_HEADERS="authorization=Bearer%20abc, x-org = 1",
        OTEL_RESOURCE_ATTRIBUTES="deployment.environment=test,service.name=ignored",
        OTEL_SERVICE_NAME="shop",
    )
    assert found.headers == ("authorization: Bearer abc", "x-org: 1")
    assert found.resource == {"service.name": "shop", "deployment.environment": "test"}


@pytest.mark.parametrize(("given", "seconds"), [("10000", 10), ("10", 10), ("1500", 1.5)])
def test_a_timeout_may_be_meant_in_milliseconds_or_seconds(given: str, seconds: float) -> None:
    assert collector(OTEL_EXPORTER_OTLP_TIMEOUT=given).timeout_seconds == seconds
    assert collector(OTEL_EXPORTER_OTLP_TRACES_TIMEOUT=given, OTEL_EXPORTER_OTLP_TIMEOUT="7").timeout_seconds == seconds


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "0"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "0.5"),  # read as 0, it would make export never end
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "-1"),
        ("OTEL_BSP_SCHEDULE_DELAY", "0.001"),
        ("OTEL_TRACES_SAMPLER", "sometimes"),
        ("OTEL_TRACES_SAMPLER_ARG", "2"),
    ],
)
def test_what_cannot_be_meant_is_named(variable: str, value: str) -> None:
    with pytest.raises(ConfigError, match=variable):
        collector(**{variable: value})


def traced(parent: bool | None, number: int = 1) -> TraceContext:
    return TraceContext(number, 0, parent, "")


@pytest.mark.parametrize(
    ("sampler", "decisions"),
    [
        ("", (True, False, True)),
        ("parentbased_always_on", (True, False, True)),
        ("always_on", (True, True, True)),
        ("always_off", (False, False, False)),
        ("parentbased_always_off", (True, False, False)),
    ],
)
def test_the_sampler_decides_for_sampled_unsampled_and_new_traces(sampler: str, decisions: tuple[bool, ...]) -> None:
    decide = collector(OTEL_TRACES_SAMPLER=sampler).sampler
    assert tuple(decide(traced(parent)) for parent in (True, False, None)) == decisions


def test_a_share_of_traces_is_chosen_by_their_ids() -> None:
    decide = collector(OTEL_TRACES_SAMPLER="traceidratio", OTEL_TRACES_SAMPLER_ARG="0.25").sampler
    step = (1 << 56) // 1_000 + 1
    assert sum(decide(traced(None, number * step)) for number in range(1_000)) == 250


def test_unless_told_otherwise_a_hundred_traces_are_begun_a_second_and_those_of_senders_go_on() -> None:
    seconds = iter([5.0] * 150 + [6.9] * 150)
    decide = parent_based(at_most(100, lambda: next(seconds)))
    assert [sum(decide(traced(None)) for _ in range(150)) for _ in range(2)] == [100, 100]
    assert all(decide(traced(True)) for _ in range(1_000))
