"""MemoryStore: the chapters of its verbs put together."""

from __future__ import annotations

from collections.abc import Callable

from doorstep.clock import AnchoredClock, Clock, Instant
from doorstep.stores.memory.alerts import AlertVerbs
from doorstep.stores.memory.bulk import BulkVerbs
from doorstep.stores.memory.channels import ChannelVerbs
from doorstep.stores.memory.entities import EntityVerbs
from doorstep.stores.memory.figures import FiguresVerbs
from doorstep.stores.memory.house import HouseVerbs
from doorstep.stores.memory.listing import ListVerbs
from doorstep.stores.memory.outbox import OutboxVerbs
from doorstep.stores.memory.path import PathVerbs
from doorstep.stores.memory.reading import ReadingVerbs
from doorstep.stores.memory.registry import RegistryVerbs
from doorstep.stores.memory.standing import StandingVerbs
from doorstep.stores.memory.tables import Tables
from doorstep.stores.memory.workers import WorkerVerbs
from doorstep.stores.store import Capabilities, Task


class MemoryStore(
    PathVerbs,
    EntityVerbs,
    ChannelVerbs,
    AlertVerbs,
    OutboxVerbs,
    RegistryVerbs,
    BulkVerbs,
    ReadingVerbs,
    ListVerbs,
    FiguresVerbs,
    StandingVerbs,
    HouseVerbs,
    WorkerVerbs,
):
    """A Store that keeps everything in this process, for tests, simulations and readers."""

    capabilities = Capabilities(many_machines=False, notices_postings=True)

    def __init__(self, clock: Clock | None = None) -> None:
        """`clock` only answers `time()`; no verb asks it."""
        self._tables = Tables()
        self._clock = clock or AnchoredClock()

    async def open(self) -> None:
        """Nothing to connect to."""

    async def close(self) -> None:
        """Nothing to let go: the same object can be opened again and still has everything."""

    async def migrate(self) -> None:
        """There is no schema."""

    async def time(self) -> Instant:
        return self._clock.now()

    async def hold(self, task: Task, holder: str, now: Instant, until: Instant) -> bool:
        held_by, held_until = self._tables.held.get(task, ("", 0))
        if held_by != holder and held_until > now:
            return False
        self._tables.held[task] = (holder, until)
        return True

    async def leave(self, task: Task, holder: str) -> None:
        if self._tables.held.get(task, ("", 0))[0] == holder:
            del self._tables.held[task]

    def on_wakeup(self, wake: Callable[[], None]) -> None:
        self._tables.wakes.append(wake)
