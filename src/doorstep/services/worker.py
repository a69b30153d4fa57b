"""A Worker: the services that together deliver, from one process; any number of them share a store."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Sequence

from doorstep.clock import AnchoredClock, Clock
from doorstep.engine.deliver import Deliverer
from doorstep.engine.directory import Directory, Tuning
from doorstep.engine.reclaim import reclaim
from doorstep.policy.retry import Random
from doorstep.services.cleaner import Cleaner
from doorstep.services.clock_sync import ClockSync
from doorstep.services.dispatcher import Dispatcher, Reclaimer
from doorstep.services.rollup_aggregator import RollupAggregator
from doorstep.services.runner import Service, keep_running
from doorstep.stores.store import Store
from doorstep.telemetry.facts import Telemetry
from doorstep.transports.transport import Transport


class Worker:
    """Assembled from its parts, so that a simulation can hand in a virtual clock and a simulated network."""

    def __init__(
        self,
        store: Store,
        directory: Directory,
        http: Transport,
        handlers: Transport,
        clock: Clock,
        random: Random,
        tuning: Tuning,
        telemetry: Telemetry,
        name: str,
        also: Sequence[Service] = (),
    ) -> None:
        """`also` are services of the program around it, to be run and ended with its own."""
        self._http = http
        self._handlers = handlers
        self._clock = clock
        self._tuning = tuning
        self._telemetry = telemetry
        self._running: list[_Running] = []
        self.deliverer = Deliverer(
            store, directory, http, handlers, clock, random, tuning, telemetry, name, wake=self.wake
        )
        self.dispatcher = Dispatcher(self.deliverer, directory, clock)
        self.roller = RollupAggregator(store, clock, tuning, name)
        settler = self.deliverer.settler
        self.services: list[Service] = [
            self.dispatcher,
            settler,
            Reclaimer(lambda: reclaim(store, directory, settler, clock, random), self.wake),
            Cleaner(store, clock, tuning, telemetry),
            self.roller,
            *also,
        ]
        if isinstance(clock, AnchoredClock):
            self.services.append(ClockSync(store, clock, telemetry))

    def wake(self) -> None:
        """There may be work: look now."""
        self.dispatcher.wake.set()

    def open(self) -> None:
        """Open the ways to receivers; `start` does it too. By itself it is for whoever runs the services by hand."""
        self._http.open(self.deliverer.done)
        self._handlers.open(self.deliverer.done)

    def start(self) -> None:
        self.open()
        self._running = [_Running(service, self._clock, self._telemetry) for service in self.services]

    async def stop(self) -> None:
        """Claim nothing more, finish or hand back what is under way, and end."""
        running, self._running = self._running, []
        settler = self.deliverer.settler
        if running:
            await asyncio.gather(*(one.stop() for one in running if one.service is not settler))
            await self.deliverer.drain(self._tuning.grace_seconds)
            await asyncio.gather(*(one.stop() for one in running if one.service is settler))


class _Running:
    """A service and the task that runs it."""

    def __init__(self, service: Service, clock: Clock, telemetry: Telemetry) -> None:
        self.service = service
        self._stopping = asyncio.Event()
        self._task = asyncio.create_task(keep_running(service, clock, telemetry, self._stopping), name=service.name)

    async def stop(self) -> None:
        """After the round it is in; one that takes too long (a store that hangs) is cut short."""
        self._stopping.set()
        self.service.wake.set()
        await asyncio.wait([self._task], timeout=_LAST_ROUND_SECONDS)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


_LAST_ROUND_SECONDS = 2.0


def worker_name() -> str:
    """Tells workers apart in logs, leases and tasks: machine, process, and a random end for containers that share both."""
    return f"{socket.gethostname()[:40]}:{os.getpid()}:{secrets.token_hex(3)}"
