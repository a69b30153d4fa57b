"""The Worker: the services that deliver events in one process, and the loop that runs each service.

Any number of workers can share a store.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import UNSET

from doorstep.clock import AnchoredClock, Clock, to_iso
from doorstep.engine.deliver import Deliverer
from doorstep.engine.directory import LEASE_SECONDS_MIN, Directory, Tuning
from doorstep.engine.reclaim import next_expiry_seconds, reclaim
from doorstep.errors import StoreUnavailable
from doorstep.policy.retry import Random
from doorstep.services.clock_watch import ClockWatch
from doorstep.services.coordination import IDLE_POLL_SECONDS, poll_seconds
from doorstep.services.dispatcher import POLL_SECONDS, RECLAIM_SLACK_SECONDS, Dispatcher, Reclaimer
from doorstep.services.maintenance import Cleaner, ClockSync, RollupAggregator
from doorstep.stores.store import Store
from doorstep.telemetry.facts import ServiceTrouble, Telemetry
from doorstep.telemetry.redaction import safe_message, traceback_of
from doorstep.transports.transport import Transport

_BACKOFF_MIN_SECONDS = 0.05
_BACKOFF_MAX_SECONDS = 1.0
"""The longest pause before a failed round is retried. All services must resume within ten seconds after the database
comes back, and one try per second puts only a small load on the database."""
_LAST_ROUND_SECONDS = 2.0


class Service(Protocol):
    name: str
    wake: asyncio.Event
    """Set when there is work for the service, which ends the pause between two rounds early."""

    async def run_once(self) -> float | None:
        """Do one round. Returns the number of seconds until the next round, or None to sleep until woken."""


class Worker:
    """Runs the services of one process. Its components are arguments, so that a simulation can pass a virtual clock and
    a simulated network."""

    def __init__(
        self,
        store: Store,
        directory: Directory,
        transports: Mapping[str, Transport],
        clock: Clock,
        random: Random,
        tuning: Tuning,
        telemetry: Telemetry,
        name: str,
        extra_services: Sequence[Service] = (),
    ) -> None:
        """`extra_services` are started and stopped together with the worker's own services."""
        self._transports = transports
        self._clock = clock
        self.grace_seconds = tuning.grace_seconds
        """How long `stop` waits for attempts in flight."""
        self._telemetry = telemetry
        self._running: list[_Running] = []
        self.deliverer = Deliverer(store, directory, transports, clock, random, tuning, telemetry, name, wake=self.wake)
        self.dispatcher = Dispatcher(self.deliverer, directory, clock, poll_seconds(store, POLL_SECONDS))
        self.rollup_aggregator = RollupAggregator(store, clock, tuning, name)
        settler = self.deliverer.settler
        self.reclaimer = Reclaimer(
            ClockWatch(store, clock, telemetry, name).look,
            lambda now: reclaim(store, directory, settler, now, random),
            lambda now, seconds_max: next_expiry_seconds(store, now, seconds_max),
            clock,
            self.wake,
            _reclaim_seconds(store, tuning),
        )
        self.services: list[Service] = [
            self.dispatcher,
            settler,
            self.reclaimer,
            Cleaner(store, clock, tuning, telemetry, self.wake),
            self.rollup_aggregator,
            *extra_services,
        ]
        if isinstance(clock, AnchoredClock):
            self.services.append(ClockSync(store, clock, telemetry))

    def wake(self) -> None:
        """Look for due deliveries now."""
        self.dispatcher.wake.set()

    def open(self) -> None:
        """Open the transports. `start` does this too; call `open` alone to run the services by hand."""
        for transport in self._transports.values():
            transport.open(self.deliverer.done)

    def start(self) -> None:
        """Open the transports and run all services."""
        self.open()
        self._running = [_Running(service, self._clock, self._telemetry) for service in self.services]

    async def stop(self) -> None:
        """Claim nothing more, finish or release running attempts, and stop. The settler stops last."""
        running, self._running = self._running, []
        settler = self.deliverer.settler
        if running:
            await asyncio.gather(*(one.stop() for one in running if one.service is not settler))
            await self.deliverer.drain(self.grace_seconds)
            await asyncio.gather(*(one.stop() for one in running if one.service is settler))


class _Running:
    """A service and the task that runs it."""

    def __init__(self, service: Service, clock: Clock, telemetry: Telemetry) -> None:
        self.service = service
        self._stopping = asyncio.Event()
        self._task = asyncio.create_task(keep_running(service, clock, telemetry, self._stopping), name=service.name)

    async def stop(self) -> None:
        """Wait for the current round. If it takes too long, for example because the store hangs, cancel it."""
        self._stopping.set()
        self.service.wake.set()
        await asyncio.wait([self._task], timeout=_LAST_ROUND_SECONDS)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def keep_running(
    service: Service, clock: Clock, telemetry: Telemetry, stopping: asyncio.Event | None = None
) -> None:
    """Run a service until `stopping` is set. A round that fails is logged and retried, with growing pauses.

    Setting `stopping` does not interrupt a round: cancelling it could leave claims that no worker knows of.
    """
    backoff = 0.0
    while stopping is None or not stopping.is_set():
        service.wake.clear()
        try:
            delay = await service.run_once()
            backoff = 0.0
        except Exception as error:  # noqa: BLE001  an error in one round must not stop the service
            delay, backoff = 0.0, min(max(backoff * 2, _BACKOFF_MIN_SECONDS), _BACKOFF_MAX_SECONDS)
            telemetry.emit(
                ServiceTrouble(
                    at=to_iso(clock.now()),
                    service=service.name,
                    error=safe_message(error),
                    # A store that is away is no bug of ours: its message says all there is to know.
                    traceback=UNSET if isinstance(error, StoreUnavailable) else traceback_of(error),
                    retry_in_seconds=backoff,
                )
            )
            await asyncio.sleep(backoff)  # a wake-up does not end this pause: many arrive while a store is down
        await pause(service.wake, delay)


async def pause(wake: asyncio.Event, delay: float | None) -> None:
    """Wait until woken, or for `delay` seconds. Other tasks get a turn even if there is no delay."""
    if delay is not None and delay <= 0:
        await asyncio.sleep(0)
        return
    timer = None if delay is None else asyncio.get_running_loop().call_later(delay, wake.set)
    try:
        await wake.wait()
    finally:
        if timer is not None:
            timer.cancel()


def _reclaim_seconds(store: Store, tuning: Tuning) -> float:
    """The longest time between two searches for expired leases. No lease that is made after a search ends sooner than
    the shortest lease that a worker may have. Where claims of other workers are noticed, only the leases of this worker
    count."""
    if store.features.notices_writes:
        return min(tuning.lease_seconds + RECLAIM_SLACK_SECONDS, IDLE_POLL_SECONDS)
    return min(tuning.lease_seconds, LEASE_SECONDS_MIN) + RECLAIM_SLACK_SECONDS


def worker_name() -> str:
    """The name of a worker in logs, leases and locks: host name, process id, and a random suffix in case containers
    share both."""
    return f"{socket.gethostname()[:40]}:{os.getpid()}:{secrets.token_hex(3)}"
