"""Ticks of the hot verbs: a few rows for a whole batch, written with it."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable

from doorstep.clock import Instant
from doorstep.model.event import EventStatus
from doorstep.model.rollup import FIGURES, Span
from doorstep.stores.sql.queries.aggregation import tick_text
from doorstep.stores.sql.sqlite.batches import write_rows
from doorstep.stores.tally import Owner, Tally

ADD = tick_text("VALUES {rows}")
"""All figures, though most are 0: 4 µs a row, where a statement for those that are not would take 3, and each time
another one would have to be prepared."""
_SHARD = 0


def tick(connection: sqlite3.Connection, tally: Tally, at: Instant) -> None:
    """Count what this transaction does, under the minute of `at`."""
    minute = Span.MINUTE.start(at)
    rows = [
        (*owner, minute, _SHARD, *[figures.get(name, 0) for name in FIGURES]) for owner, figures in tally.rows.items()
    ]
    write_rows(connection, ADD, rows)


def accepted(orgs: Iterable[int], owed: Iterable[Owner]) -> Tally:
    """New events, by their organizations, and new deliveries, by organization and endpoint."""
    tally = Tally()
    for org, events in Counter(orgs).items():
        tally.accepted(org, events)
    for owner, deliveries in Counter(owed).items():
        tally.owed(owner, deliveries)
    return tally


def picked_up(orgs: Iterable[int]) -> Tally:
    """Events that were received and are queued, by their organizations."""
    tally = Tally()
    for org, events in Counter(orgs).items():
        tally.status(org, EventStatus.RECEIVED, EventStatus.QUEUED, events)
    return tally
