"""The processes of a run: workers and clients. Each runs the real code with its own clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

from doorstep.clock import Instant, seconds
from doorstep.encryption import Sealer
from doorstep.engine.accept import Accepter, Draft
from doorstep.engine.directory import Directory
from doorstep.errors import Conflict, StoreUnavailable
from doorstep.model.record import uuid7
from doorstep.operations.actions import DeliveryActions
from doorstep.operations.endpoint_rules import EndpointRules
from doorstep.operations.endpoints import EndpointService
from doorstep.services.worker import Worker
from doorstep.stores.store import Store, Topic
from doorstep.telemetry.facts import CircuitTransition, Fact, ServiceTrouble, Telemetry
from doorstep.testing.sandbox import BEGINNING
from doorstep.transports.address_guard import AddressGuard
from tests.simulation.network import Line, Network
from tests.simulation.scenario import TUNING
from tests.simulation.store_server import StoreServer
from tests.simulation.story import Sending
from tests.simulation.virtual_loop import Process, VirtualLoop

_SEALER = Sealer(bytes(32))


class SkewedClock:
    """A clock that is wrong by an offset, and by a little more every second."""

    def __init__(self, loop: VirtualLoop, offset_seconds: float = 0, drift: float = 0) -> None:
        self._loop = loop
        self._offset = seconds(offset_seconds)
        self._drift = drift

    def now(self) -> Instant:
        elapsed = self._loop.now
        return BEGINNING + elapsed + self._offset + int(elapsed * self._drift)


class Machine:
    """A process with a store, a clock and a cached list of endpoints, which every Doorstep program starts with."""

    def __init__(self, name: str, loop: VirtualLoop, server: StoreServer, clock: SkewedClock) -> None:
        self.process = Process(name)
        self.clock = clock
        self.troubles: list[str] = []
        self.transitions: list[tuple[Instant, CircuitTransition]] = []
        self._loop = loop
        self.store: Store = server.connect(self.process)
        self.directory = Directory(self.store, _SEALER, TUNING)
        self.telemetry = Telemetry(self._hear)

    def run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine inside this process."""
        task: asyncio.Task[None] = self._loop.create_task(work, context=self.process.context)
        return task

    async def prepared(self) -> None:
        """Wait until the store answers, however long it takes."""
        while True:
            try:
                return await self.directory.refresh()
            except StoreUnavailable:
                await asyncio.sleep(0.1)

    def _hear(self, facts: Sequence[Fact]) -> None:
        for fact in facts:
            if isinstance(fact, ServiceTrouble) and not fact.error.startswith(StoreUnavailable.__name__):
                self.troubles.append(f"{self.process.name}: {fact.service} failed with {fact.error}")
            if isinstance(fact, CircuitTransition):
                self.transitions.append((self._loop.now, fact))


class SendingMachine(Machine):
    """Sends events, and records the answer to each in a ledger."""

    def __init__(
        self, name: str, loop: VirtualLoop, server: StoreServer, clock: SkewedClock, random: Random, ledger: list[Sending]
    ) -> None:  # fmt: skip
        super().__init__(name, loop, server, clock)
        self.sent: list[Sending] = []
        self._ledger = ledger
        self._accepter = Accepter(
            self.store, self.directory, clock, TUNING, self.telemetry, wake=lambda: None,
            new_id=lambda now: uuid7(now, random.randbytes),
        )  # fmt: skip

    def send(self, draft: Draft) -> None:
        sending = Sending(draft)
        self.sent.append(sending)
        self._ledger.append(sending)
        self.run(self._send(sending))

    async def _send(self, sending: Sending) -> None:
        try:
            (sending.receipt,) = await self._accepter.accept([sending.draft])
        except Exception as error:  # noqa: BLE001 - the client's ledger records any error
            sending.trouble = error
            if not isinstance(error, StoreUnavailable):  # our clients send only valid events
                self.troubles.append(f"{self.process.name}: sending failed with {error!r}")


class WorkerMachine(SendingMachine):
    def __init__(
        self, name: str, loop: VirtualLoop, server: StoreServer, clock: SkewedClock, network: Network, random: Random,
        make_worker: Callable[..., Worker] = Worker, ledger: list[Sending] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(name, loop, server, clock, Random(f"ids of {name}"), [] if ledger is None else ledger)
        transports = {kind: Line(network, self.process, clock) for kind in ("http", "handler")}
        self._make = partial(
            make_worker, self.store, self.directory, transports, clock, random.random, TUNING, self.telemetry, name
        )
        self.run(self._live())

    async def _live(self) -> None:
        await self.prepared()
        self.worker = self._make()
        self.store.on_wakeup(Topic.DELIVERIES, self.worker.wake)
        self.worker.start()
        self._accepter._wake = self.worker.wake
        self._accepter.intake = self.worker.deliverer.intake

    async def stop(self) -> None:
        """Stop gracefully, as after SIGTERM."""
        if hasattr(self, "worker"):
            await self.worker.stop()
        self._loop.kill(self.process)


class ClientMachine(SendingMachine):
    """A program that sends events and delivers none."""


class OperatorMachine(Machine):
    """A person at a console, who ignores refusals."""

    def __init__(self, loop: VirtualLoop, server: StoreServer) -> None:
        super().__init__("operator", loop, server, SkewedClock(loop))
        self.deliveries = DeliveryActions(self.store, self.clock, TUNING, self.telemetry)
        rules = EndpointRules(_SEALER, AddressGuard(), 60.0)
        self.endpoints = EndpointService(self.store, self.directory, self.clock, rules, self.telemetry)

    def does(self, act: Callable[..., Coroutine[Any, Any, object]], *how: Any) -> asyncio.Task[None]:
        """Perform an action; ignore it if the store is unavailable or refuses with a conflict."""
        return self.run(self._try(act, how))

    async def _try(self, act: Callable[..., Coroutine[Any, Any, object]], how: tuple[Any, ...]) -> None:
        with suppress(StoreUnavailable, Conflict):
            await act(*how)
