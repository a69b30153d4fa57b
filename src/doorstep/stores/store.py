"""The store: every verb that Doorstep needs of a database. Read this first.

Four verbs carry the guarantees: `accept`, `claim_due`, `settle`, `release`. Rules for all of them:

- Each call is one transaction: all of it is kept, or none.
- Time is an argument. A store never asks a clock and never decides; it writes what was decided, if it may.
- No method is optional. What a database cannot do alike is a declared `Capabilities` field.
- A store that cannot write or be reached raises StoreUnavailable, and works again by itself later.
- What is unknown and what belongs to another organization are the same NotFound, for every verb that names one
  thing; so is an unknown organization for every verb that writes under it.
- Bytes are kept as they are. Text with a NUL or a lone surrogate is InvalidInput in `accept` and is replaced in
  what a receiver caused (`settle`), because a strange error text must not keep a result from being written
  (stores/text.py). History notes and audit results have one wording (stores/notes.py).
- Deliveries of one endpoint whose events share an ordering key form a line. One that is accepted while another of its
  line is open (pending or in progress) is blocked: it waits, with no due time. Whatever ends or takes away an open one
  looks who is the first of the line then. If that is blocked, it becomes due: now, but not before its event's
  `deliver_at` unless it is forced. Nobody is blocked again, so a dead letter that is retried may be overtaken.

The verbs are in `protocol/`, one concept a module: whoever needs one alone says so (`store: PathStore`). One contract
suite (tests/contract) runs on every store, and compares it with a reference model (tests/reference).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from doorstep.clock import Instant
from doorstep.model.record import Record
from doorstep.stores.protocol.alerts import AlertStore
from doorstep.stores.protocol.arrangements import ArrangementStore
from doorstep.stores.protocol.bulk import BulkStore
from doorstep.stores.protocol.circuits import CircuitStore
from doorstep.stores.protocol.endpoints import EndpointStore
from doorstep.stores.protocol.entities import EntityStore
from doorstep.stores.protocol.figures import FigureStore
from doorstep.stores.protocol.house import Cleaned, HouseStore
from doorstep.stores.protocol.lists import ListStore
from doorstep.stores.protocol.operators import OperatorStore
from doorstep.stores.protocol.orgs import OrgStore
from doorstep.stores.protocol.outbox import OutboxStore
from doorstep.stores.protocol.path import PathStore
from doorstep.stores.protocol.reading import ReadingStore
from doorstep.stores.protocol.tasks import Task, TaskStore
from doorstep.stores.protocol.workers import WorkerStore

__all__ = ["Capabilities", "Cleaned", "Store", "Task"]


class Capabilities(Record, frozen=True):
    """Where stores differ, said openly."""

    many_machines: bool
    """Processes on other machines can share it, so all follow its time."""
    notices_postings: bool
    """Calls what was given to `on_posted` after every commit of other programs, so that nobody needs to poll."""


class Store(
    PathStore,
    OutboxStore,
    TaskStore,
    EndpointStore,
    CircuitStore,
    OperatorStore,
    BulkStore,
    EntityStore,
    AlertStore,
    ArrangementStore,
    ReadingStore,
    ListStore,
    FigureStore,
    HouseStore,
    OrgStore,
    WorkerStore,
    Protocol,
):
    """All verbs, and the life of the whole."""

    capabilities: Capabilities

    async def open(self) -> None:
        """Connect. The schema must be current (`migrate`); otherwise this raises ConfigError saying so."""

    async def close(self) -> None: ...

    async def migrate(self) -> None:
        """Bring the schema to the current version; harmless when it is."""

    async def time(self) -> Instant:
        """The store's own idea of the time, which all processes sharing it follow."""

    def on_wakeup(self, wake: Callable[[], None]) -> None:
        """Call `wake` (from the event loop) when other processes may have accepted work. A hint: may be lost."""
