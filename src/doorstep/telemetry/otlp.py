"""Spans in the format that collectors take: OTLP, an ExportTraceServiceRequest in protobuf.

Written by hand, because the message has only the fields below, and because a span then takes 2 µs against 38 in the
OpenTelemetry SDK. What many spans have in common is written once, as a template in which each fills in its ids and
times. The tests read it with OpenTelemetry's own decoder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import lru_cache
from struct import Struct
from typing import NamedTuple
from urllib.parse import unquote
from uuid import UUID

from doorstep.clock import Instant
from doorstep.errors import ConfigError
from doorstep.telemetry.tracing import Sampler, always, at_most, never, parent_based, ratio

_pack_times = Struct("<BQBQ").pack
_START, _END = 7 << 3 | 1, 8 << 3 | 1
_ERROR = b"\x18\x02"
"""The code of a status (field 3): error."""
_SAMPLED = b"\x85\x01" + (1).to_bytes(4, "little")
"""The flags (field 16)."""

Attributes = tuple[tuple[str, str | int], ...]


class Kind(IntEnum):
    INTERNAL = 1
    CLIENT = 3
    PRODUCER = 4
    CONSUMER = 5


Template = bytes
"""What spans of one kind have in common, with a `%b` for each thing that differs from span to span."""


def template(name: str, kind: Kind, attributes: Attributes, *, parent: bool, linked: bool) -> Template:
    """For spans with these attributes beside their ids. They hold ids, codes and numbers: nothing that anybody sent.

    What a sender or an error says is not part of it, or hardly two spans would have the same.
    """
    before = b"\x0a\x10%b\x12\x08%b" + (b"\x22\x08%b" if parent else b"%b")
    said = _text(5, name) + bytes([6 << 3, kind]) + _attributes(attributes)
    link = b"\x6a\x1c\x0a\x10%b\x12\x08%b" if linked else b"%b%b"
    return before + said.replace(b"%", b"%%") + _SAMPLED + b"%b%b%b%b%b%b%b" + link


def written(
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
    """One span, ready to be put into a request."""
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
        _before_correlation(len(correlation)),
        correlation,
        _said(state, error) if state or error else b"",
        trace if linked_id else b"",
        linked_id.to_bytes(8, "big") if linked_id else b"",
    )
    return b"\x12" + _varint(len(message)) + message


def _said(state: str, error: str) -> bytes:
    """The sender's tracestate, and a status that is an error."""
    return (_text(3, state) if state else b"") + (_field(15, _text(2, error) + _ERROR) if error else b"")


class Requests:
    """The bodies of requests, for the spans of one process."""

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
    """A message, a text or bytes inside a message."""
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
    """An attribute whose value is a text of this length, up to that value."""
    value = "-" * length
    return _attributes(((name, value),))[: -length or None]


def _before_correlation(length: int) -> bytes:
    return _before("doorstep.correlation_id", length)


_EVENT_ID, _DELIVERY_ID = _before("doorstep.event_id", 36), _before("doorstep.delivery_id", 36)


_DEFAULT_ENDPOINT = "http://localhost:4318"
_PROTOCOL = "http/protobuf"
_MILLISECONDS_FROM = 500
TRACES_PER_SECOND = 100
"""How many traces one process begins by itself, where no sampler is chosen; those that senders began come on top."""


class Collector(NamedTuple):
    """Who takes the spans, and how they are sent."""

    url: str
    headers: tuple[str, ...]
    """May hold credentials: never worded anywhere."""
    timeout_seconds: float
    compressed: bool
    certificate: str | None
    """A file of certificates to trust, instead of the system's."""
    queue_max: int
    batch_max: int
    delay_seconds: float
    resource: Mapping[str, str]
    sampler: Sampler


def collector_from(environment: Mapping[str, str]) -> Collector | None:
    """None if no spans are to be exported; ConfigError for what cannot be meant."""
    given = _Variables(environment)
    if given.text("OTEL_SDK_DISABLED").lower() == "true" or not _wanted(given):
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

    def of_otlp(self, name: str) -> str:
        """What is said for traces goes before what is said for everything."""
        return self.text(f"OTEL_EXPORTER_OTLP_TRACES_{name}") or self.text(f"OTEL_EXPORTER_OTLP_{name}")

    def number(self, name: str, default: float) -> float:
        text = self.text(name)
        try:
            number = float(text or default)
        except ValueError:
            number = -1
        if not 0 < number < 1e9:
            raise ConfigError(f"{name} must be a number greater than 0, got {text[:40]!r}")
        return number

    def whole(self, name: str, default: int) -> int:
        number = self.number(name, default)
        if number != int(number):
            raise ConfigError(f"{name} must be a whole number from 1, got {self.text(name)[:40]!r}")
        return int(number)


def _wanted(given: _Variables) -> bool:
    exporter = given.text("OTEL_TRACES_EXPORTER")
    return exporter == "otlp" or (exporter == "" and given.of_otlp("ENDPOINT") != "")


def _url(given: _Variables) -> str:
    """The variable for traces is the whole URL; the general one is where the paths of all signals begin."""
    general = given.text("OTEL_EXPORTER_OTLP_ENDPOINT") or _DEFAULT_ENDPOINT
    url = given.text("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or general.rstrip("/") + "/v1/traces"
    if not url.startswith(("http://", "https://")):
        raise ConfigError("OTEL_EXPORTER_OTLP_ENDPOINT must begin with http:// or https://")
    return url


def _timeout_seconds(given: _Variables) -> float:
    """The specification means milliseconds, the Python SDK seconds: a small number can only be meant as these."""
    general = given.number("OTEL_EXPORTER_OTLP_TIMEOUT", 10)
    timeout = given.number("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", general)
    return timeout if timeout < _MILLISECONDS_FROM else timeout / 1_000


def _resource(given: _Variables) -> dict[str, str]:
    said = _pairs(given.text("OTEL_RESOURCE_ATTRIBUTES"))
    return (
        {"service.name": "doorstep"}
        | said
        | ({"service.name": name} if (name := given.text("OTEL_SERVICE_NAME")) else {})
    )


def _pairs(text: str) -> dict[str, str]:
    """`a=1,b=2`, with values in percent-encoding."""
    parts = (part.split("=", 1) for part in text.split(",") if "=" in part)
    return {name.strip(): unquote(value.strip()) for name, value in parts}


def _sampler(given: _Variables) -> Sampler:
    """Every trace costs a fifth of a delivery: unless somebody chose otherwise, we begin no more than a hundred a second."""
    name, share = given.text("OTEL_TRACES_SAMPLER"), _share(given)
    if not name:
        return parent_based(at_most(TRACES_PER_SECOND))
    roots = {"always_on": always, "always_off": never, "traceidratio": ratio(share)}
    root = roots.get(name.removeprefix("parentbased_"))
    if root is None:
        raise ConfigError(
            "OTEL_TRACES_SAMPLER must be one of always_on, always_off, traceidratio, and the same after parentbased_, "
            f"got {name[:40]!r}"
        )
    return parent_based(root) if name.startswith("parentbased_") else root


def _share(given: _Variables) -> float:
    text = given.text("OTEL_TRACES_SAMPLER_ARG") or "1"
    try:
        share = float(text)
    except ValueError:
        share = -1
    if not 0 <= share <= 1:
        raise ConfigError(f"OTEL_TRACES_SAMPLER_ARG must be a number from 0 to 1, got {text[:40]!r}")
    return share
