"""An OTLP/HTTP collector on this machine. It decodes the traces that it receives with OpenTelemetry's own decoder."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Message

from tests.support.post_server import PostServer, at_work


class Collected(NamedTuple):
    """A span as the collector received it."""

    service: str
    trace_id: str
    span_id: str
    parent_id: str
    name: str
    kind: str
    attributes: dict[str, object]
    links: list[str]
    error: str
    started: int
    ended: int
    state: str


class Collector(PostServer):
    """Answers every request with `status`, and keeps the request if `status` is a success."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.bodies: list[bytes] = []
        self.others: list[bytes] = []
        """Bodies sent for signals other than traces."""

    @property
    def url(self) -> str:
        return self.origin

    def take(self, path: str, headers: dict[str, str], body: bytes) -> None:
        plain = gzip.decompress(body) if headers.get("content-encoding") == "gzip" else body
        if path != "/v1/traces":
            self.others.append(plain)
        else:
            self.requests.append((path, headers))
            if self.status == 200:
                self.bodies.append(plain)

    @property
    def spans(self) -> list[Collected]:
        return [span for body in list(self.bodies) for span in _read(body)]

    def named(self, name: str) -> list[Collected]:
        return sorted((span for span in self.spans if span.name == name), key=lambda span: span.started)


def collecting() -> AbstractContextManager[Collector]:
    return at_work(Collector())


def _read(body: bytes) -> Iterator[Collected]:
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        (service,) = (pair.value.string_value for pair in resource.resource.attributes if pair.key == "service.name")
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield _collected(service, span)


def _collected(service: str, span: Message) -> Collected:
    return Collected(
        service,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.name,
        Message.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in span.attributes},
        [link.span_id.hex() for link in span.links if link.trace_id == span.trace_id],
        span.status.message if span.status.code == 2 else "",
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        span.trace_state,
    )
