"""Metrics for CloudWatch, in its embedded metric format: lines of the log from which CloudWatch reads metrics.

Writing a line costs nothing that the log does not cost, so that no request waits for an API of metrics. The values of a
call are collected and written in one line, because each line repeats the names and units of its metrics.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from doorstep.clock import MILLISECOND, Instant, to_iso
from doorstep.model.event import EventStatus
from doorstep.telemetry.facts import DeliveryTransition, Fact, RetryScheduled, StatusTransition

METRICS: Mapping[str, str] = MappingProxyType(
    {
        "EventsCreated": "Count",
        "EventsDelivered": "Count",
        "EventsFailed": "Count",
        "EventsQueued": "Count",
        "EventsReceived": "Count",
        "FailedPercent": "Percent",
        "TimeToDelivery": "Seconds",
        "RetryAttempts": "Count",
        "RetryScheduledTime": "Seconds",
        "StatusQueries": "Count",
        "StatusQueryLatency": "Milliseconds",
    }
)
"""The name and the unit of each metric. `EventsQueued` and `EventsReceived` are changes: their sum over a time says how
many more events are in that status than before. `FailedPercent` is 100 for an event that failed and 0 for one that was
delivered, so that its average is the share of events that failed. All others are what their names say."""

_VALUES_MAX = 100
"""The number of values of a metric that CloudWatch reads from one line."""
_ENDED = {EventStatus.DELIVERED.value: "EventsDelivered", EventStatus.FAILED.value: "EventsFailed"}
_LEVELS = {EventStatus.QUEUED.value: "EventsQueued", EventStatus.RECEIVED.value: "EventsReceived"}


class EmbeddedMetrics:
    """A telemetry subscriber. `lines` writes what was collected since the last time."""

    def __init__(self, namespace: str, service: str) -> None:
        self._namespace = namespace
        self._service = service
        self._sums: defaultdict[str, int] = defaultdict(int)
        self._values: defaultdict[str, list[float]] = defaultdict(list)

    def __call__(self, facts: Sequence[Fact]) -> None:
        for fact in facts:
            match fact:
                case StatusTransition():
                    self._status(fact)
                case DeliveryTransition(time_to_delivery_seconds=float(seconds)):
                    self._values["TimeToDelivery"].append(seconds)
                case RetryScheduled():
                    self._values["RetryScheduledTime"].append(fact.duration_seconds)

    def _status(self, fact: StatusTransition) -> None:
        if fact.old_status is None:
            self._sums["EventsCreated"] += 1
        elif level := _LEVELS.get(fact.old_status):
            self._sums[level] -= 1
        if level := _LEVELS.get(fact.new_status):
            self._sums[level] += 1
        elif ended := _ENDED.get(fact.new_status):
            self._sums[ended] += 1
            self._values["FailedPercent"].append(100.0 if ended == "EventsFailed" else 0.0)
            self._values["RetryAttempts"].append(fact.retry_attempts)

    def status_query(self, seconds: float) -> None:
        """Count one query of an event's status that took so long."""
        self._sums["StatusQueries"] += 1
        self._values["StatusQueryLatency"].append(1_000 * seconds)

    def lines(self, now: Instant) -> bytes:
        """The collected values as lines of the log: usually one, none if nothing was collected."""
        sums, values = self._sums, self._values
        self._sums, self._values = defaultdict(int), defaultdict(list)
        parts: list[dict[str, object]] = [{name: n for name, n in sums.items() if n}, *_parts(values)]
        if len(parts) > 1:
            parts[:2] = [parts[0] | parts[1]]
        return _encode_lines([self._line(one, now) for one in parts if one])

    def _line(self, given: Mapping[str, object], now: Instant) -> dict[str, Any]:
        directive = {
            "Namespace": self._namespace,
            "Dimensions": [["service"]],
            "Metrics": [{"Name": name, "Unit": METRICS[name]} for name in given],
        }
        return {
            "@timestamp": to_iso(now),
            "service": self._service,
            "event": "metrics",
            "_aws": {"Timestamp": now // MILLISECOND, "CloudWatchMetrics": [directive]},
            **given,
        }


def _parts(values: Mapping[str, Sequence[float]]) -> Iterator[dict[str, object]]:
    """The values in parts that CloudWatch reads from one line each."""
    for start in range(0, max(map(len, values.values()), default=0), _VALUES_MAX):
        yield {name: some[start : start + _VALUES_MAX] for name, some in values.items() if len(some) > start}


_encode_lines = msgspec.json.Encoder().encode_lines
