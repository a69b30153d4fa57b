"""The record of a run: everything that the checker examines."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from doorstep.clock import Instant
from doorstep.engine.accept import Draft
from doorstep.model.attempt import Attempt
from doorstep.model.delivery import Delivery, HistoryEntry
from doorstep.model.endpoint import Endpoint
from doorstep.model.event import EventView, Receipt
from doorstep.telemetry.facts import CircuitTransition
from tests.simulation.journal import Step
from tests.simulation.network import Request
from tests.simulation.trace import Trace


class Sending:
    """One send call of a client. Without a receipt, the client does not know whether the event was stored."""

    __slots__ = ("draft", "receipt", "trouble")

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.receipt: Receipt | None = None
        self.trouble: Exception | None = None


class Disturbance(NamedTuple):
    """A process was killed, frozen or stopped; `until` is when it could work again, if ever."""

    process: str
    kind: str
    at: Instant
    until: Instant | None


class Outage(NamedTuple):
    """All receivers are down from this time until everything is healed."""

    at: Instant
    hangs: bool


class Life(NamedTuple):
    """The final state of a delivery, with its attempts and history."""

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
    """Time, process and method of each call that the store failed."""
    troubles: list[str]
    """Errors in our own code that the store did not cause."""
    miscounted: list[str]
    """Figures that differ from a recount of the rows."""
    transitions: list[tuple[Instant, CircuitTransition]]
    outage: Outage | None
    healed_at: Instant
    ended_at: Instant
    trace: Trace
