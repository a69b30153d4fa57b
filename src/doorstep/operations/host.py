"""Protocols for the part of class Doorstep that pipelines, batches and the outbox use."""

from __future__ import annotations

from typing import Any, Protocol, Unpack

from doorstep.clock import Clock
from doorstep.config import Settings
from doorstep.engine.accept import Options
from doorstep.engine.directory import Directory
from doorstep.loop_binding import LoopBinding
from doorstep.operations.outbox import OutboxService
from doorstep.stores.store import Store
from doorstep.telemetry.facts import Telemetry


class OpenComponents(Protocol):
    """Some of the components of an open store; see components.py."""

    @property
    def store(self) -> Store: ...
    @property
    def directory(self) -> Directory: ...
    @property
    def outbox(self) -> OutboxService: ...

    def wake_dispatcher(self) -> None:
        """Wake the dispatcher, because deliveries may be due."""


class Host(Protocol):
    """The part of a Doorstep that pipelines, batches and the outbox use."""

    @property
    def settings(self) -> Settings: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def telemetry(self) -> Telemetry: ...
    @property
    def binding(self) -> LoopBinding[Any]: ...
    @property
    def components(self) -> OpenComponents:
        """Access the components only inside `binding.call`: they are rebuilt each time the store is opened."""

    def wake(self) -> None:
        """Hint that there may be messages in the outbox."""

    def send(self, event_type: str, payload: object, *, connection: Any = ..., **options: Unpack[Options]) -> Any:
        """Accept an event; with a `connection`, post it in that connection's transaction."""
