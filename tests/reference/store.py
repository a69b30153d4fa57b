"""ReferenceStore: its life cycle. Its methods come from one module per group."""

from __future__ import annotations

from collections.abc import Callable

from doorstep.clock import AnchoredClock, Clock, Instant
from doorstep.model.delivery import DeliveryState
from doorstep.stores.program_sql import NO_DEFINITIONS, SqlDefinitions
from doorstep.stores.store import Features, Task, Topic
from tests.reference.figures import FigureVerbs
from tests.reference.messages import MessageVerbs
from tests.reference.path import PathVerbs
from tests.reference.retention import RetentionVerbs
from tests.reference.tables import Tables


class ReferenceStore(PathVerbs, MessageVerbs, RetentionVerbs, FigureVerbs):
    """Keeps everything in the memory of this process."""

    features = Features(many_machines=False, notices_posts=True)

    def __init__(self, clock: Clock | None = None) -> None:
        """Only the method `time()` reads `clock`."""
        self._tables = Tables()
        self._clock = clock or AnchoredClock()

    async def open(self) -> None:
        """Do nothing: there is no database to connect to."""

    async def close(self) -> None:
        """Do nothing: the same object can be opened again and still has its data."""

    async def migrate(self, definitions: SqlDefinitions = NO_DEFINITIONS) -> None:
        """Do nothing: there is no schema."""

    async def time(self) -> Instant:
        return self._clock.now()

    def on_wakeup(self, topic: Topic, wake: Callable[[], None]) -> None:
        self._tables.wakes[topic].append(wake)

    def wake_others(self, topic: Topic) -> None:
        self._tables.wake(topic)

    async def any_waiting(self, topic: Topic) -> bool:
        match topic:
            case Topic.OUTBOX:
                return any(row.refused_at is None for row in self._tables.outbox.values())
            case Topic.INCIDENTS:
                return bool(self._tables.incidents)
            case Topic.DELIVERIES:
                return bool(self._tables.by_due(DeliveryState.PENDING))

    async def announce_posts(self, wanted: bool) -> bool:
        return True

    async def acquire_lock(self, task: Task, holder: str, now: Instant, until: Instant) -> bool:
        held_by, held_until = self._tables.locks.get(task, ("", 0))
        if held_by != holder and held_until > now:
            return False
        self._tables.locks[task] = (holder, until)
        return True

    async def release_lock(self, task: Task, holder: str) -> None:
        if self._tables.locks.get(task, ("", 0))[0] == holder:
            del self._tables.locks[task]
