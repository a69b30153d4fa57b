"""Receivers: one process that plays several personalities, each on its own port; raw asyncio, no HTTP library.

    python -m tests.faults.harness.receiver LOG ok=9001 flaky=9002 …

Every request is logged before it is answered, so that a receiver killed in between has still recorded it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

_SLOW_SECONDS = 0.3
_BUSY_SECONDS = 0.02
_ERROR_SHARE = 0.3
MENDED = "mended"
"""A file in the installation's folder. It exists once the receiver's fault has been repaired."""
DOWN = "down"
"""A file in the installation's folder. It exists while the receiver is down."""


class Request(NamedTuple):
    event_id: str
    digest: str
    signed_at: int


async def _answer(writer: asyncio.StreamWriter, status: int) -> None:
    writer.write(f"HTTP/1.1 {status} Said\r\nContent-Length: 2\r\n\r\nok".encode())
    await writer.drain()


async def _slow(writer: asyncio.StreamWriter, status: int) -> None:
    await asyncio.sleep(_SLOW_SECONDS)
    await _answer(writer, status)


async def _busy(writer: asyncio.StreamWriter, status: int) -> None:
    await asyncio.sleep(_BUSY_SECONDS)
    await _answer(writer, status)


async def _dribble(writer: asyncio.StreamWriter, _: int) -> None:
    for byte in b"HTTP/1.1 200 Said\r\nContent-Length: 2\r\n\r\nok":
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(1)


async def _endless(writer: asyncio.StreamWriter, status: int) -> None:
    writer.write(f"HTTP/1.1 {status} Said\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
    while True:
        writer.write(b"1000\r\n" + b"x" * 4096 + b"\r\n")
        await writer.drain()


async def _reset(writer: asyncio.StreamWriter, _: int) -> None:
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    writer.transport.abort()


def _always() -> int | None:
    return 200


def _sometimes() -> int | None:
    return 500 if random.random() < _ERROR_SHARE else 200


def _once_mended() -> int | None:
    return 200 if os.path.exists(MENDED) else 400


def _unless_down() -> int | None:
    return 500 if os.path.exists(DOWN) else 200


def _never() -> int | None:
    return None


class Personality(NamedTuple):
    decide: Callable[[], int | None]
    act: Callable[[asyncio.StreamWriter, int], Awaitable[None]]


PERSONALITIES: dict[str, Personality] = {
    "ok": Personality(_always, _answer),
    "recovering": Personality(_always, _busy),
    "mending": Personality(_once_mended, _answer),
    "blinking": Personality(_unless_down, _busy),
    "flaky": Personality(_sometimes, _answer),
    "slow": Personality(_always, _slow),
    "dribble": Personality(_never, _dribble),
    "endless": Personality(_always, _endless),
    "reset": Personality(_never, _reset),
}
"""The personality `dead` is missing here, because nobody listens on its port."""


class Receiver:
    """One personality on one port."""

    def __init__(self, name: str, log: int) -> None:
        self._name = name
        self._personality = PERSONALITIES[name]
        self._log = log
        self._under_way = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while request := await _read(reader):
                self._under_way += 1
                try:
                    await self._respond(request, writer)
                finally:
                    self._under_way -= 1
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client closed the connection, as it may
        finally:
            writer.close()

    async def _respond(self, request: Request, writer: asyncio.StreamWriter) -> None:
        status = self._personality.decide()
        noted = (request.event_id, request.digest, status, self._under_way, request.signed_at)
        line = [time.time(), self._name, *noted]
        os.write(self._log, json.dumps(line).encode() + b"\n")
        await self._personality.act(writer, status or 0)


async def _read(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    headers = dict(line.split(": ", 1) for line in head.decode("latin-1").lower().split("\r\n")[1:-2])
    body = await reader.readexactly(int(headers["content-length"]))
    return Request(headers["webhook-id"], hashlib.sha256(body).hexdigest(), int(headers["webhook-timestamp"]))


async def _main(log_path: str, places: list[str]) -> None:
    log = os.open(log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for place in places:
        name, port = place.split("=")
        await asyncio.start_server(Receiver(name, log).serve, "127.0.0.1", int(port), backlog=1024)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], sys.argv[2:]))
