"""What pipelines, batches and the outbox need of the Doorstep that they belong to."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar, Unpack

from doorstep.clock import Clock
from doorstep.path.directory import Directory
from doorstep.path.drafting import Options
from doorstep.path.tuning import Tuning
from doorstep.stores.store import Store
from doorstep.telemetry.facts import Telemetry

T = TypeVar("T")
Work = Callable[[], Coroutine[Any, Any, T]]


class Stay(Protocol):
    """The home that a Doorstep had at one moment. It opens nothing: StoreUnavailable once that home is gone."""

    async def at_home(self, work: Work[T]) -> T:
        """Run something on the store, in the event loop that it was opened in."""

    def wait(self, work: Work[T]) -> T:
        """The same for who has no event loop."""


class StoreHost(Protocol):
    """A store, and the event loop to use it in. Asked anew each time: it is another one in a forked process."""

    store: Store
    clock: Clock

    def wake(self) -> None:
        """There may be something in the outbox."""

    async def at_home(self, work: Work[T]) -> T:
        """Run something on the open store, which is opened if it was not, in the event loop that it was opened in."""


class Host(StoreHost, Protocol):
    """A Doorstep."""

    directory: Directory
    tuning: Tuning
    telemetry: Telemetry

    def wake_dispatcher(self) -> None:
        """There may be something due."""

    def send(self, event_type: str, payload: object, *, connection: Any = ..., **options: Unpack[Options]) -> Any:
        """Accept an event; with a `connection` post it in the transaction that this is in."""

    def wait(self, work: Work[T]) -> T:
        """`at_home` for who has no event loop."""

    def stay(self) -> Stay:
        """The present home, for who began something there and may end it when it is gone."""
