"""The receiver of all deliveries: a separate process that parses only enough HTTP to find the end of requests.

The path determines the response: `/ok` answers immediately, `/stamp` also records when the event arrived, and `/hang`
never answers. `/together/N` waits until there are N requests and then answers all of them with 503. `/control/…` is for
the benchmark itself. A request costs about 10 µs.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import subprocess
import sys
import time
from collections.abc import Collection
from typing import Self, cast

import uvloop

_OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok"
_LOST_AFTER_SECONDS = 10
_NOT_NOW = b"HTTP/1.1 503 Not Now\r\nContent-Length: 0\r\n\r\n"


class Receiver:
    """Starts, queries and stops the receiver process."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen([sys.executable, "-m", "bench.receiver"], stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.terminate()
        self._process.wait()

    def url(self, behaviour: str) -> str:
        return f"http://127.0.0.1:{self.port}/{behaviour}"

    def count(self) -> int:
        """The number of requests answered so far."""
        return int(json.loads(self._ask("count")))

    def take_arrivals(self) -> dict[str, int]:
        """When each event first arrived at `/stamp`, by event id, on the machine's monotonic clock. The receiver then
        forgets these arrivals."""
        arrivals: dict[str, int] = json.loads(self._ask("arrivals"))
        return arrivals

    def await_arrivals(self, wanted: Collection[str]) -> dict[str, int]:
        """Wait until all of these events have arrived, then return the same as `take_arrivals`."""
        deadline = time.monotonic() + _LOST_AFTER_SECONDS
        arrived: dict[str, int] = {}
        while missing := [event_id for event_id in wanted if event_id not in arrived]:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{len(missing)} of {len(wanted)} events did not arrive")
            time.sleep(0.05)
            arrived |= self.take_arrivals()
        return arrived

    def _ask(self, question: str) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", f"/control/{question}")
            return connection.getresponse().read()
        finally:
            connection.close()


class _Ledger:
    def __init__(self) -> None:
        self.answered = 0
        self.arrivals: dict[str, int] = {}
        self.waiting: list[asyncio.Transport] = []


class _Connection(asyncio.Protocol):
    def __init__(self, ledger: _Ledger) -> None:
        self._ledger = ledger
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's does not inherit from it

    def data_received(self, data: bytes) -> None:
        self._buffer = self._buffer + data if self._buffer else data
        while (head_end := self._buffer.find(b"\r\n\r\n")) >= 0:
            end = head_end + 4 + _body_length(self._buffer, head_end)
            if len(self._buffer) < end:
                return
            head, self._buffer = self._buffer[:head_end], self._buffer[end:]
            self._answer(head)

    def _answer(self, head: bytes) -> None:
        path = head[head.index(b" ") + 1 :]
        if path.startswith(b"/ok"):
            self._accept()
        elif path.startswith(b"/stamp"):
            self._ledger.arrivals.setdefault(_header(head, b"webhook-id: ").decode(), time.monotonic_ns())
            self._accept()
        elif path.startswith(b"/together/"):
            self._wait(int(path[10 : path.index(b" ")]))
        elif path.startswith(b"/control/"):
            self._control(path)

    def _accept(self) -> None:
        self._ledger.answered += 1
        self._transport.write(_OK)

    def _wait(self, count: int) -> None:
        self._ledger.waiting.append(self._transport)
        if len(self._ledger.waiting) >= count:
            together, self._ledger.waiting = self._ledger.waiting, []
            for transport in together:
                transport.write(_NOT_NOW)

    def _control(self, path: bytes) -> None:
        body = json.dumps(self._ledger.answered).encode()
        if path.startswith(b"/control/arrivals"):
            body = json.dumps(self._ledger.arrivals).encode()
            self._ledger.arrivals = {}
        self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))


def _body_length(buffer: bytes, head_end: int) -> int:
    at = buffer.find(b"\r\nContent-Length: ", 0, head_end)
    return 0 if at < 0 else int(buffer[at + 18 : buffer.find(b"\r\n", at + 18)])


def _header(head: bytes, name: bytes) -> bytes:
    start = head.index(name) + len(name)
    end = head.find(b"\r\n", start)
    return head[start:] if end < 0 else head[start:end]


async def _serve() -> None:
    ledger = _Ledger()
    server = await asyncio.get_running_loop().create_server(lambda: _Connection(ledger), "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve())
