"""A webhook receiver in the event loop of the test. It gives the configured answers and records every request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple


class Request(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes
    at: float
    """Arrival time on the monotonic clock."""

    @property
    def event_id(self) -> str:
        return self.headers["webhook-id"]


class Answer(NamedTuple):
    status: int = 200
    headers: tuple[str, ...] = ()
    body: bytes = b""


class Receiver:
    """Answers 200 by default. While `hold` is cleared, it accepts requests without answering them."""

    def __init__(self) -> None:
        self.port = 0
        self.requests: list[Request] = []
        self.in_flight = 0
        self.in_flight_max = 0
        self.pause_seconds = 0.0
        self.answer: Callable[[Request], Answer] = lambda _: Answer()
        self.hold = asyncio.Event()
        self.hold.set()

    def url(self, path: str = "/hook") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def says(self, *statuses: int) -> None:
        """Answer with these statuses in order, then repeat the last one."""
        left = list(statuses)
        self.answer = lambda _: Answer(left.pop(0) if len(left) > 1 else left[0])

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while request := await _read(reader):
                self._arrived(request)
                answer = self.answer(request)
                await self.hold.wait()
                await asyncio.sleep(self.pause_seconds)
                self.in_flight -= 1
                writer.write(_written(answer))
        except ConnectionError:
            pass
        finally:
            writer.close()

    def _arrived(self, request: Request) -> None:
        self.requests.append(request)
        self.in_flight += 1
        self.in_flight_max = max(self.in_flight_max, self.in_flight)


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        receiver.hold.set()
        server.close()


async def _read(reader: asyncio.StreamReader) -> Request | None:
    try:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        body = await reader.readexactly(int(headers["content-length"]))
    except asyncio.IncompleteReadError:
        return None
    return Request(first.split(" ")[1], headers, body, time.monotonic())


def _written(answer: Answer) -> bytes:
    lines = (f"HTTP/1.1 {answer.status} Whatever", f"content-length: {len(answer.body)}", *answer.headers)
    return "\r\n".join((*lines, "", "")).encode() + answer.body
