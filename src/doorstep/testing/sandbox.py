"""A sandbox for tests: your own Doorstep, with its handlers, on a store in memory and a clock that you move.

    async with sandbox(ds) as box:
        receipt = await ds.send("order.paid", {"order": 42})
        await box.drain(until=3600)
        box.assert_delivered(receipt)

In a test without an event loop it is `with sandbox(ds) as box`, `ds.send_sync` and `box.drain` without await.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from copy import copy
from ipaddress import ip_network
from typing import Any, TypeVar

from msgspec.structs import replace

from doorstep.app import Doorstep
from doorstep.components import Components
from doorstep.loop_binding import LoopBinding, in_a_loop
from doorstep.stores.open import store_from_url
from doorstep.stores.store import Store
from doorstep.telemetry.facts import Telemetry
from doorstep.testing.drainer import Drainer
from doorstep.testing.fake_clock import FakeClock
from doorstep.testing.fake_transport import NoNetwork
from doorstep.testing.inspection import Looking
from doorstep.transports.address_guard import AddressGuard
from doorstep.transports.http import HttpTransport
from doorstep.transports.transport import Transport

_IN_MEMORY = "memory://"
_LOOPBACK = ip_network("127.0.0.0/8")


class sandbox:
    """Opens the Doorstep for the time of the `with`; afterwards it is as it was, and what was sent is forgotten.

    Nothing is delivered by itself: `drain` does it. Endpoints with a URL are played by `box.network`, and nobody is
    connected to. With `network=True` they are called for real, those on this machine too (see `Receiver`).
    """

    def __init__(self, doorstep: Doorstep, *, clock: FakeClock | None = None, network: bool = False) -> None:
        self._doorstep = doorstep
        self._clock = clock or FakeClock()
        self._network = network

    async def __aenter__(self) -> Sandbox:
        self._box = Sandbox(self._doorstep, self._clock, network=self._network)
        await self._box.open()
        return self._box

    async def __aexit__(self, *exc: object) -> None:
        await self._box.close()

    def __enter__(self) -> BlockingSandbox:
        self._blocking_box = BlockingSandbox(self._doorstep, self._clock, network=self._network)
        self._blocking_box.open()
        return self._blocking_box

    def __exit__(self, *exc: object) -> None:
        self._blocking_box.close()


class _Box(Looking):
    """What both kinds of sandbox have in common."""

    def __init__(self, doorstep: Doorstep, clock: FakeClock, *, network: bool) -> None:
        store = store_from_url(_IN_MEMORY)
        super().__init__(store, clock)
        self.doorstep = doorstep
        self.clock = clock
        self.network = NoNetwork(clock)
        """Plays the receivers: `box.network.behaves(status(503))`, `box.network.requests`."""
        self._real_network = network
        self._thread = doorstep.binding.thread
        self._binding = SandboxBinding(doorstep._open, doorstep._stop, doorstep._close)
        self._swapped = _swapped(doorstep, **self._replacements(store))

    def _replacements(self, store: Store) -> dict[str, Any]:
        """What the sandbox has of its own. Handlers and the like are the program's; what a test adds is forgotten."""
        real = self.doorstep
        copies = {name: copy(value) for name, value in vars(real).items() if isinstance(value, dict | list)}
        return copies | {
            "settings": real.settings.model_copy(update={"database_url": _IN_MEMORY}),
            "registry": real.registry.copy(),
            "_store": store,
            "clock": self.clock,
            "telemetry": Telemetry(real.telemetry.emit_all, self.hear),
            "binding": self._binding,  # what is open already goes on as it was
            "_tuning": replace(real._tuning, settle_linger_seconds=0),
            "_guard": AddressGuard([_LOOPBACK]) if self._real_network else real._guard,
            "_opened_by": None,
            # A program under test may open, start and close its Doorstep as always, in whichever event loop it runs in.
            "open": _leave_open,
            "close": _leave_open,
            "close_sync": lambda: None,
            "start": lambda: None,
        }

    async def _open(self) -> None:
        with ExitStack() as undo:
            undo.enter_context(self._swapped)
            await type(self.doorstep).open(self.doorstep)
            self._drainer = Drainer(self.doorstep, self.clock, self._transport())
            self._drainer.open()
            self._undo = undo.pop_all()

    def _transport(self) -> Transport:
        if not self._real_network:
            return self.network
        return HttpTransport(self.doorstep._guard, self.clock, connections_max=self.doorstep._tuning.places)

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
    """For tests with an event loop."""

    async def open(self) -> None:
        """What `async with` does first."""
        await self._open()

    async def close(self) -> None:
        """What `async with` does last."""
        await self._close()

    async def drain(self, until: float = 0) -> None:
        """Do everything that is due, and what follows from it; with `until`, leap through so many seconds."""
        await self._drain(until)


class BlockingSandbox(_Box):
    """For tests without one: it runs in a thread."""

    def open(self) -> None:
        """What `with` does first."""
        self._thread.run(self._open)

    def close(self) -> None:
        """What `with` does last."""
        self._thread.run(self._close)

    def drain(self, until: float = 0) -> None:
        """Do everything that is due, and what follows from it; with `until`, leap through so many seconds."""
        self._thread.run(lambda: self._drain(until))


async def _leave_open(**_: object) -> None:
    """The sandbox opens it, and closes it in the end."""


@contextmanager
def _swapped(thing: object, **attributes: Any) -> Iterator[None]:
    """Lend an object other attributes; afterwards it has exactly those that it had."""
    own = vars(thing)
    before = dict(own)
    own.update(attributes)
    try:
        yield
    finally:
        own.clear()
        own.update(before)


T = TypeVar("T")
Work = Callable[[], Coroutine[Any, Any, T]]

_ANSWER_SECONDS = 0.05


class SandboxBinding(LoopBinding[Components]):
    """Stands in for the binding of a Doorstep for the time of a sandbox."""

    draining = False
    """Its event loop is at work, however long it takes to answer."""

    def call_sync(self, work: Work[T]) -> T:
        """For those who cannot await."""
        if in_a_loop() or self._answers():
            return super().call_sync(work)
        return asyncio.run(work())

    async def call(self, work: Work[T]) -> T:
        """For those who can."""
        if self.is_open_here() or not self._answers():
            return await work()
        return await super().call(work)

    def _answers(self) -> bool:
        """Whether the event loop of the sandbox goes on."""
        if self.draining:
            return True
        answered = threading.Event()
        self.pin().loop.call_soon_threadsafe(answered.set)
        return answered.wait(_ANSWER_SECONDS)
