"""The output of /metrics: the snapshot in Prometheus format, checked with Prometheus' own parser."""

from __future__ import annotations

import math

from prometheus_client.parser import text_string_to_metric_families

from doorstep.clock import SECOND
from doorstep.model.endpoint import CircuitState
from doorstep.model.rollup import Figures
from doorstep.telemetry import prometheus
from doorstep.telemetry.metrics import MEASURES, EndpointFigures, Load, Snapshot
from tests.support.builders import NOW, an_endpoint, new_id

LOAD = Load(accepts_waiting=3, places_in_use=2)
FIGURES = Figures(created=5, succeeded=3, ttd_0=2, ttd_20=1, ttd_ms=2_000, retries_0=1, retries_7=2, now_queued=4)


def seen(**changes: object) -> Snapshot:
    circuits = {CircuitState.CLOSED: 2, CircuitState.OPEN: 1, CircuitState.HALF_OPEN: 0}
    return Snapshot(NOW, FIGURES, circuits, 1, 2.5)._replace(**changes)


def read(snapshot: Snapshot | None) -> dict[str, float]:
    text = prometheus.text(snapshot, LOAD, NOW + 4 * SECOND).decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {f"{one.name}{sorted(one.labels.items()) or ''}": one.value for one in samples}


def test_counters_gauges_and_labels_say_what_the_snapshot_does() -> None:
    told = read(seen())
    assert told["doorstep_events_created_total"] == 5
    assert told["doorstep_attempts_total[('outcome', 'succeeded')]"] == 3
    assert told["doorstep_events[('status', 'queued')]"] == told["doorstep_events_queued"] == 4
    assert told["doorstep_circuits[('state', 'open')]"] == 1
    assert told["doorstep_oldest_due_seconds"] == 2.5


def test_buckets_add_up_to_their_count() -> None:
    told = read(seen())
    assert told["doorstep_time_to_delivery_seconds_bucket[('le', '0.005')]"] == 2
    assert told["doorstep_time_to_delivery_seconds_bucket[('le', '259200.0')]"] == 2
    assert told["doorstep_time_to_delivery_seconds_bucket[('le', '+Inf')]"] == 3
    assert told["doorstep_time_to_delivery_seconds_count"] == 3 and told["doorstep_time_to_delivery_seconds_sum"] == 2
    assert told["doorstep_retry_attempts_bucket[('le', '6.0')]"] == 1
    assert told["doorstep_retry_attempts_count"] == 3 and told["doorstep_retry_attempts_sum"] == 14


def test_each_endpoint_has_its_own_histogram_of_response_times() -> None:
    endpoints = [an_endpoint(new_id(), name=name) for name in ("slow", "quick")]
    figures = (Figures(response_0=1, response_13=1, response_us=90 * SECOND), Figures(response_2=3, response_us=60_000))
    told = read(seen(endpoints=[EndpointFigures(*one, False) for one in zip(endpoints, figures, strict=True)]))
    of = {one.name: f"('endpoint', '{one.name}'), ('endpoint_id', '{one.endpoint_id}')" for one in endpoints}
    metric = "doorstep_endpoint_response_seconds"
    assert told[f"{metric}_bucket[{of['slow']}, ('le', '60.0')]"] == 1
    assert told[f"{metric}_bucket[{of['slow']}, ('le', '+Inf')]"] == told[f"{metric}_count[{of['slow']}]"] == 2
    assert told[f"{metric}_sum[{of['slow']}]"] == 90
    assert told[f"{metric}_bucket[{of['quick']}, ('le', '0.025')]"] == 3
    assert told[f"{metric}_sum[{of['quick']}]"] == 0.06


def test_the_process_tells_its_load_and_how_old_its_figures_are() -> None:
    told = read(seen())
    assert told["doorstep_process_snapshot_age_seconds"] == 4
    assert told["doorstep_process_accepts_waiting"] == 3 and told["doorstep_process_places_in_use"] == 2
    assert told["doorstep_process_cpu_seconds_total"] > 0 and told["doorstep_process_resident_bytes"] > 2**20


def test_before_the_store_has_ever_answered_there_is_only_the_process_and_an_endless_age() -> None:
    told = read(None)
    timed = tuple(one.name for one in prometheus.TIMED)
    assert all(name.startswith(("doorstep_process_", *timed)) for name in told)
    assert told["doorstep_process_snapshot_age_seconds"] == math.inf


def test_a_hostile_endpoint_name_cannot_break_out_of_its_label() -> None:
    hostile = 'x"} 1\ndoorstep_events_created_total 99\n# \\'
    one = EndpointFigures(an_endpoint(new_id(), name=hostile), FIGURES, circuit_open=True)
    told = read(seen(endpoints=(one,)))
    assert told["doorstep_events_created_total"] == 5
    assert any(hostile.encode("unicode_escape").decode()[:5] in name for name in told)


def test_no_two_metrics_share_a_name_in_either_text_format() -> None:
    names = [one.name.removesuffix("_total") for one in MEASURES] + [
        name.removesuffix("_total") for name in (*prometheus.PROCESS, *(one.name for one in prometheus.TIMED))
    ]
    assert len(names) == len(set(names))
