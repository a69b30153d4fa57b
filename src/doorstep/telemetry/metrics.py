"""All metrics in one table, with their names, their meanings, and how they are read from a snapshot.

The Prometheus output (`prometheus.py`), the OpenTelemetry output (`otlp.py`) and docs/reference/metrics.md are
generated from this table. Labels are bounded: their values never come from outside, except the names of a limited
number of endpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from doorstep.clock import SECOND, Instant
from doorstep.model.endpoint import CircuitState, Endpoint
from doorstep.model.event import EventStatus
from doorstep.model.record import Record
from doorstep.model.rollup import RESPONSE_SECONDS, TTD_SECONDS, Figures

RETRY_BOUNDS = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0)


class Load(NamedTuple):
    """How busy one process is."""

    accepts_waiting: int
    places_in_use: int


class EndpointFigures(NamedTuple):
    """The figures of one endpoint."""

    endpoint: Endpoint
    figures: Figures
    circuit_open: bool


class Snapshot(NamedTuple):
    """The whole installation at one moment."""

    taken_at: Instant
    totals: Figures
    """The figures of all organizations. Messages to alert channels are not included, because they do not appear in
    lists."""
    circuits: Mapping[CircuitState, int]
    waiting_endpoints: int
    oldest_due_seconds: float
    messages: Figures = Figures()
    """Messages to alert channels."""
    endpoints: tuple[EndpointFigures, ...] = ()


class Kind(StrEnum):
    COUNTER = "counter"
    """A value that only grows, even across restarts."""
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Value(NamedTuple):
    """One number, and the labels that distinguish it."""

    number: float
    labels: Mapping[str, str] = {}


class Distribution(Record, frozen=True):
    """The count of each bucket and the sum of all values. The last bucket has no upper bound."""

    bounds: Sequence[float]
    counts: Sequence[int]
    total: float
    labels: Mapping[str, str] = {}


Reading = Sequence[Value] | Sequence[Distribution]
"""The current values of a metric: distributions if it is a histogram, numbers otherwise."""


class Measure(NamedTuple):
    """One metric. The name of a counter ends in `_total`. Units in braces are annotations in OpenTelemetry. The unit
    `1` would mean a ratio, and collectors would add the suffix `_ratio` to the name."""

    name: str
    kind: Kind
    about: str
    read: Callable[[Snapshot], Reading]
    labels: tuple[str, ...] = ()
    unit: str = ""


def _kind(name: str) -> Kind:
    return Kind.COUNTER if name.endswith("_total") else Kind.GAUGE


def _figure(name: str, figure: str, unit: str, about: str) -> Measure:
    return Measure(name, _kind(name), about, lambda snapshot: [Value(getattr(snapshot.totals, figure))], unit=unit)


def _endpoint_figure(name: str, read: Callable[[EndpointFigures], float], unit: str, about: str) -> Measure:
    def values(snapshot: Snapshot) -> list[Value]:
        return [Value(read(one), _endpoint_labels(one)) for one in snapshot.endpoints]

    return Measure(name, _kind(name), about, values, _ENDPOINT, unit)


_OUTCOMES = {"succeeded": "succeeded", "retry": "retried", "dead": "died"}
"""The possible outcomes of an attempt. Each is mapped to the figure that counts it."""


def _attempts(figures: Figures, **labels: str) -> list[Value]:
    return [Value(getattr(figures, figure), {**labels, "outcome": outcome}) for outcome, figure in _OUTCOMES.items()]


def _statuses(snapshot: Snapshot) -> list[Value]:
    return [Value(getattr(snapshot.totals, f"now_{status}"), {"status": status}) for status in EventStatus]


def _messages(snapshot: Snapshot) -> list[Value]:
    levels = {"waiting": snapshot.messages.now_open, "dead": snapshot.messages.now_dead}
    return [Value(count, {"state": state}) for state, count in levels.items()]


def _circuits(snapshot: Snapshot) -> list[Value]:
    return [Value(count, {"state": state}) for state, count in snapshot.circuits.items()]


def _time_to_delivery(snapshot: Snapshot) -> list[Distribution]:
    return [Distribution(TTD_SECONDS, snapshot.totals.ttd, snapshot.totals.ttd_ms / 1_000)]


def _retries(snapshot: Snapshot) -> list[Distribution]:
    """The distribution of retries. In the sum, a delivery with more than seven retries counts as one with seven."""
    counts = snapshot.totals.retries
    return [Distribution(RETRY_BOUNDS, counts, float(sum(number * count for number, count in enumerate(counts))))]


def _endpoint_labels(one: EndpointFigures) -> dict[str, str]:
    return {"endpoint": one.endpoint.name, "endpoint_id": str(one.endpoint.endpoint_id)}


def _endpoint_attempts(snapshot: Snapshot) -> list[Value]:
    return [value for one in snapshot.endpoints for value in _attempts(one.figures, **_endpoint_labels(one))]


def _response_times(snapshot: Snapshot) -> list[Distribution]:
    return [
        Distribution(
            RESPONSE_SECONDS, one.figures.response, one.figures.response_us / SECOND, labels=_endpoint_labels(one)
        )
        for one in snapshot.endpoints
    ]


_ENDPOINT = ("endpoint", "endpoint_id")

MEASURES: tuple[Measure, ...] = (
    _figure("doorstep_events_created_total", "created", "{event}", "Events accepted"),
    _figure(
        "doorstep_events_delivered_total",
        "delivered",
        "{event}",
        "Times that an event became delivered: all its deliveries succeeded or were resolved, or it was acknowledged",
    ),
    _figure(
        "doorstep_events_failed_total",
        "failed",
        "{event}",
        "Times that an event ended with a dead letter; cancelled and deleted events do not count",
    ),
    Measure("doorstep_events", Kind.GAUGE, "Stored events by status", _statuses, ("status",), "{event}"),
    _figure("doorstep_events_received", "now_received", "{event}", "Events in the inbox that are not yet acknowledged"),
    _figure("doorstep_events_queued", "now_queued", "{event}", "Events with open deliveries"),
    _figure("doorstep_queue_depth", "now_open", "{delivery}", "Deliveries that are waiting or in progress"),
    Measure(
        "doorstep_oldest_due_seconds",
        Kind.GAUGE,
        "How long the oldest due delivery has been due",
        lambda snapshot: [Value(snapshot.oldest_due_seconds)],
        unit="s",
    ),
    Measure(
        "doorstep_waiting_endpoints",
        Kind.GAUGE,
        "Endpoints with waiting deliveries",
        lambda snapshot: [Value(snapshot.waiting_endpoints)],
        unit="{endpoint}",
    ),
    _figure(
        "doorstep_dead_letters",
        "now_dead",
        "{delivery}",
        "Dead letters that nobody has acted on, without archived ones",
    ),
    _figure("doorstep_deliveries_dead_total", "dead", "{delivery}", "Deliveries that became dead letters"),
    Measure("doorstep_circuits", Kind.GAUGE, "Endpoints per circuit state", _circuits, ("state",), "{endpoint}"),
    Measure(
        "doorstep_attempts_total",
        Kind.COUNTER,
        "Settled attempts by outcome",
        lambda snapshot: _attempts(snapshot.totals),
        ("outcome",),
        "{attempt}",
    ),
    _figure(
        "doorstep_late_settles_total",
        "late",
        "{attempt}",
        "Results that had no effect because their lease had expired and the delivery was settled or claimed again",
    ),
    _figure("doorstep_blocked_addresses_total", "blocked", "{attempt}", "Attempts that the address guard blocked"),
    Measure(
        "doorstep_time_to_delivery_seconds",
        Kind.HISTOGRAM,
        "Time from acceptance, or from a later `deliver_at`, until a delivery succeeded",
        _time_to_delivery,
        unit="s",
    ),
    Measure(
        "doorstep_retry_attempts",
        Kind.HISTOGRAM,
        "Retries that a delivery had used when an attempt ended it",
        _retries,
        unit="{retry}",
    ),
    Measure(
        "doorstep_alert_messages",
        Kind.GAUGE,
        "Messages to alert channels that are waiting or failed recently; no other metric counts these messages",
        _messages,
        ("state",),
        "{message}",
    ),
    Measure(
        "doorstep_endpoint_attempts_total",
        Kind.COUNTER,
        "Settled attempts by endpoint, for the busiest endpoints (`DOORSTEP_METRICS_ENDPOINTS`)",
        _endpoint_attempts,
        (*_ENDPOINT, "outcome"),
        "{attempt}",
    ),
    Measure(
        "doorstep_endpoint_response_seconds",
        Kind.HISTOGRAM,
        "Duration of the attempts that reached the receiver, by endpoint, for the busiest endpoints"
        " (`DOORSTEP_METRICS_ENDPOINTS`); 16 time series per endpoint",
        _response_times,
        _ENDPOINT,
        "s",
    ),
    _endpoint_figure(
        "doorstep_endpoint_deliveries_dead_total",
        lambda one: one.figures.dead,
        "{delivery}",
        "Deliveries that became dead letters, by endpoint",
    ),
    _endpoint_figure(
        "doorstep_endpoint_queue_depth",
        lambda one: one.figures.now_open,
        "{delivery}",
        "Deliveries that are waiting or in progress, by endpoint",
    ),
    _endpoint_figure(
        "doorstep_endpoint_dead_letters", lambda one: one.figures.now_dead, "{delivery}", "Dead letters by endpoint"
    ),
    _endpoint_figure(
        "doorstep_endpoint_circuit_open",
        lambda one: float(one.circuit_open),
        "{circuit}",
        "1 while the endpoint's circuit is not closed",
    ),
)


def readings(snapshot: Snapshot | None) -> Iterator[tuple[Measure, Reading]]:
    """Every metric with its value. There are none until the first snapshot has been read."""
    if snapshot is not None:
        yield from ((measure, measure.read(snapshot)) for measure in MEASURES)
