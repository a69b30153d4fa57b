"""A worker for the time of a call. Its services do not loop; each call runs those that it needs to their end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import random

from doorstep.components import Components
from doorstep.services.worker import Service, Worker, keep_running
from doorstep.transports.http import HttpTransport

_LOOK_AGAIN_SECONDS = 0.02


class Steps:
    """The worker of a function. Create it in the event loop."""

    def __init__(self, components: Components) -> None:
        self._clock = components.clock
        self._telemetry = components.telemetry
        self.directory = components.directory
        http = HttpTransport(components.guard, components.clock, connections_max=components.tuning.slots)
        self.worker: Worker = components.make_worker(http, random)
        self.deliverer = self.worker.deliverer
        self.worker.open()

    @property
    def others(self) -> list[Service]:
        """The services besides those that claim deliveries and write results."""
        own = (self.worker.dispatcher, self.deliverer.settler)
        return [service for service in self.worker.services if service not in own]

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """Write results while this block runs, and until every attempt that it started has its result written."""
        stopping, settler = asyncio.Event(), self.deliverer.settler
        task = asyncio.create_task(keep_running(settler, self._clock, self._telemetry, stopping))
        try:
            yield
            while self.deliverer.in_flight or self.deliverer.buffer.waiting or settler.backlog:
                await asyncio.sleep(_LOOK_AGAIN_SECONDS)
        finally:
            stopping.set()
            settler.wake.set()
            await task
