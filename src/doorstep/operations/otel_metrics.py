"""The metrics in the words of OpenTelemetry, sent to a collector (extra `otel`).

There are no instruments: the store has counted already, so its figures are worded as data points and handed to the
exporter, which reads the OTEL_* variables by itself. They are of the whole installation, whoever sends them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from doorstep import __version__
from doorstep.clock import Instant
from doorstep.errors import ConfigError
from doorstep.operations.measures import Distribution, Kind, Measure, Value, readings
from doorstep.operations.stats import Snapshot

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import Metric

_INTERVAL_MILLISECONDS = 60_000.0
_NANOSECONDS = 1_000
"""In a microsecond."""


class MetricExporter:
    """Hands snapshots to the collector; blocking, so to be called in a thread."""

    def __init__(self, interval_seconds: float) -> None:
        """ConfigError where the extra is not installed."""
        try:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
            from opentelemetry.sdk.resources import Resource
        except ImportError:
            raise ConfigError("the extra `otel` is not installed; pip install 'doorstep[otel]'") from None
        self.interval_seconds = interval_seconds
        self._resource = Resource({"service.name": "doorstep"}).merge(_said(Resource.create()))
        self._exporter = OTLPMetricExporter()

    def export(self, seen: Snapshot) -> bool:
        """Whether the collector took it; the exporter tries again by itself, and logs why not."""
        from opentelemetry.sdk.metrics import export as sdk
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        scope = sdk.ScopeMetrics(InstrumentationScope("doorstep", __version__), list(_metrics(seen)), schema_url="")
        data = sdk.MetricsData([sdk.ResourceMetrics(self._resource, [scope], schema_url="")])
        return self._exporter.export(data) is sdk.MetricExportResult.SUCCESS

    def close(self) -> None:
        self._exporter.shutdown()


def exporter_from(environment: Mapping[str, str]) -> MetricExporter | None:
    """None if no metrics are to be exported; ConfigError for what cannot be meant."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true" or not _wanted(environment):
        return None
    text = environment.get("OTEL_METRIC_EXPORT_INTERVAL", "").strip()
    try:
        milliseconds = float(text or _INTERVAL_MILLISECONDS)
    except ValueError:
        milliseconds = -1
    if not 100 <= milliseconds <= 86_400_000:
        raise ConfigError(f"OTEL_METRIC_EXPORT_INTERVAL must be from 100 to 86400000 milliseconds, got {text[:40]!r}")
    return MetricExporter(milliseconds / 1_000)


def _wanted(environment: Mapping[str, str]) -> bool:
    exporter = environment.get("OTEL_METRICS_EXPORTER", "").strip()
    named = any(environment.get(f"OTEL_EXPORTER_OTLP_{name}", "") for name in ("ENDPOINT", "METRICS_ENDPOINT"))
    return exporter == "otlp" or (exporter == "" and named)


def _said(resource: Any) -> Any:
    """What the variables say of us, without the name that stands for none."""
    from opentelemetry.sdk.resources import Resource

    attributes = resource.attributes.items()
    return Resource({name: value for name, value in attributes if not str(value).startswith("unknown_service")})


def _metrics(seen: Snapshot) -> Iterator[Metric]:
    from opentelemetry.sdk.metrics.export import Metric

    for measure, read in readings(seen):
        yield Metric(
            measure.name.removesuffix("_total"), measure.about, measure.unit, _data(measure, read, seen.taken_at)
        )


def _data(measure: Measure, read: Sequence[Value] | Distribution, at: Instant) -> Any:
    from opentelemetry.sdk.metrics import export as sdk

    cumulative = sdk.AggregationTemporality.CUMULATIVE
    if isinstance(read, Distribution):
        return sdk.Histogram([_histogram_point(read, at)], cumulative)
    points = [sdk.NumberDataPoint(dict(one.labels), 0, at * _NANOSECONDS, one.number) for one in read]
    if measure.kind is Kind.COUNTER:
        return sdk.Sum(points, cumulative, is_monotonic=True)
    return sdk.Gauge(points)


def _histogram_point(read: Distribution, at: Instant) -> Any:
    from opentelemetry.sdk.metrics.export import HistogramDataPoint

    return HistogramDataPoint(
        attributes={},
        start_time_unix_nano=0,
        time_unix_nano=at * _NANOSECONDS,
        count=sum(read.counts),
        sum=read.total,
        bucket_counts=list(read.counts),
        explicit_bounds=[float(bound) for bound in read.bounds],
        min=None,  # type: ignore[arg-type]  # optional in the protocol; buckets do not tell it
        max=None,  # type: ignore[arg-type]
    )
