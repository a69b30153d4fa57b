"""The metrics in the Prometheus text format: a snapshot of the store, and a few metrics of this process."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from pathlib import Path

import prometheus_client as prometheus
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from doorstep.clock import SECOND, Instant
from doorstep.telemetry.logs import LogWriter
from doorstep.telemetry.metrics import Distribution, Kind, Load, Measure, Snapshot, Value, readings

CONTENT_TYPE = prometheus.CONTENT_TYPE_LATEST


def text(snapshot: Snapshot | None, load: Load, now: Instant) -> bytes:
    """The body of /metrics."""
    stored = (
        _histogram(measure, read) if isinstance(read, Distribution) else _numbers(measure, read)
        for measure, read in readings(snapshot)
    )
    return prometheus.generate_latest(_Fixed([*stored, *_of_process(snapshot, load, now)]))


class _Fixed(Collector):
    """A fixed list of metrics, used in place of a registry."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = list(metrics)

    def collect(self) -> Iterator[Metric]:
        return iter(self._metrics)


def _numbers(measure: Measure, values: Iterable[Value]) -> Metric:
    family = CounterMetricFamily if measure.kind is Kind.COUNTER else GaugeMetricFamily
    metric: Metric = family(measure.name.removesuffix("_total"), measure.about, labels=measure.labels)
    for value in values:
        metric.add_metric([value.labels[name] for name in measure.labels], value.number)  # type: ignore[attr-defined]
    return metric


def _histogram(measure: Measure, read: Distribution) -> Metric:
    bounds = [*(str(float(bound)) for bound in read.bounds), "+Inf"]
    buckets = list(zip(bounds, accumulate(read.counts), strict=True))
    return HistogramMetricFamily(measure.name, measure.about, buckets=buckets, sum_value=read.total)


# -- this process ------------------------------------------------------------------------------------------

PROCESS: Mapping[str, tuple[Kind, str]] = {
    "doorstep_process_cpu_seconds_total": (Kind.COUNTER, "Processor time that this process has used"),
    "doorstep_process_resident_bytes": (Kind.GAUGE, "Memory that this process uses"),
    "doorstep_process_accepts_waiting": (Kind.GAUGE, "Events that wait to be stored by this process"),
    "doorstep_process_places_in_use": (Kind.GAUGE, "Attempts in flight in this process"),
    "doorstep_process_log_lines_dropped_total": (
        Kind.COUNTER,
        "Log lines dropped because of a slow reader or a full disk",
    ),
    "doorstep_process_snapshot_age_seconds": (Kind.GAUGE, "Age of the snapshot that the other metrics are taken from"),
}


def _of_process(snapshot: Snapshot | None, load: Load, now: Instant) -> Iterator[Metric]:
    numbers = (
        time.process_time(),
        _resident_bytes(),
        load.accepts_waiting,
        load.places_in_use,
        LogWriter.dropped_ever,
        math.inf if snapshot is None else (now - snapshot.taken_at) / SECOND,
    )
    for (name, (kind, about)), number in zip(PROCESS.items(), numbers, strict=True):
        yield _numbers(Measure(name, kind, about, lambda _: ()), [Value(number)])


def _resident_bytes() -> float:
    """The memory that this process uses; 0 on systems without Linux's /proc."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except OSError:
        return 0.0
    return float(int(pages) * os.sysconf("SC_PAGE_SIZE"))
