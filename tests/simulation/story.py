"""What a run leaves behind, and all that the checker looks at."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from doorstep.clock import Instant
from doorstep.engine.accept import Draft
from doorstep.model.attempt import Attempt
from doorstep.model.delivery import Delivery, HistoryEntry
from doorstep.model.endpoint import Endpoint
from doorstep.model.event import EventView, Receipt
from tests.simulation.journal import Step
from tests.simulation.network import Request
from tests.simulation.trace import Trace


class Sending:
    """One call of a client. Without receipts nobody knows whether it was kept."""

    __slots__ = ("draft", "receipt", "trouble")

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.receipt: Receipt | None = None
        self.trouble: Exception | None = None


class Disturbance(NamedTuple):
    """A process was killed, frozen or stopped; `until` is when it could work again."""

    process: str
    kind: str
    at: Instant
    until: Instant | None


class Life(NamedTuple):
    """A delivery as it ended, with its logs."""

    delivery: Delivery
    attempts: list[Attempt]
    history: list[HistoryEntry]


class Story(NamedTuple):
    seed: int
    sendings: list[Sending]
    requests: list[Request]
    steps: list[Step]
    disturbances: list[Disturbance]
    events: dict[UUID, EventView]
    lives: dict[UUID, Life]
    endpoints: dict[UUID, Endpoint]
    store_failures: list[tuple[Instant, str, str]]
    """When, whose, and which call the store failed."""
    troubles: list[str]
    """What went wrong inside our own code and was not the store's fault."""
    miscounted: list[str]
    """Figures that the rows do not add up to."""
    healed_at: Instant
    ended_at: Instant
    trace: Trace
