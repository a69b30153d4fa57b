"""The environment that the examples run in: Doorstep with its HTTP API, a receiver, and a simulated clock.

All parts are real: the database, the API on a socket, the requests to the receiver, their signatures. Only the clock is
simulated: `pass_time` jumps from one due time to the next, so that fifteen minutes take no time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from doorstep import Doorstep, Settings
from doorstep.api.application import create_application
from doorstep.cli.listening import address, listener
from doorstep.cli.serve import WebServer
from doorstep.client import AsyncClient
from doorstep.clock import DAY, from_datetime, to_datetime
from doorstep.encryption import new_secret_key
from doorstep.testing import Drainer, FakeClock, Receiver
from doorstep.transports.http import HttpTransport

NOON = from_datetime(datetime(2026, 6, 1, 12, tzinfo=UTC))
"""The simulated time at which every example begins."""

Story = Callable[["Theatre"], Awaitable[None]]
Prepare = Callable[[Doorstep], None]
"""Registers the handlers of an example, before Doorstep is opened."""
Create = Callable[..., Doorstep]
"""Creates the program of a profile, from settings and a clock."""
Served = Callable[[Doorstep], AbstractAsyncContextManager[str]]
"""Serves the HTTP API and returns its URL."""


class Theatre:
    """The objects that an example uses."""

    def __init__(
        self,
        doorstep: Doorstep,
        clock: FakeClock,
        receiver: Receiver,
        drainer: Drainer,
        url: str,
        say: Callable[[str], object],
    ) -> None:
        self.doorstep = doorstep
        self.clock = clock
        self.receiver = receiver
        self.url = url
        self.api = AsyncClient(url, doorstep.generated_admin_key or "")
        """The HTTP API, for an admin."""
        self._drainer = drainer
        self._say = say

    async def pass_time(self, span_seconds: float = 0) -> None:
        """Advance the clock by this span, and deliver everything that is due now or becomes due meanwhile."""
        await self._drainer.drain(until=span_seconds)

    def tell(self, line: str) -> None:
        """Print a line with the simulated day and time."""
        now = self.clock.now()
        self._say(f"day {(now - NOON) // DAY + 1} {to_datetime(now):%H:%M:%S}  {line}")

    async def client(self, role: Literal["operator", "viewer", "publisher", "consumer"]) -> AsyncClient:
        """Returns a client of the HTTP API with a key of this role, which has fewer permissions than an admin."""
        return AsyncClient(self.url, (await self.api.keys.create(role, role)).key)


def without_program(*, clock: FakeClock, **settings: Any) -> Doorstep:
    return Doorstep(Settings(**settings), clock=clock)


def play(story: Story, prepare: Prepare = lambda _: None, create: Create = without_program) -> None:
    """Run an example on a temporary SQLite file."""
    with TemporaryDirectory() as folder:
        asyncio.run(_play(f"sqlite:///{Path(folder, 'doorstep.db')}", story, prepare, create))


async def _play(database_url: str, story: Story, prepare: Prepare, create: Create) -> None:
    async with staged(database_url, prepare, create=create) as stage:
        await story(stage)


@asynccontextmanager
async def staged(
    database_url: str,
    prepare: Prepare = lambda _: None,
    say: Callable[[str], object] = print,
    *,
    migrate: bool = True,
    served: Served | None = None,
    create: Create = without_program,
) -> AsyncIterator[Theatre]:
    """Yields a Theatre on this database, with the store, the HTTP API and the receiver running."""
    clock = FakeClock(NOON)
    settings = {"database_url": database_url, "secret_key": new_secret_key(), "allow_addresses": "127.0.0.0/8"}
    doorstep = create(clock=clock, **settings)
    prepare(doorstep)
    async with AsyncExitStack() as opened:
        receiver = opened.enter_context(Receiver(clock))
        await doorstep.open(migrate=migrate, admin_key=True)
        opened.push_async_callback(doorstep.close)
        drainer = Drainer(doorstep, clock, HttpTransport(doorstep.components.guard, clock))
        drainer.open()
        opened.push_async_callback(drainer.close)
        url = await opened.enter_async_context((served or _served)(doorstep))
        yield Theatre(doorstep, clock, receiver, drainer, url, say)


@asynccontextmanager
async def _served(doorstep: Doorstep) -> AsyncIterator[str]:
    """Runs the HTTP API on a free port, as `doorstep serve` does."""
    ready, stop = asyncio.Event(), asyncio.Event()
    server = WebServer(create_application(doorstep), grace_seconds=1, ready=ready.set)
    with listener("127.0.0.1", 0) as listening:
        serving = asyncio.create_task(server.serve_until(stop, listening))
        await ready.wait()
        try:
            yield address(listening)
        finally:
            stop.set()
            await serving
