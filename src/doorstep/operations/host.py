"""What pipelines, batches and the outbox need of the Doorstep that they belong to."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar, Unpack

from doorstep.clock import Clock
from doorstep.config import Settings
from doorstep.engine.accept import Options
from doorstep.engine.directory import Directory
from doorstep.operations.outbox import OutboxService
from doorstep.stores.store import Store
from doorstep.telemetry.facts import Telemetry

T = TypeVar("T")
Work = Callable[[], Coroutine[Any, Any, T]]


class Pinned(Protocol):
    """One opening of the store. It opens nothing: StoreUnavailable once that has been closed."""

    async def call(self, work: Work[T]) -> T:
        """Run a coroutine function in the event loop in which the store was opened."""

    def call_sync(self, work: Work[T]) -> T:
        """`call` for plain functions."""


class Binding(Protocol):
    """The event loop in which the store is open; see loop_binding.py."""

    async def call(self, work: Work[T]) -> T:
        """Run a coroutine function in it; opens the store first if necessary."""

    def call_sync(self, work: Work[T]) -> T:
        """`call` for programs without an event loop."""

    def pin(self) -> Pinned:
        """The present opening, for work that may outlast it."""


class OpenParts(Protocol):
    """Of what works on an open store; see components.py."""

    @property
    def store(self) -> Store: ...
    @property
    def directory(self) -> Directory: ...
    @property
    def outbox(self) -> OutboxService: ...

    def wake_dispatcher(self) -> None:
        """There may be something due."""


class Host(Protocol):
    """A Doorstep."""

    @property
    def settings(self) -> Settings: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def telemetry(self) -> Telemetry: ...
    @property
    def binding(self) -> Binding: ...
    @property
    def components(self) -> OpenParts:
        """Read inside `binding.call`: they are others each time that the store is opened."""

    def wake(self) -> None:
        """There may be something in the outbox."""

    def send(self, event_type: str, payload: object, *, connection: Any = ..., **options: Unpack[Options]) -> Any:
        """Accept an event; with a `connection` post it in the transaction that this is in."""
