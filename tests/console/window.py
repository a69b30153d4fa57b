"""One browser window, shared by all tests of a process: each test gets its own page and session in it.

A page in a new window uses 0.6 s more CPU, because it starts with a new process and an empty cache. A browser process
lives as long as a page of its site is open, so one idle page is kept open. A site is identified by its address, so the
servers of all tests are reached through one address.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

from playwright.async_api import BrowserContext, Page


class Gate:
    """A proxy with a fixed address that forwards all bytes to the server of the current test."""

    def __init__(self) -> None:
        self.url = ""
        self._port = 0
        self._writers: set[asyncio.StreamWriter] = set()

    def lead_to(self, url: str) -> None:
        self.hang_up()
        self._port = urlsplit(url).port or 80

    def hang_up(self) -> None:
        for writer in self._writers:
            writer.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            behind, ahead = await asyncio.open_connection("127.0.0.1", self._port)
            await asyncio.gather(self._pass_on(reader, ahead), self._pass_on(behind, writer))
        writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while some := await reader.read(65_536):
                writer.write(some)
                await writer.drain()
        except OSError:
            pass  # one side has disconnected, so disconnect the other
        finally:
            self._writers.discard(writer)
            writer.close()


@asynccontextmanager
async def gate() -> AsyncIterator[Gate]:
    made = Gate()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        made.hang_up()
        server.close()


class Window:
    def __init__(self, context: BrowserContext, idle: Page, gate: Gate) -> None:
        self.context = context
        self.url = gate.url
        self._idle = idle
        self._gate = gate

    async def lead_to(self, url: str) -> None:
        """Connect the window to the server of another test, and clear everything that the previous test left."""
        self._gate.lead_to(url)
        await self.context.clear_cookies()
        await self.context.clear_permissions()
        await self._idle.evaluate("localStorage.clear()")


@asynccontextmanager
async def one_window(context: BrowserContext, gate: Gate) -> AsyncIterator[Window]:
    """The base URL of `context` is the address of the gate."""
    idle = await context.new_page()
    await idle.route("**/*", lambda route: route.fulfill(body=""))
    await idle.goto("/")
    yield Window(context, idle, gate)
    await context.close()
