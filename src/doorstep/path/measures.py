"""What is measured, in one table: the name of each metric, what it means, and how it is read off a snapshot.

Prometheus (telemetry/metrics.py), OpenTelemetry (telemetry/otel_metrics.py) and docs/metrics.md are all made from it.
Labels are bounded: nothing in them comes from outside, but for the endpoints that an operator asked to see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from doorstep.clock import SECOND
from doorstep.model.event import EventStatus
from doorstep.model.noun import Noun
from doorstep.model.rollup import TTD_SECONDS, Figures
from doorstep.path.sampling import EndpointFigures, Snapshot

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


class Distribution(Noun, frozen=True):
    """How many fell into each bucket, the last of which has no bound; and the sum of all."""

    bounds: Sequence[float]
    counts: Sequence[int]
    total: float


class Measure(NamedTuple):
    """One metric. The name of a counter ends in `_total`."""

    name: str
    kind: Kind
    about: str
    read: Callable[[Snapshot], Sequence[Value] | Distribution]
    labels: tuple[str, ...] = ()
    unit: str = "1"


def _counter(name: str, figure: str, about: str) -> Measure:
    return Measure(name, Kind.COUNTER, about, lambda seen: [Value(getattr(seen.totals, figure))])


def _gauge(name: str, figure: str, about: str) -> Measure:
    return Measure(name, Kind.GAUGE, about, lambda seen: [Value(getattr(seen.totals, figure))])


_OUTCOMES = {"succeeded": "succeeded", "retry": "retried", "dead": "died"}
"""What an attempt came to, and the figure that counts it."""


def _attempts(figures: Figures, **labels: str) -> list[Value]:
    return [Value(getattr(figures, figure), {**labels, "outcome": outcome}) for outcome, figure in _OUTCOMES.items()]


def _statuses(seen: Snapshot) -> list[Value]:
    return [Value(getattr(seen.totals, f"now_{status}"), {"status": status}) for status in EventStatus]


def _circuits(seen: Snapshot) -> list[Value]:
    return [Value(count, {"state": state}) for state, count in seen.circuits.items()]


def _time_to_delivery(seen: Snapshot) -> Distribution:
    return Distribution(TTD_SECONDS, seen.totals.ttd, seen.totals.ttd_us / SECOND)


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
    _counter("doorstep_events_created_total", "created", "Events accepted"),
    _counter("doorstep_events_delivered_total", "delivered", "Events whose every delivery was delivered"),
    _counter("doorstep_events_failed_total", "failed", "Events that failed for good"),
    Measure("doorstep_events", Kind.GAUGE, "Events that are stored, by status", _statuses, ("status",)),
    _gauge("doorstep_events_received", "now_received", "Events that nobody has taken up yet"),
    _gauge("doorstep_events_queued", "now_queued", "Events on their way"),
    _gauge("doorstep_queue_depth", "now_open", "Deliveries that are waiting or in progress"),
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
    ),
    _gauge("doorstep_dead_letters", "now_dead", "Dead letters that nobody has dealt with, archived ones not counted"),
    _counter("doorstep_deliveries_dead_total", "dead", "Deliveries that became dead letters"),
    Measure("doorstep_circuits", Kind.GAUGE, "Endpoints by the state of their circuit", _circuits, ("state",)),
    Measure(
        "doorstep_attempts_total",
        Kind.COUNTER,
        "Attempts that were settled, by what they came to",
        lambda seen: _attempts(seen.totals),
        ("outcome",),
    ),
    _counter("doorstep_late_settles_total", "late", "Results refused, because their lease had passed to someone else"),
    _counter("doorstep_blocked_addresses_total", "blocked", "Attempts that the address guard refused"),
    Measure(
        "doorstep_time_to_delivery_seconds",
        Kind.HISTOGRAM,
        "From the acceptance of a delivery to its success",
        _time_to_delivery,
        unit="s",
    ),
    Measure(
        "doorstep_retry_attempts", Kind.HISTOGRAM, "Retries that a delivery had used when it came to its end", _retries
    ),
    Measure(
        "doorstep_endpoint_attempts_total",
        Kind.COUNTER,
        "The same attempts by endpoint, for the busiest ones (`DOORSTEP_METRICS_ENDPOINTS`)",
        _endpoint_attempts,
        (*_ENDPOINT, "outcome"),
    ),
    Measure(
        "doorstep_endpoint_queue_depth",
        Kind.GAUGE,
        "Deliveries that are waiting or in progress, by endpoint",
        _each(lambda one: one.figures.now_open),
        _ENDPOINT,
    ),
    Measure(
        "doorstep_endpoint_dead_letters",
        Kind.GAUGE,
        "Dead letters by endpoint",
        _each(lambda one: one.figures.now_dead),
        _ENDPOINT,
    ),
    Measure(
        "doorstep_endpoint_circuit_open",
        Kind.GAUGE,
        "1 while the endpoint's circuit is not closed",
        _each(lambda one: float(one.circuit_open)),
        _ENDPOINT,
    ),
)


def readings(seen: Snapshot | None) -> Iterator[tuple[Measure, Sequence[Value] | Distribution]]:
    """Everything that there is to tell; before the store has ever answered, nothing."""
    if seen is not None:
        yield from ((measure, measure.read(seen)) for measure in MEASURES)
