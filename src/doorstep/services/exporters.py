"""Exports spans and metrics to an OpenTelemetry collector if the OTEL_* variables configure one.

The variables may be meant for other programs, so an invalid value only causes a warning and does not keep Doorstep from
starting.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from doorstep import __version__
from doorstep.clock import Clock
from doorstep.errors import ConfigError
from doorstep.operations.stats import Sampler
from doorstep.services.coordination import TaskLock
from doorstep.stores.store import Store, Task
from doorstep.telemetry.facts import Telemetry
from doorstep.telemetry.otlp import MetricExporter, collector_from, exporter_from
from doorstep.telemetry.tracing import Tracing
from doorstep.transports.span_exporter import SpanExporter

Warn = Callable[[str], object]
_LEASE_SECONDS_MIN = 15.0
"""Even if metrics are sent every second, a short delay of the process must not cost it the lock."""


def begin_tracing(telemetry: Telemetry, warn: Callable[[str], None]) -> SpanExporter | None:
    """Start recording spans. Returns None if no collector is configured, or if spans are already being recorded."""
    try:
        collector = collector_from(os.environ)
    except ConfigError as error:
        warn(f"no traces are exported: {error}")
        return None
    if collector is None or telemetry.tracing is not None:
        return None
    exporter = SpanExporter(collector, __version__, warn)
    telemetry.tracing = Tracing(exporter, collector.sampler)
    return exporter


async def end_tracing(telemetry: Telemetry, exporter: SpanExporter) -> None:
    """Stop recording and send the remaining spans. They are sent in a thread, so that the event loop is not blocked."""
    telemetry.tracing = None
    await asyncio.to_thread(exporter.close)


def metrics_exporters(store: Store, sampler: Sampler, clock: Clock, worker: str, warn: Warn) -> list[MetricsExporter]:
    """A list with one exporter if the export of metrics is configured, otherwise an empty list."""
    try:
        exporter = exporter_from(os.environ)
    except ConfigError as error:
        warn(f"no metrics are exported: {error}")
        return []
    return [] if exporter is None else [MetricsExporter(store, sampler, exporter, clock, worker, warn)]


class MetricsExporter:
    """Sends metrics from one process at a time.

    All processes see the same figures. If each process sent them, a collector that adds them up would count everything
    several times.
    """

    name = "metrics exporter"

    def __init__(
        self, store: Store, sampler: Sampler, exporter: MetricExporter, clock: Clock, holder: str, warn: Warn
    ) -> None:
        self._sampler = sampler
        self._exporter = exporter
        self._warn = warn
        self._accepted = True
        lease_seconds = max(2 * exporter.interval_seconds, _LEASE_SECONDS_MIN)
        self.lock = TaskLock(store, Task.METRICS, holder, clock, lease_seconds)
        self.wake = asyncio.Event()

    async def run_once(self) -> float | None:
        """Send one snapshot, unless another process is sending the metrics."""
        if await self.lock.acquire() and (snapshot := await self._sampler.snapshot()) is not None:
            self._warn_once(await asyncio.to_thread(self._exporter.export, snapshot))
        return self._exporter.interval_seconds

    async def close(self) -> None:
        """Close the connection, and let another process take over immediately."""
        await asyncio.to_thread(self._exporter.close)
        await self.lock.release()

    def _warn_once(self, accepted: bool) -> None:
        """Warn only when the collector starts to reject metrics, not at every interval."""
        if self._accepted and not accepted:
            self._warn("the collector does not accept metrics; they are sent again at every interval")
        self._accepted = accepted
