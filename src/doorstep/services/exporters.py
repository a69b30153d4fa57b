"""Spans and metrics to a collector, where the OTEL_* variables say so.

They are not ours alone: what is wrong with them is told, and stops nothing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from doorstep import __version__
from doorstep.clock import Clock
from doorstep.errors import ConfigError
from doorstep.operations.otel_metrics import exporter_from
from doorstep.operations.stats import Sampler
from doorstep.services.metrics_exporter import MetricsExporter
from doorstep.stores.store import Store
from doorstep.telemetry.facts import Telemetry
from doorstep.telemetry.otlp import collector_from
from doorstep.telemetry.tracing import Tracing
from doorstep.transports.span_exporter import SpanExporter

Warn = Callable[[str], None]


def begin_tracing(telemetry: Telemetry, warn: Warn) -> SpanExporter | None:
    """Have spans recorded; None if they are not wanted, or somebody records them already."""
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
    """Record no more, and send what is left; the event loop is not kept waiting for the collector."""
    telemetry.tracing = None
    await asyncio.to_thread(exporter.close)


def meters(store: Store, sampler: Sampler, clock: Clock, worker: str, warn: Warn) -> list[MetricsExporter]:
    """One, if metrics are wanted."""
    try:
        exporter = exporter_from(os.environ)
    except ConfigError as error:
        warn(f"no metrics are exported: {error}")
        return []
    return [] if exporter is None else [MetricsExporter(store, sampler, exporter, clock, worker, warn)]
