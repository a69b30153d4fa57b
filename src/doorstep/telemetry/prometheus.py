"""The metrics in the Prometheus text format: a snapshot of the store, and a few metrics of this process."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple, cast

import prometheus_client as prometheus
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from doorstep.clock import SECOND, AnchoredClock, Instant
from doorstep.telemetry.logs import LogWriter
from doorstep.telemetry.metrics import Distribution, Kind, Load, Measure, Reading, Snapshot, Value, readings
from doorstep.telemetry.timings import SECONDS, Timing, Timings

CONTENT_TYPE = prometheus.CONTENT_TYPE_LATEST


def text(snapshot: Snapshot | None, load: Load, now: Instant, timings: Timings | None = None) -> bytes:
    """The body of /metrics."""
    stored = (_metric(measure, read) for measure, read in readings(snapshot))
    timed = (_metric(measure, measure.read(timings or Timings())) for measure in TIMED)
    own = _of_process(snapshot, load, now, timings or Timings())
    return prometheus.generate_latest(_Fixed([*stored, *own, *timed]))


class _Fixed(Collector):
    """A fixed list of metrics, used in place of a registry."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = list(metrics)

    def collect(self) -> Iterator[Metric]:
        return iter(self._metrics)


_FAMILIES = {
    Kind.COUNTER: CounterMetricFamily,
    Kind.GAUGE: GaugeMetricFamily,
    Kind.HISTOGRAM: HistogramMetricFamily,
}


def _metric(measure: Measure | Timed, read: Reading) -> Metric:
    metric: Any = _FAMILIES[measure.kind](measure.name.removesuffix("_total"), measure.about, labels=measure.labels)
    for one in read:
        labels = [one.labels[name] for name in measure.labels]
        metric.add_metric(labels, *(_buckets(one) if isinstance(one, Distribution) else (one.number,)))
    return cast(Metric, metric)


def _buckets(read: Distribution) -> tuple[list[tuple[str, int]], float]:
    bounds = [*(str(float(bound)) for bound in read.bounds), "+Inf"]
    return list(zip(bounds, accumulate(read.counts), strict=True)), read.total


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
    "doorstep_process_attempts_postponed_total": (
        Kind.COUNTER,
        "Attempts that this process could not make because it lacked file descriptors, memory for sockets or local ports",
    ),
    "doorstep_process_clock_jumps_total": (
        Kind.COUNTER,
        "Times that the clock of this process was set by a second or more",
    ),
    "doorstep_process_snapshot_age_seconds": (Kind.GAUGE, "Age of the snapshot that the other metrics are taken from"),
}


class Timed(NamedTuple):
    """A metric that this process measures itself."""

    name: str
    kind: Kind
    about: str
    read: Callable[[Timings], Reading]
    labels: tuple[str, ...] = ()


def _requests(timings: Timings) -> list[Distribution]:
    return [
        _distribution(timing, {"method": kind.method, "route": kind.route, "status": str(kind.status)})
        for kind, timing in sorted(timings.requests.items())
    ]


def _distribution(timing: Timing, labels: Mapping[str, str]) -> Distribution:
    return Distribution(SECONDS, tuple(timing.counts), timing.total, labels)


TIMED: tuple[Timed, ...] = (
    Timed(
        "doorstep_http_request_seconds",
        Kind.HISTOGRAM,
        "Requests that this process answered, and how long they took; `route` is empty if no route was reached",
        _requests,
        ("method", "route", "status"),
    ),
    Timed(
        "doorstep_retry_scheduled_seconds",
        Kind.HISTOGRAM,
        "Time from the failure of an attempt in this process until its retry was stored",
        lambda timings: [_distribution(timings.retry_scheduled, {})],
    ),
    Timed(
        "doorstep_connections",
        Kind.GAUGE,
        "Open connections to the web server, by whether they have shown a valid key",
        lambda timings: [
            Value(timings.connections.identified, {"key": "valid"}),
            Value(timings.connections.keyless, {"key": "none"}),
        ],
        ("key",),
    ),
    Timed(
        "doorstep_connections_closed_total",
        Kind.COUNTER,
        "Connections that the web server closed because of a timeout or a limit",
        lambda timings: [Value(count, {"reason": reason}) for reason, count in timings.connections.closed.items()],
        ("reason",),
    ),
)


def _of_process(snapshot: Snapshot | None, load: Load, now: Instant, timings: Timings) -> Iterator[Metric]:
    numbers = (
        time.process_time(),
        _resident_bytes(),
        load.accepts_waiting,
        load.places_in_use,
        LogWriter.dropped_ever,
        timings.attempts_prevented,
        AnchoredClock.jumps_ever,
        math.inf if snapshot is None else (now - snapshot.taken_at) / SECOND,
    )
    for (name, (kind, about)), number in zip(PROCESS.items(), numbers, strict=True):
        yield _metric(Measure(name, kind, about, lambda _: ()), [Value(number)])


def _resident_bytes() -> float:
    """The memory that this process uses; 0 on systems without Linux's /proc."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except OSError:
        return 0.0
    return float(int(pages) * os.sysconf("SC_PAGE_SIZE"))
