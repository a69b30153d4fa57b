"""ReferenceStore: its verbs, put together from one module for each concept."""

from __future__ import annotations

from collections.abc import Callable

from doorstep.clock import AnchoredClock, Clock, Instant
from doorstep.stores.store import Capabilities, Task
from tests.reference.alerts import AlertVerbs
from tests.reference.bulk import BulkVerbs
from tests.reference.channels import ChannelVerbs
from tests.reference.entities import EntityVerbs
from tests.reference.figures import FiguresVerbs
from tests.reference.house import HouseVerbs
from tests.reference.listing import ListVerbs
from tests.reference.outbox import OutboxVerbs
from tests.reference.path import PathVerbs
from tests.reference.reading import ReadingVerbs
from tests.reference.registry import RegistryVerbs
from tests.reference.standing import StandingVerbs
from tests.reference.tables import Tables
from tests.reference.workers import WorkerVerbs


class ReferenceStore(
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
    """Keeps everything in this process."""

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
