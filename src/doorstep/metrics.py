"""Metrics: facts counted for Prometheus. One registry for each process; a worker process counts for itself.

Gauges are set when someone looks (`sample`), from questions that stay cheap however much is stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import prometheus_client as prometheus

from doorstep.telemetry import DeliveryFailure, DeliveryTransition, Fact, LateSettle, StatusTransition

CONTENT_TYPE = prometheus.CONTENT_TYPE_LATEST


class Metrics:
    """Subscribe `count` to the telemetry; `text` is what /metrics shows."""

    def __init__(self) -> None:
        self.registry = prometheus.CollectorRegistry()
        self._created = self._counter("events_created", "Events accepted")
        self._delivered = self._counter("events_delivered", "Events whose every delivery was delivered")
        self._failed = self._counter("events_failed", "Events that failed for good")
        self._attempts = prometheus.Counter(
            "doorstep_attempts", "Attempts that were settled, by what they came to", ["outcome"], registry=self.registry
        )
        self._late = self._counter("late_settles", "Results refused, because their lease had passed to someone else")
        self._blocked = self._counter("blocked_addresses", "Attempts that the address guard refused")
        self._waiting = self._gauge("waiting_endpoints", "Endpoints that have deliveries waiting")
        self._oldest = self._gauge("oldest_due_seconds", "How long the oldest due delivery has been due")

    def count(self, facts: Sequence[Fact]) -> None:
        """A batch at a time: one pass, and one increment for each kind that occurred."""
        found = Counter(_kind(fact) for fact in facts)
        self._created.inc(found["created"])
        self._delivered.inc(found["delivered"])
        self._failed.inc(found["failed"])
        self._late.inc(found["late"])
        self._blocked.inc(found["dead BLOCKED"] + found["retry BLOCKED"])
        for kind, number in found.items():
            self._count_attempts(kind, number)

    def _count_attempts(self, kind: str, number: int) -> None:
        outcome = kind.partition(" ")[0]
        if outcome in ("succeeded", "retry", "dead"):
            self._attempts.labels(outcome).inc(number)

    def sample(self, waiting_endpoints: int, oldest_due_seconds: float) -> None:
        """Set the gauges; for whoever knows the store."""
        self._waiting.set(waiting_endpoints)
        self._oldest.set(oldest_due_seconds)

    def text(self) -> bytes:
        return prometheus.generate_latest(self.registry)

    def _counter(self, name: str, about: str) -> prometheus.Counter:
        return prometheus.Counter(f"doorstep_{name}", about, registry=self.registry)

    def _gauge(self, name: str, about: str) -> prometheus.Gauge:
        return prometheus.Gauge(f"doorstep_{name}", about, registry=self.registry)


def _kind(fact: Fact) -> str:
    """What there is to count in a fact, in a word; `retry CODE` and `dead CODE` for failed attempts."""
    kind = _KINDS.get(type(fact))
    return "" if kind is None else kind(fact)


def _of_status(fact: StatusTransition) -> str:
    if fact.old_status is None:
        return "created"
    return fact.new_status if fact.new_status in ("delivered", "failed") else ""


def _of_delivery(fact: DeliveryTransition) -> str:
    return "succeeded" if fact.new_state == "delivered" else ""


def _of_failure(fact: DeliveryFailure) -> str:
    return f"{'dead' if fact.next_retry_at is None else 'retry'} {fact.error['code']}"


_KINDS: dict[type[Fact], Callable[[Any], str]] = {
    StatusTransition: _of_status,
    DeliveryTransition: _of_delivery,
    DeliveryFailure: _of_failure,
    LateSettle: lambda fact: "late",
}
