"""Metrics: a snapshot of the store in the words of Prometheus, and a few figures of this process beside it."""

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
from doorstep.operations.measures import Distribution, Kind, Measure, Value, readings
from doorstep.operations.stats import Load, Snapshot
from doorstep.telemetry.log_writer import LogWriter

CONTENT_TYPE = prometheus.CONTENT_TYPE_LATEST


def text(seen: Snapshot | None, load: Load, now: Instant) -> bytes:
    """What /metrics shows."""
    return prometheus.generate_latest(_Told([*_of_store(seen), *_of_process(seen, load, now)]))


class _Told(Collector):
    """Metrics that are known already, in the place of a registry."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = list(metrics)

    def collect(self) -> Iterator[Metric]:
        return iter(self._metrics)


def _of_store(seen: Snapshot | None) -> Iterator[Metric]:
    for measure, read in readings(seen):
        yield _histogram(measure, read) if isinstance(read, Distribution) else _numbers(measure, read)


def _numbers(measure: Measure, values: Iterable[Value]) -> Metric:
    family = CounterMetricFamily if measure.kind is Kind.COUNTER else GaugeMetricFamily
    told: Metric = family(measure.name.removesuffix("_total"), measure.about, labels=measure.labels)
    for value in values:
        told.add_metric([value.labels[name] for name in measure.labels], value.number)  # type: ignore[attr-defined]
    return told


def _histogram(measure: Measure, read: Distribution) -> Metric:
    bounds = [*(str(float(bound)) for bound in read.bounds), "+Inf"]
    buckets = list(zip(bounds, accumulate(read.counts), strict=True))
    return HistogramMetricFamily(measure.name, measure.about, buckets=buckets, sum_value=read.total)


# -- this process ------------------------------------------------------------------------------------------

PROCESS: Mapping[str, tuple[Kind, str]] = {
    "doorstep_process_cpu_seconds_total": (Kind.COUNTER, "Processor time that this process has used"),
    "doorstep_process_resident_bytes": (Kind.GAUGE, "Memory that this process has"),
    "doorstep_process_accepts_waiting": (Kind.GAUGE, "Events that wait here to be stored"),
    "doorstep_process_places_in_use": (Kind.GAUGE, "Attempts under way in this process"),
    "doorstep_process_log_lines_dropped_total": (Kind.COUNTER, "Log lines that a slow reader or a full disk cost"),
    "doorstep_process_snapshot_age_seconds": (Kind.GAUGE, "How old what it tells of the store is"),
}


def _of_process(seen: Snapshot | None, load: Load, now: Instant) -> Iterator[Metric]:
    numbers = (
        time.process_time(),
        _resident_bytes(),
        load.accepts_waiting,
        load.places_in_use,
        LogWriter.dropped_ever,
        math.inf if seen is None else (now - seen.taken_at) / SECOND,
    )
    for (name, (kind, about)), number in zip(PROCESS.items(), numbers, strict=True):
        yield _numbers(Measure(name, kind, about, lambda _: ()), [Value(number)])


def _resident_bytes() -> float:
    """0 where the system does not tell it in the way of Linux."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except OSError:
        return 0.0
    return float(int(pages) * os.sysconf("SC_PAGE_SIZE"))
