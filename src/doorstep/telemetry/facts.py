"""Facts: what the engine says about itself. Code emits facts; the subscribers below word or count them.

Facts are emitted in lists, because the engine works in batches, and a fact has the fields of its log line in their
order: one encoder call for a whole batch costs about 0.3 µs a line, against 20 for a logging framework.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from doorstep.telemetry.tracing import Tracing

PROGRAM = "doorstep"
_log = logging.getLogger("doorstep.telemetry")


class Fact(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename={"at": "@timestamp", "program": "service"}):
    """Something that happened."""

    at: str
    """When it happened, in the words of the log (`to_iso`): those that happened together share the text."""
    program: str = PROGRAM
    level: str | UnsetType = UNSET
    """`info` where nothing is said, as of nearly all."""
    event: str = ""
    """The name of this kind of fact."""


class StatusTransition(Fact, frozen=True, kw_only=True):
    """An event's status changed (R10.1)."""

    event: str = "status_transition"
    event_id: UUID
    old_status: str | None
    new_status: str
    retry_attempts: int
    correlation_id: str
    org_id: UUID


class DeliveryTransition(Fact, frozen=True, kw_only=True):
    """A delivery's state changed."""

    event: str = "delivery_transition"
    delivery_id: UUID
    event_id: UUID
    endpoint_id: UUID
    old_state: str
    new_state: str
    attempt: int
    correlation_id: str
    org_id: UUID


class DeliveryFailure(Fact, frozen=True, kw_only=True):
    """An attempt failed; `next_retry_at` is None when it was the last."""

    event: str = "delivery_failure"
    event_id: UUID
    delivery_id: UUID
    endpoint_id: UUID
    retry_attempts: int
    error: dict[str, object]
    error_reason: str
    next_retry_at: str | None
    correlation_id: str
    org_id: UUID


class LateSettle(Fact, frozen=True, kw_only=True):
    """A result arrived after its lease had passed to someone else; it changed nothing."""

    level: str = "warning"
    event: str = "late_settle"
    delivery_id: UUID
    event_id: UUID
    attempt: int
    worker: str
    correlation_id: str
    org_id: UUID


class EntityTransition(Fact, frozen=True, kw_only=True):
    """The status of a pipeline's entity changed."""

    event: str = "entity_transition"
    pipeline: str
    entity_id: str
    old_status: str | None
    new_status: str
    reason: str
    event_id: UUID | None
    correlation_id: str
    org_id: UUID


class CircuitTransition(Fact, frozen=True, kw_only=True):
    event: str = "circuit_transition"
    endpoint_id: UUID
    org_id: UUID
    old_state: str
    new_state: str
    failures: int
    reason: str


class EndpointDisabled(Fact, frozen=True, kw_only=True):
    level: str = "error"
    event: str = "endpoint_disabled"
    endpoint_id: UUID
    org_id: UUID
    reason: str


class ServiceTrouble(Fact, frozen=True, kw_only=True, rename={"service": "component"}):
    """A service could not do its round and will try again."""

    level: str = "error"
    event: str = "service_trouble"
    service: str
    error: str
    retry_in_seconds: float


class Notice(Fact, frozen=True, kw_only=True):
    """Anything else an operator may want to know: starts, stops, counts of cleaned rows."""

    event: str = "notice"
    level: str
    message: str
    fields: dict[str, object] = {}


Subscriber = Callable[[Sequence[Fact]], None]


class Telemetry:
    """Hands facts to whoever subscribed; with nobody listening it costs nothing."""

    def __init__(self, *subscribers: Subscriber) -> None:
        self._subscribers = list(subscribers)
        self.tracing: Tracing | None = None
        """Whoever records spans; None while nobody wants any."""

    def subscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.append(subscriber)

    def unsubscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.remove(subscriber)

    @property
    def heard(self) -> bool:
        return bool(self._subscribers)

    def emit(self, *facts: Fact) -> None:
        self.emit_all(facts)

    def emit_all(self, facts: Iterable[Fact]) -> None:
        if not self._subscribers:
            return
        batch = tuple(facts)
        if batch:
            for subscriber in self._subscribers:
                _hand(batch, subscriber)


def _hand(facts: Sequence[Fact], subscriber: Subscriber) -> None:
    """What a subscriber raises is his own: what he was told of has been written, and must not seem to have failed."""
    try:
        subscriber(facts)
    except Exception:  # noqa: BLE001  logged, with what it was
        _log.exception("a subscriber of the telemetry failed: %s", getattr(subscriber, "__qualname__", subscriber))
