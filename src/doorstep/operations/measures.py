"""What is measured, in one table: the name of each metric, what it means, and how it is read off a snapshot.

Prometheus (operations/prometheus.py), OpenTelemetry (operations/otel_metrics.py) and docs/reference/metrics.md are all made from it.
Labels are bounded: nothing in them comes from outside, but for the endpoints that an operator asked to see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from doorstep.model.event import EventStatus
from doorstep.model.record import Record
from doorstep.model.rollup import TTD_SECONDS, Figures
from doorstep.operations.stats import EndpointFigures, Snapshot

RETRY_BOUNDS = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0)


class Kind(StrEnum):
    COUNTER = "counter"
    """It only grows, also over restarts."""
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Value(NamedTuple):
    """One number, and the labels that tell it from its siblings."""

    number: float
    labels: Mapping[str, str] = {}


class Distribution(Record, frozen=True):
    """How many fell into each bucket, the last of which has no bound; and the sum of all."""

    bounds: Sequence[float]
    counts: Sequence[int]
    total: float


class Measure(NamedTuple):
    """One metric. The name of a counter ends in `_total`. Units in braces are OpenTelemetry's notes for people; a bare `1`
    would be a ratio to it, and collectors would add that to the name."""

    name: str
    kind: Kind
    about: str
    read: Callable[[Snapshot], Sequence[Value] | Distribution]
    labels: tuple[str, ...] = ()
    unit: str = ""


def _counter(name: str, figure: str, unit: str, about: str) -> Measure:
    return Measure(name, Kind.COUNTER, about, lambda seen: [Value(getattr(seen.totals, figure))], unit=unit)


def _gauge(name: str, figure: str, unit: str, about: str) -> Measure:
    return Measure(name, Kind.GAUGE, about, lambda seen: [Value(getattr(seen.totals, figure))], unit=unit)


_OUTCOMES = {"succeeded": "succeeded", "retry": "retried", "dead": "died"}
"""What an attempt came to, and the figure that counts it."""


def _attempts(figures: Figures, **labels: str) -> list[Value]:
    return [Value(getattr(figures, figure), {**labels, "outcome": outcome}) for outcome, figure in _OUTCOMES.items()]


def _statuses(seen: Snapshot) -> list[Value]:
    return [Value(getattr(seen.totals, f"now_{status}"), {"status": status}) for status in EventStatus]


def _messages(seen: Snapshot) -> list[Value]:
    levels = {"waiting": seen.messages.now_open, "dead": seen.messages.now_dead}
    return [Value(count, {"state": state}) for state, count in levels.items()]


def _circuits(seen: Snapshot) -> list[Value]:
    return [Value(count, {"state": state}) for state, count in seen.circuits.items()]


def _time_to_delivery(seen: Snapshot) -> Distribution:
    return Distribution(TTD_SECONDS, seen.totals.ttd, seen.totals.ttd_ms / 1_000)


def _retries(seen: Snapshot) -> Distribution:
    """Seven or more count as seven in the sum."""
    counts = seen.totals.retries
    return Distribution(RETRY_BOUNDS, counts, float(sum(number * count for number, count in enumerate(counts))))


def _each(read: Callable[[EndpointFigures], float]) -> Callable[[Snapshot], list[Value]]:
    return lambda seen: [Value(read(one), _endpoint_labels(one)) for one in seen.endpoints]


def _endpoint_labels(one: EndpointFigures) -> dict[str, str]:
    return {"endpoint": one.endpoint.name, "endpoint_id": str(one.endpoint.endpoint_id)}


def _endpoint_attempts(seen: Snapshot) -> list[Value]:
    return [value for one in seen.endpoints for value in _attempts(one.figures, **_endpoint_labels(one))]


_ENDPOINT = ("endpoint", "endpoint_id")

MEASURES: tuple[Measure, ...] = (
    _counter("doorstep_events_created_total", "created", "{event}", "Events accepted"),
    _counter(
        "doorstep_events_delivered_total",
        "delivered",
        "{event}",
        "How often an event came to be delivered: all of it arrived or was resolved, or it was acknowledged",
    ),
    _counter(
        "doorstep_events_failed_total",
        "failed",
        "{event}",
        "How often an event came to its end with a dead letter; what was cancelled or deleted did not fail",
    ),
    Measure("doorstep_events", Kind.GAUGE, "Events that are stored, by status", _statuses, ("status",), "{event}"),
    _gauge("doorstep_events_received", "now_received", "{event}", "Events that nobody has taken up yet"),
    _gauge("doorstep_events_queued", "now_queued", "{event}", "Events on their way"),
    _gauge("doorstep_queue_depth", "now_open", "{delivery}", "Deliveries that are waiting or in progress"),
    Measure(
        "doorstep_oldest_due_seconds",
        Kind.GAUGE,
        "How long the oldest due delivery has been due",
        lambda seen: [Value(seen.oldest_due_seconds)],
        unit="s",
    ),
    Measure(
        "doorstep_waiting_endpoints",
        Kind.GAUGE,
        "Endpoints that have deliveries waiting",
        lambda seen: [Value(seen.waiting_endpoints)],
        unit="{endpoint}",
    ),
    _gauge(
        "doorstep_dead_letters",
        "now_dead",
        "{delivery}",
        "Dead letters that nobody has dealt with, archived ones not counted",
    ),
    _counter("doorstep_deliveries_dead_total", "dead", "{delivery}", "Deliveries that became dead letters"),
    Measure(
        "doorstep_circuits", Kind.GAUGE, "Endpoints by the state of their circuit", _circuits, ("state",), "{endpoint}"
    ),
    Measure(
        "doorstep_attempts_total",
        Kind.COUNTER,
        "Attempts that were settled, by what they came to",
        lambda seen: _attempts(seen.totals),
        ("outcome",),
        "{attempt}",
    ),
    _counter(
        "doorstep_late_settles_total",
        "late",
        "{attempt}",
        "Results that changed nothing: their lease had ended, and their delivery was settled or claimed again",
    ),
    _counter("doorstep_blocked_addresses_total", "blocked", "{attempt}", "Attempts that the address guard refused"),
    Measure(
        "doorstep_time_to_delivery_seconds",
        Kind.HISTOGRAM,
        "How long it took until a delivery arrived, from its acceptance, or its `deliver_at` if that was later",
        _time_to_delivery,
        unit="s",
    ),
    Measure(
        "doorstep_retry_attempts",
        Kind.HISTOGRAM,
        "Retries that a delivery had used when a try ended it",
        _retries,
        unit="{retry}",
    ),
    Measure(
        "doorstep_alert_messages",
        Kind.GAUGE,
        "Messages to the channels of alerts, which no other metric counts: those that wait, and those that died lately",
        _messages,
        ("state",),
        "{message}",
    ),
    Measure(
        "doorstep_endpoint_attempts_total",
        Kind.COUNTER,
        "The same attempts by endpoint, for the busiest ones (`DOORSTEP_METRICS_ENDPOINTS`)",
        _endpoint_attempts,
        (*_ENDPOINT, "outcome"),
        "{attempt}",
    ),
    Measure(
        "doorstep_endpoint_deliveries_dead_total",
        Kind.COUNTER,
        "Deliveries that became dead letters, by endpoint",
        _each(lambda one: one.figures.dead),
        _ENDPOINT,
        "{delivery}",
    ),
    Measure(
        "doorstep_endpoint_queue_depth",
        Kind.GAUGE,
        "Deliveries that are waiting or in progress, by endpoint",
        _each(lambda one: one.figures.now_open),
        _ENDPOINT,
        "{delivery}",
    ),
    Measure(
        "doorstep_endpoint_dead_letters",
        Kind.GAUGE,
        "Dead letters by endpoint",
        _each(lambda one: one.figures.now_dead),
        _ENDPOINT,
        "{delivery}",
    ),
    Measure(
        "doorstep_endpoint_circuit_open",
        Kind.GAUGE,
        "1 while the endpoint's circuit is not closed",
        _each(lambda one: float(one.circuit_open)),
        _ENDPOINT,
        "{circuit}",
    ),
)


def readings(seen: Snapshot | None) -> Iterator[tuple[Measure, Sequence[Value] | Distribution]]:
    """Everything that there is to tell; before the store has ever answered, nothing."""
    if seen is not None:
        yield from ((measure, measure.read(seen)) for measure in MEASURES)
