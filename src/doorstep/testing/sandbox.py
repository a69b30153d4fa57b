"""A sandbox for tests: your own Doorstep, with its handlers, an in-memory store and a clock that you control.

    async with sandbox(ds) as box:
        receipt = await ds.send("order.paid", {"order": 42})
        await box.drain(until=3600)
        box.assert_delivered(receipt)

In a test without an event loop, use `with sandbox(ds) as box`, `ds.send_sync`, and `box.drain` without await.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from copy import copy
from ipaddress import ip_network
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from doorstep.app import Doorstep
from doorstep.clock import SECOND, Instant, seconds
from doorstep.components import Components
from doorstep.loop_binding import LoopBinding, T, Work, in_a_loop
from doorstep.model.bulk import LiveBulks
from doorstep.services.bulk_runner import BulkRunner
from doorstep.services.worker import Service, pause
from doorstep.stores.open import store_from_url
from doorstep.stores.store import Store
from doorstep.telemetry.facts import Fact, Telemetry
from doorstep.testing.inspection import Inspection
from doorstep.testing.receiver import NoNetwork
from doorstep.transports.address_guard import AddressGuard
from doorstep.transports.http import HttpTransport
from doorstep.transports.transport import Transport

BEGINNING: Instant = 1_750_000_000 * SECOND
"""The initial time of a FakeClock: a Sunday in June 2025. Any fixed instant would do."""


class FakeClock:
    """A clock that stands still until a test moves it."""

    def __init__(self, now: Instant = BEGINNING) -> None:
        self._now = now

    def now(self) -> Instant:
        """The current time of this clock."""
        return self._now

    def advance(self, span_seconds: float) -> Instant:
        """Move the clock forward and return the new time. A negative number sets it back."""
        self._now += seconds(span_seconds)
        return self._now

    def leap_to(self, instant: Instant) -> Instant:
        """Move the clock forward to an instant. An instant in the past changes nothing."""
        self._now = max(self._now, instant)
        return self._now


# -- draining ----------------------------------------------------------------------------------------------

_ROUNDS_MAX = 1_000
_LOOK_AGAIN_SECONDS = 0.05
_STEP_SECONDS = 0.01
"""The minimum time between two steps of a bulk operation. On a clock that stands still, a step seems to take no time,
so the bulk runner would not pause."""
_NO_JITTER = 0.5
"""The middle of the range of random numbers. With this value, every delay is exactly as the policy defines it."""


class Drainer:
    """Runs a Doorstep step by step. The Doorstep must be open, must use this clock, and must not be started.

    All due work is done before the clock moves on. The Drainer uses the same components as a worker, except for the
    loops that wait between rounds.
    """

    def __init__(self, doorstep: Doorstep, clock: FakeClock, http: Transport) -> None:
        self._clock = clock
        self._store = doorstep.components.store
        self._directory = doorstep.components.directory
        self._worker = doorstep.components.make_worker(http, lambda: _NO_JITTER)
        self._deliverer = self._worker.deliverer
        self._settler = self._deliverer.settler
        own = (self._worker.dispatcher, self._settler)
        self._others = [service for service in self._worker.services if service not in own]
        self._facts = 0
        doorstep.telemetry.subscribe(self._count)

    def open(self) -> None:
        """Prepare to deliver, without starting anything."""
        self._worker.open()

    async def close(self) -> None:
        """Abandon attempts in flight."""
        await self._deliverer.drain(grace_seconds=0)

    async def drain(self, until: float = 0) -> None:
        """Do everything that is due, and everything that follows from it.

        With `until`, also do all work that becomes due in the next `until` seconds: the clock jumps from one due time
        to the next. At the end, it has advanced by exactly `until` seconds.
        """
        end = self._clock.now() + seconds(until)
        while (next_at := await self._run_until_idle()) is not None and next_at <= end:
            self._clock.leap_to(next_at)
        if self._clock.now() < end:
            self._clock.leap_to(end)
            await self._run_until_idle()

    async def _run_until_idle(self) -> Instant | None:
        """Run rounds until one has nothing to do; return the next due time."""
        for _ in range(_ROUNDS_MAX):
            before = self._facts
            next_at = await self._round()
            if self._facts == before:
                return next_at
        raise AssertionError(
            f"still busy after {_ROUNDS_MAX} rounds without time passing; does a handler send events that it handles itself?"
        )

    async def _round(self) -> Instant | None:
        """Run everything once; return the next due time."""
        await self._directory.refresh()
        next_at = await self._deliverer.round()
        while self._deliverer.in_flight or self._settler.backlog:
            await self._settle()
        due = [await self._run(service) for service in self._others]
        return min((at for at in (next_at, *due) if at is not None), default=None)

    async def _settle(self) -> None:
        if not self._settler.backlog:
            await pause(self._settler.wake, _LOOK_AGAIN_SECONDS)
        self._settler.wake.clear()
        await self._settler.run_once()

    async def _run(self, service: Service) -> Instant | None:
        """Run a service once; return its next due time. Only a running bulk operation has one; polling intervals are
        ignored."""
        delay = await service.run_once()
        if delay is None or not isinstance(service, BulkRunner) or not await self._store.find(None, LiveBulks()):
            return None
        return self._clock.now() + seconds(max(delay, _STEP_SECONDS))

    def _count(self, facts: Sequence[Fact]) -> None:
        """Count facts. Every change of a delivery emits one, so a round without facts had nothing to do."""
        self._facts += len(facts)


# -- sandboxes ---------------------------------------------------------------------------------------------

_IN_MEMORY = "memory://"
_LOOPBACK = ip_network("127.0.0.0/8")


class sandbox:
    """Opens your Doorstep for the `with` block. Afterwards, its previous state is restored and the events are
    discarded.

    Deliveries run only in `drain`. `box.network` simulates endpoints with a URL, without connections. With
    `network=True`, these endpoints are called over the network, including those on this machine (see `Receiver`).
    """

    def __init__(self, doorstep: Doorstep, *, clock: FakeClock | None = None, network: bool = False) -> None:
        self._doorstep = doorstep
        self._clock = clock or FakeClock()
        self._network = network
        self._box: _Box

    async def __aenter__(self) -> Sandbox:
        self._box = box = Sandbox(self._doorstep, self._clock, network=self._network)
        await box._open()
        return box

    async def __aexit__(self, *exc: object) -> None:
        await self._box._close()

    def __enter__(self) -> BlockingSandbox:
        self._box = box = BlockingSandbox(self._doorstep, self._clock, network=self._network)
        box._thread.run(box._open)
        return box

    def __exit__(self, *exc: object) -> None:
        self._box._thread.run(self._box._close)


class _Box(Inspection):
    """The parts that both kinds of sandbox share."""

    def __init__(self, doorstep: Doorstep, clock: FakeClock, *, network: bool) -> None:
        store = store_from_url(_IN_MEMORY)
        super().__init__(store, clock)
        self.doorstep = doorstep
        self.clock = clock
        self.network = NoNetwork(clock)
        """Simulates receivers: `box.network.behaves(status(503))`, `box.network.requests`."""
        self._real_network = network
        self._thread = doorstep.binding.thread
        self._binding = SandboxBinding(doorstep._open, doorstep._stop, doorstep._close)
        self._replaced = patch.dict(vars(doorstep), self._replacements(store))

    def _replacements(self, store: Store) -> dict[str, Any]:
        """Attributes to replace on the Doorstep. Registrations are copied, so that those that a test adds are discarded
        afterwards."""
        real = self.doorstep
        copies = {name: copy(value) for name, value in vars(real).items() if isinstance(value, dict | list)}
        return copies | {
            "settings": real.settings.model_copy(update={"database_url": _IN_MEMORY}),
            "registry": real.registry.copy(),
            "_store": store,
            "clock": self.clock,
            "telemetry": Telemetry(real.telemetry.emit_all, self.record),
            "binding": self._binding,  # a Doorstep that is already open is not affected
            "_tuning": replace(real._tuning, settle_linger_seconds=0),
            "_guard": AddressGuard([_LOOPBACK]) if self._real_network else real._guard,
            "_opened_by": None,
            # The program under test may open, start and close its Doorstep as usual, in any event loop.
            "open": _leave_open,
            "close": _leave_open,
            "close_sync": lambda: None,
            "start": lambda: None,
        }

    async def _open(self) -> None:
        with ExitStack() as undo:
            undo.enter_context(self._replaced)
            await type(self.doorstep).open(self.doorstep)
            self._drainer = Drainer(self.doorstep, self.clock, self._transport())
            self._drainer.open()
            self._undo = undo.pop_all()

    def _transport(self) -> Transport:
        if not self._real_network:
            return self.network
        return HttpTransport(self.doorstep._guard, self.clock, connections_max=self.doorstep._tuning.slots)

    async def _close(self) -> None:
        with self._undo:
            await self._drainer.close()
            await type(self.doorstep).close(self.doorstep)

    async def _drain(self, until: float) -> None:
        self._binding.draining = True
        try:
            await self._drainer.drain(until)
        finally:
            self._binding.draining = False
        self.network.raise_error()


class Sandbox(_Box):
    """A sandbox for tests with an event loop."""

    async def drain(self, until: float = 0) -> None:
        """Do everything that is due, and everything that follows from it.

        With `until`, also do all work that becomes due in the next `until` seconds.
        """
        await self._drain(until)


class BlockingSandbox(_Box):
    """A sandbox for tests without an event loop. It runs in a thread."""

    def drain(self, until: float = 0) -> None:
        """Do everything that is due, and everything that follows from it.

        With `until`, also do all work that becomes due in the next `until` seconds.
        """
        self._thread.run(lambda: self._drain(until))


async def _leave_open(**_: object) -> None:
    """Does nothing: the sandbox opens and closes the Doorstep."""


_RESPONSE_SECONDS = 0.05


class SandboxBinding(LoopBinding[Components]):
    """Binds a Doorstep to the event loop of its sandbox. Calls work even if the test itself blocks the sandbox's event
    loop."""

    draining = False
    """Whether a drain is running. If so, the event loop will respond eventually, even if that takes a long time."""

    def call_sync(self, work: Work[T]) -> T:
        """Run in the sandbox's event loop, or in a new loop if the sandbox's loop is blocked."""
        if in_a_loop() or self._responds():
            return super().call_sync(work)
        return asyncio.run(work())

    async def call(self, work: Work[T]) -> T:
        """Run in the sandbox's event loop, or in the caller's loop if the sandbox's loop is blocked."""
        if self.is_open_here() or not self._responds():
            return await work()
        return await super().call(work)

    def _responds(self) -> bool:
        """Whether the event loop of the sandbox is running and not blocked."""
        if self.draining:
            return True
        responded = threading.Event()
        self.pin().loop.call_soon_threadsafe(responded.set)
        return responded.wait(_RESPONSE_SECONDS)
