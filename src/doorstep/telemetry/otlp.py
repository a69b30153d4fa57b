"""Spans and metrics for OpenTelemetry collectors (OTLP), and the OTEL_* variables.

Spans are encoded by hand, as an ExportTraceServiceRequest in protobuf: the message needs only a few fields, and
encoding a span takes 2 µs instead of 38 µs with the OpenTelemetry SDK. The part that many spans have in common is
encoded once, as a template into which ids and times are inserted. The tests read the result with OpenTelemetry's own
decoder. Metrics are sent only once a minute, so the SDK encodes them (extra `otel`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import lru_cache
from math import nan
from struct import Struct
from typing import Any, NamedTuple
from urllib.parse import unquote
from uuid import UUID

from doorstep import __version__
from doorstep.clock import Instant
from doorstep.errors import ConfigError, MissingExtra
from doorstep.telemetry.metrics import Distribution, Kind, Measure, Reading, Snapshot, readings
from doorstep.telemetry.tracing import Sampler, always, at_most, never, parent_based, ratio

_pack_times = Struct("<BQBQ").pack
_START, _END = 7 << 3 | 1, 8 << 3 | 1
_ERROR = b"\x18\x02"
"""The encoded code (field 3) of an error status."""
_SAMPLED = b"\x85\x01" + (1).to_bytes(4, "little")
"""The encoded flags of a span (field 16): sampled."""

Attributes = tuple[tuple[str, str | int], ...]


class SpanKind(IntEnum):
    INTERNAL = 1
    CLIENT = 3
    PRODUCER = 4
    CONSUMER = 5


Template = bytes
"""The part that spans of one kind have in common, with a `%b` for each part that differs."""


def template(name: str, kind: SpanKind, attributes: Attributes, *, parent: bool, linked: bool) -> Template:
    """A template for spans with these attributes. Attributes are ids, codes and numbers, never payloads.

    Correlation ids and error messages are not part of the template, because hardly any spans could then share one.
    """
    before = b"\x0a\x10%b\x12\x08%b" + (b"\x22\x08%b" if parent else b"%b")
    content = _text(5, name) + bytes([6 << 3, kind]) + _attributes(attributes)
    link = b"\x6a\x1c\x0a\x10%b\x12\x08%b" if linked else b"%b%b"
    return before + content.replace(b"%", b"%%") + _SAMPLED + b"%b%b%b%b%b%b%b" + link


def encode_span(
    form: Template,
    trace_id: int,
    span_id: int,
    parent_id: int,
    started_at: Instant,
    ended_at: Instant,
    event_id: UUID,
    delivery_id: UUID | None,
    correlation_id: str,
    linked_id: int = 0,
    state: str = "",
    error: str = "",
) -> bytes:
    """One encoded span, ready to be put into a request."""
    correlation = correlation_id.encode()
    trace = trace_id.to_bytes(16, "big")
    message = form % (
        trace,
        span_id.to_bytes(8, "big"),
        parent_id.to_bytes(8, "big") if parent_id else b"",
        _pack_times(_START, started_at * 1_000, _END, (max(started_at, ended_at)) * 1_000),
        _EVENT_ID,
        _dashed(event_id),
        b"" if delivery_id is None else _DELIVERY_ID + _dashed(delivery_id),
        _before("doorstep.correlation_id", len(correlation)),
        correlation,
        _state_and_error(state, error) if state or error else b"",
        trace if linked_id else b"",
        linked_id.to_bytes(8, "big") if linked_id else b"",
    )
    return b"\x12" + _varint(len(message)) + message


def _state_and_error(state: str, error: str) -> bytes:
    """The encoded tracestate of the sender, if any, and an error status, if any."""
    return (_text(3, state) if state else b"") + (_field(15, _text(2, error) + _ERROR) if error else b"")


class Requests:
    """Builds request bodies from the spans of one process."""

    def __init__(self, resource: Mapping[str, str], version: str) -> None:
        self._resource = _field(1, _attributes(tuple(resource.items()), field=1))
        self._scope = _field(1, _text(1, "doorstep") + _text(2, version))

    def request(self, spans: Sequence[bytes]) -> bytes:
        return _field(1, self._resource + _field(2, self._scope + b"".join(spans)))


def _dashed(uid: UUID) -> bytes:
    text = b"%032x" % uid.int
    return b"%b-%b-%b-%b-%b" % (text[:8], text[8:12], text[12:16], text[16:20], text[20:])


def _attributes(attributes: Attributes, field: int = 9) -> bytes:
    return b"".join([_field(field, _text(1, name) + _field(2, _value(value))) for name, value in attributes])


def _value(value: str | int) -> bytes:
    return _text(1, value) if isinstance(value, str) else b"\x18" + _varint(value)


def _text(field: int, text: str) -> bytes:
    return _field(field, text.encode("utf-8", "replace"))


def _field(field: int, content: bytes) -> bytes:
    """An encoded field of a message: a nested message, a text, or bytes."""
    return _TAGS[field] + _varint(len(content)) + content


@lru_cache(maxsize=4_096)
def _varint(number: int) -> bytes:
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


_TAGS = [bytes([number << 3 | 2]) for number in range(16)]


@lru_cache(maxsize=256)
def _before(name: str, length: int) -> bytes:
    """The bytes that precede the text in an encoded attribute whose text has this length."""
    value = "-" * length
    return _attributes(((name, value),))[: -length or None]


_EVENT_ID, _DELIVERY_ID = _before("doorstep.event_id", 36), _before("doorstep.delivery_id", 36)

# -- the OTEL_* variables --------------------------------------------------------------------------------------

_DEFAULT_ENDPOINT = "http://localhost:4318"
_PROTOCOL = "http/protobuf"
_MILLISECONDS_FROM = 500
TRACES_PER_SECOND = 100
"""By default, one process starts at most this many traces per second. Traces that senders started do not count toward
this limit."""


class Collector(NamedTuple):
    """Where spans are sent, and how."""

    url: str
    headers: tuple[str, ...]
    """Never logged, because they may contain credentials."""
    timeout_seconds: float
    compressed: bool
    certificate: str | None
    """A file with the certificates to trust instead of the system's."""
    queue_max: int
    batch_max: int
    delay_seconds: float
    resource: Mapping[str, str]
    sampler: Sampler


