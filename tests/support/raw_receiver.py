"""A well-behaved HTTP receiver on a real socket. It records what it receives."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple


class Request(NamedTuple):
    head: str
    body: bytes

    def header(self, name: str) -> list[str]:
        """All values of a header, in order."""
        lines = [line.partition(":") for line in self.head.split("\r\n")[1:]]
        return [value.strip() for key, _, value in lines if key.lower() == name.lower()]


Answer = Callable[[Request], bytes]


def answer(status: str = "200 OK", body: bytes = b"", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


class Receiver:
    def __init__(self, reply: Answer) -> None:
        self.reply = reply
        self.requests: list[Request] = []
        self.connections = 0
        self.host = "127.0.0.1"
        self.port = 0
        self.scheme = "http"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}/hook"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while not writer.is_closing():
                head = (await reader.readuntil(b"\r\n\r\n"))[:-4].decode()
                request = Request(head, b"")
                request = Request(head, await reader.readexactly(int(request.header("content-length")[0])))
                self.requests.append(request)
                writer.write(self.reply(request))
                await writer.drain()
                if request.header("connection") == ["close"]:
                    writer.close()
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError, ssl.SSLError):
            pass  # the client has disconnected, or the test is over
        finally:
            writer.close()


@asynccontextmanager
async def receiving(
    reply: Answer = lambda _: answer(), host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Receiver]:
    receiver = Receiver(reply)
    server = await asyncio.start_server(receiver.serve, host, port, ssl=tls, backlog=1024)
    receiver.host, receiver.port = server.sockets[0].getsockname()[:2]
    receiver.scheme = "https" if tls else "http"
    try:
        yield receiver
    finally:
        server.close()
