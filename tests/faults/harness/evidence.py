"""The records of all observers, as plain values, so that the checker can also be tested with invented ones."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

ROUTES: Mapping[str, frozenset[str]] = {
    "plain": frozenset({"ok"}),
    "fan": frozenset({"ok", "flaky", "slow"}),
    "hostile": frozenset({"ok", "dead", "dribble", "endless", "reset"}),
    "steady": frozenset({"slow"}),
    "handled": frozenset({"handler"}),
    "ordered": frozenset({"flaky"}),
    "backlog": frozenset({"recovering"}),
    "letter": frozenset({"mending"}),
    "blink": frozenset({"blinking"}),
}
"""The receivers of each event type. The endpoints are created from this table, and the checker expects it."""

WILLING = frozenset({"ok", "flaky", "slow", "endless", "recovering", "blinking"})
"""Receivers that eventually accept every request: none of their deliveries may end as a dead letter."""

BROUGHT_FORWARD = frozenset({"blinking"})
"""Receivers whose policy has retry_on_recovery: once they are back, their retries do not wait until they are due."""


SET_BACK = "clock set back"
"""The name of the fault after which an attempt may start before the one before it has ended, by its own clock."""


class Sent(NamedTuple):
    """An event that the ledger tried to send. No two events have the same bytes, so the digest identifies the event."""

    digest: str
    event_type: str
    key: str | None


class Arrival(NamedTuple):
    """A request, logged by its receiver before the answer."""

    at: float
    receiver: str
    event_id: str
    digest: str
    answer: int | None
    """The status of the answer that follows; None if the receiver never sends a complete answer."""
    under_way: int
    """How many requests this receiver was holding, including this one."""
    signed_at: int = 0
    """The timestamp of the signature, in seconds since 1970."""


class StoredEvent(NamedTuple):
    event_id: str
    event_type: str
    status: str
    digest: str


class StoredDelivery(NamedTuple):
    row: int
    event_id: str
    receiver: str
    state: str
    attempt: int
    retry_attempts: int
    retries_max: int
    ordering_key: str | None = None


class StoredAttempt(NamedTuple):
    row: int
    number: int
    late: int
    code: str | None
    started_at: int
    finished_at: int
    next_retry_at: int | None


class StoredMove(NamedTuple):
    """One entry of a delivery's history."""

    row: int
    move: int
    at: int
    old_state: str
    new_state: str


class Fault(NamedTuple):
    at: float
    name: str


@dataclass
class Ledger:
    """What the ledger tried to send, and what was acknowledged."""

    sent: dict[str, Sent] = field(default_factory=dict)
    acknowledged: dict[str, set[str]] = field(default_factory=dict)
    """Event ids by digest. More than one id for a digest means that the event was stored twice."""
    unknown: int = 0
    """Requests without an answer, or with an answer that leaves open whether the event is stored."""
    refused: int = 0


@dataclass
class FinalState:
    events: list[StoredEvent]
    deliveries: list[StoredDelivery]
    attempts: list[StoredAttempt]
    moves: list[StoredMove]
    operator_acts: int = 0
    """How many objects operators acted on, according to the audit log."""


@dataclass
class Evidence:
    ledger: Ledger
    arrivals: list[Arrival]
    state: FinalState
    faults: list[Fault]
    lease_seconds: float
    in_flight_max: int
    """The maximum number of deliveries that one fault can catch between arrival and settlement."""


def read_ledger(path: Path) -> Ledger:
    ledger = Ledger()
    requests: dict[int, list[Sent]] = {}
    for line in read_lines(path):
        match line["line"]:
            case "tried":
                requests[line["request"]] = [Sent(*event) for event in line["events"]]
                ledger.sent |= {event.digest: event for event in requests[line["request"]]}
            case "acknowledged":
                for sent, event_id in zip(requests[line["request"]], line["event_ids"], strict=True):
                    ledger.acknowledged.setdefault(sent.digest, set()).add(event_id)
            case "unknown":
                ledger.unknown += 1
            case "refused":
                ledger.refused += 1
    return ledger


def read_arrivals(*paths: Path) -> list[Arrival]:
    arrivals = [Arrival(*line) for path in paths for line in read_lines(path)]
    return sorted(arrivals, key=lambda arrival: arrival.at)


def read_lines(path: Path) -> Iterator[Any]:
    """The lines of a log. A process that was killed may have left half a line, which is skipped."""
    if not path.exists():
        return
    for line in path.read_bytes().splitlines(keepends=True):
        try:
            yield json.loads(line)
        except ValueError:
            continue