def collector_from(environment: Mapping[str, str]) -> Collector | None:
    """The collector from the OTEL_* variables; None if tracing is off. Raises ConfigError for invalid values."""
    given = _Variables(environment)
    if not given.enabled("TRACES"):
        return None
    protocol = given.of_otlp("PROTOCOL") or _PROTOCOL
    if protocol != _PROTOCOL:
        raise ConfigError(f"OTEL_EXPORTER_OTLP_PROTOCOL must be {_PROTOCOL} for traces, got {protocol[:40]!r}")
    return Collector(
        url=_url(given),
        headers=tuple(f"{name}: {value}" for name, value in _pairs(given.of_otlp("HEADERS")).items()),
        timeout_seconds=_timeout_seconds(given),
        compressed=given.of_otlp("COMPRESSION") == "gzip",
        certificate=given.of_otlp("CERTIFICATE") or None,
        queue_max=given.whole("OTEL_BSP_MAX_QUEUE_SIZE", 50_000),
        batch_max=given.whole("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 2_000),
        delay_seconds=given.whole("OTEL_BSP_SCHEDULE_DELAY", 1_000) / 1_000,
        resource=_resource(given),
        sampler=_sampler(given),
    )


class _Variables:
    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def text(self, name: str) -> str:
        return self._environment.get(name, "").strip()

    def enabled(self, signal: str) -> bool:
        """Whether to export this signal (TRACES or METRICS). It is exported if the variables name an OTLP exporter or a
        collector, unless they disable the SDK."""
        exporter = self.text(f"OTEL_{signal}_EXPORTER")
        collectors = (f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
        named = exporter == "otlp" or (exporter == "" and any(map(self.text, collectors)))
        return named and self.text("OTEL_SDK_DISABLED").lower() != "true"

    def of_otlp(self, name: str) -> str:
        """The value of the traces-specific variable or, if that is not set, of the general one."""
        return self.text(f"OTEL_EXPORTER_OTLP_TRACES_{name}") or self.text(f"OTEL_EXPORTER_OTLP_{name}")

    def number(self, name: str, default: float, rule: _Rule) -> float:
        text = self.text(name)
        try:
            number = float(text or default)
        except ValueError:
            number = nan
        if not rule.allows(number):
            raise ConfigError(f"{name} must be {rule.words}, got {text[:40]!r}")
        return number

    def whole(self, name: str, default: int) -> int:
        return int(self.number(name, default, _WHOLE))


class _Rule(NamedTuple):
    """A rule for the values of a numeric variable, in words and as a function."""

    words: str
    allows: Callable[[float], bool]


_POSITIVE = _Rule("a number greater than 0", lambda number: 0 < number < 1e9)
_WHOLE = _Rule("a whole number from 1", lambda number: 0 < number < 1e9 and number == int(number))
_SHARE = _Rule("a number from 0 to 1", lambda number: 0 <= number <= 1)
_INTERVAL = _Rule("from 100 to 86400000 milliseconds", lambda number: 100 <= number <= 86_400_000)


def _url(given: _Variables) -> str:
    """The URL for traces. The variable for traces contains the complete URL. The general variable contains a base URL,
    to which this function adds the path."""
    general = given.text("OTEL_EXPORTER_OTLP_ENDPOINT") or _DEFAULT_ENDPOINT
    url = given.text("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or general.rstrip("/") + "/v1/traces"
    if not url.startswith(("http://", "https://")):
        raise ConfigError("OTEL_EXPORTER_OTLP_ENDPOINT must begin with http:// or https://")
    return url


def _timeout_seconds(given: _Variables) -> float:
    """The timeout in seconds. The specification says milliseconds, but the Python SDK reads seconds, so values below
    500 are interpreted as seconds."""
    general = given.number("OTEL_EXPORTER_OTLP_TIMEOUT", 10, _POSITIVE)
    timeout = given.number("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", general, _POSITIVE)
    return timeout if timeout < _MILLISECONDS_FROM else timeout / 1_000


def _resource(given: _Variables) -> dict[str, str]:
    name = given.text("OTEL_SERVICE_NAME")
    named = {"service.name": name} if name else {}
    return {"service.name": "doorstep"} | _pairs(given.text("OTEL_RESOURCE_ATTRIBUTES")) | named


def _pairs(text: str) -> dict[str, str]:
    """Parses `a=1,b=2`, with percent-encoded values."""
    parts = (part.split("=", 1) for part in text.split(",") if "=" in part)
    return {name.strip(): unquote(value.strip()) for name, value in parts}


def _sampler(given: _Variables) -> Sampler:
    """The sampler from the variables. A trace costs a fifth as much as a delivery, so by default at most a hundred
    traces are started per second."""
    name, share = given.text("OTEL_TRACES_SAMPLER"), given.number("OTEL_TRACES_SAMPLER_ARG", 1, _SHARE)
    if not name:
        return parent_based(at_most(TRACES_PER_SECOND))
    roots = {"always_on": always, "always_off": never, "traceidratio": ratio(share)}
    root = roots.get(name.removeprefix("parentbased_"))
    if root is None:
        raise ConfigError(
            "OTEL_TRACES_SAMPLER must be always_on, always_off or traceidratio, with or without the prefix parentbased_, "
            f"got {name[:40]!r}"
        )
    return parent_based(root) if name.startswith("parentbased_") else root


# -- metrics ---------------------------------------------------------------------------------------------------

_INTERVAL_MILLISECONDS = 60_000.0
_NANOSECONDS = 1_000
"""Nanoseconds per microsecond."""


class MetricExporter:
    """Sends snapshots of the metrics to the collector. Blocking: call it in a thread.

    There are no instruments: the store already counts everything, so its figures are turned directly into data points.
    They cover the whole installation, no matter which process sends them. The SDK's exporter reads the OTEL_* variables
    itself.
    """

    def __init__(self, interval_seconds: float) -> None:
        """Raises ConfigError if the extra `otel` is not installed."""
        try:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
            from opentelemetry.sdk.resources import Resource
        except ImportError:
            raise MissingExtra("exporting metrics with OpenTelemetry", "otel") from None
        self.interval_seconds = interval_seconds
        self._resource = Resource({"service.name": "doorstep"}).merge(_named(Resource.create()))
        self._exporter = OTLPMetricExporter()

    def export(self, snapshot: Snapshot) -> bool:
        """Send a snapshot. Returns whether the collector accepted it; the SDK retries and logs errors itself."""
        from opentelemetry.sdk.metrics import export as sdk
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        metrics = [
            sdk.Metric(one.name.removesuffix("_total"), one.about, one.unit, _data(one, read, snapshot.taken_at))
            for one, read in readings(snapshot)
        ]
        scope = sdk.ScopeMetrics(InstrumentationScope("doorstep", __version__), metrics, schema_url="")
        data = sdk.MetricsData([sdk.ResourceMetrics(self._resource, [scope], schema_url="")])
        return self._exporter.export(data) is sdk.MetricExportResult.SUCCESS

    def close(self) -> None:
        self._exporter.shutdown()


def exporter_from(environment: Mapping[str, str]) -> MetricExporter | None:
    """The exporter, or None if the export of metrics is not configured. Raises ConfigError for an invalid interval."""
    given = _Variables(environment)
    if not given.enabled("METRICS"):
        return None
    return MetricExporter(given.number("OTEL_METRIC_EXPORT_INTERVAL", _INTERVAL_MILLISECONDS, _INTERVAL) / 1_000)


def _named(resource: Any) -> Any:
    """The resource from the variables, without the placeholder `unknown_service`."""
    from opentelemetry.sdk.resources import Resource

    attributes = resource.attributes.items()
    return Resource({name: value for name, value in attributes if not str(value).startswith("unknown_service")})


def _data(measure: Measure, read: Reading, at: Instant) -> Any:
    from opentelemetry.sdk.metrics import export as sdk

    now, cumulative = at * _NANOSECONDS, sdk.AggregationTemporality.CUMULATIVE
    points: list[Any] = [
        _histogram_point(one, now)
        if isinstance(one, Distribution)
        else sdk.NumberDataPoint(dict(one.labels), 0, now, one.number)
        for one in read
    ]
    match measure.kind:
        case Kind.HISTOGRAM:
            return sdk.Histogram(points, cumulative)
        case Kind.COUNTER:
            return sdk.Sum(points, cumulative, is_monotonic=True)
        case Kind.GAUGE:
            return sdk.Gauge(points)


def _histogram_point(read: Distribution, now: int) -> Any:
    from opentelemetry.sdk.metrics import export as sdk

    return sdk.HistogramDataPoint(
        attributes=dict(read.labels),
        start_time_unix_nano=0,
        time_unix_nano=now,
        count=sum(read.counts),
        sum=read.total,
        bucket_counts=list(read.counts),
        explicit_bounds=[float(bound) for bound in read.bounds],
        min=None,  # type: ignore[arg-type]  # optional in the protocol, and unknown from the buckets
        max=None,  # type: ignore[arg-type]
    )
