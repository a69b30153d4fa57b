"""A collector on this machine: takes what is sent over OTLP/HTTP, and reads traces with OpenTelemetry's decoder."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Message


class Collected(NamedTuple):
    """A span as it arrived."""

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


class Collector(ThreadingHTTPServer):
    """Answers with `status`, and keeps what it was sent while that is a success."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 200
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.bodies: list[bytes] = []
        self.others: list[bytes] = []
        """What came for another signal than traces."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def spans(self) -> list[Collected]:
        return [span for body in list(self.bodies) for span in _read(body)]

    def named(self, name: str) -> list[Collected]:
        return sorted((span for span in self.spans if span.name == name), key=lambda span: span.started)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        plain = gzip.decompress(body) if headers.get("content-encoding") == "gzip" else body
        if self.path != "/v1/traces":
            self.server.others.append(plain)
        else:
            self.server.requests.append((self.path, headers))
            if self.server.status == 200:
                self.server.bodies.append(plain)
        self.send_response(self.server.status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    try:
        yield collector
    finally:
        collector.shutdown()
        collector.server_close()


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
