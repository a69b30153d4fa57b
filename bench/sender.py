"""A load of concurrent requests that send events. Each connection sends its next request when the previous request is
answered."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat

import uvloop

from bench.calling import call_for
from bench.setting import ADMIN_KEY
from bench.timing import percentile


@dataclass(frozen=True)
class Load:
    """The results."""

    per_second: float
    p50_ms: float
    p99_ms: float
    refused: int
    """Responses other than 202."""


def post_events(port: int, path: str, body: bytes, connections: int, seconds: float) -> Load:
    """Send for this many seconds. Call this in a separate process, so that it does not use the server's core."""
    head = f"POST {path} HTTP/1.1\r\nHost: bench\r\nX-API-Key: {ADMIN_KEY}\r\nContent-Length: {len(body)}\r\n\r\n"
    requests = [repeat(head.encode() + body)] * connections
    tally = uvloop.run(call_for(seconds, port, requests, b"HTTP/1.1 202", think=lambda: 0.0))
    return Load(
        tally.per_second, percentile(tally.milliseconds, 0.5), percentile(tally.milliseconds, 0.99), tally.refused
    )
