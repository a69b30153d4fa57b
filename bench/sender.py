"""A load of concurrent requests: each connection sends the next request when the last one is answered."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import cast

import uvloop

from bench.setting import ADMIN_KEY
from bench.timing import percentile


@dataclass(frozen=True)
class Load:
    """What came of it."""

    per_second: float
    p50_ms: float
    p99_ms: float
    refused: int
    """Answers other than 202."""


def post_events(port: int, path: str, body: bytes, connections: int, seconds: float) -> Load:
    """Send for so many seconds; run it in a process of its own, so that it does not share the server's core."""
    head = f"POST {path} HTTP/1.1\r\nHost: bench\r\nX-API-Key: {ADMIN_KEY}\r\nContent-Length: {len(body)}\r\n\r\n"
    return uvloop.run(_post_events(port, head.encode() + body, connections, seconds))


async def _post_events(port: int, request: bytes, connections: int, seconds: float) -> Load:
    loop = asyncio.get_running_loop()
    tally = _Tally(time.perf_counter() + seconds)
    callers = [
        (await loop.create_connection(lambda: _Caller(request, tally), "127.0.0.1", port))[1]
        for _ in range(connections)
    ]
    started = time.perf_counter()
    for caller in callers:
        caller.send()
    await asyncio.gather(*(caller.ended for caller in callers))
    elapsed = tally.last_answer_at - started
    milliseconds = [1_000 * latency for latency in tally.latencies]
    return Load(
        len(milliseconds) / elapsed, percentile(milliseconds, 0.5), percentile(milliseconds, 0.99), tally.refused
    )


class _Tally:
    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.latencies: list[float] = []
        self.refused = 0
        self.last_answer_at = 0.0


class _Caller(asyncio.Protocol):
    def __init__(self, request: bytes, tally: _Tally) -> None:
        self._request = request
        self._tally = tally
        self._buffer = b""
        self._sent_at = 0.0
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_exception(exc or ConnectionError("the server hung up"))

    def send(self) -> None:
        self._sent_at = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head_end = self._buffer.find(b"\r\n\r\n")
        if head_end >= 0 and len(self._buffer) >= head_end + 4 + _length(self._buffer[:head_end]):
            self._answered()

    def _answered(self) -> None:
        now = time.perf_counter()
        if self._buffer.startswith(b"HTTP/1.1 202"):
            self._tally.latencies.append(now - self._sent_at)
        else:
            self._tally.refused += 1
        self._tally.last_answer_at = now
        self._buffer = b""
        if now < self._tally.deadline:
            self.send()
        else:
            self.ended.set_result(None)
            self._transport.close()


def _length(head: bytes) -> int:
    at = head.find(b"content-length: ")
    return int(head[at + 16 :].split(b"\r\n", 1)[0])
