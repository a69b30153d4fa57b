"""Accept: events with their deliveries and idempotency keys, in the transaction that the writer is in.

All calls that came while the last commit ran are kept together, as if they had been one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple
from uuid import UUID

from doorstep.clock import DAY, Instant
from doorstep.errors import StaleRouting
from doorstep.model.event import Receipt, Submission, Verdict
from doorstep.stores.sql.schema import NEVER
from doorstep.stores.sql.sqlite import counters
from doorstep.stores.sql.sqlite.batches import as_list, write_rows
from doorstep.stores.sql.sqlite.names import Directory
from doorstep.stores.tally import Owner

MARKS = (
    "SELECT (SELECT value FROM doorstep_marks WHERE name = 'routing'),"
    " (SELECT value FROM doorstep_marks WHERE name = 'events'),"
    " (SELECT value FROM doorstep_marks WHERE name = 'deliveries')"
)
MOVE_MARKS = (
    "UPDATE doorstep_marks SET value = value + CASE name WHEN 'events' THEN ? ELSE ? END"
    " WHERE name IN ('events', 'deliveries')"
)
ADD_EVENTS = (
    "INSERT INTO doorstep_events (id, uid, org_id, event_type, status, delivery_count, open_count, created_at,"
    " deliver_at, expires_at, correlation_id, ordering_key, trace, metadata, payload) VALUES {rows}"
    " ON CONFLICT (org_id, uid) DO NOTHING"
)
ADD_PAYLOADS = "INSERT INTO doorstep_payloads (event_id, org_id, payload) VALUES {rows}"
ADD_DELIVERIES = (
    "INSERT INTO doorstep_deliveries (id, uid, org_id, event_id, endpoint_id, state, due_at, created_at, retries_max,"
    " ordering_key) VALUES {rows}"
)
BLOCK = f"""
UPDATE doorstep_deliveries SET due_at = {NEVER} WHERE id IN (SELECT value FROM json_each(?)) AND EXISTS (
    SELECT 1 FROM doorstep_deliveries o
    WHERE o.endpoint_id = doorstep_deliveries.endpoint_id AND o.ordering_key = doorstep_deliveries.ordering_key
      AND o.due_at IS NOT NULL AND o.id < doorstep_deliveries.id)
"""
"""Those that came in behind an open one of their line: see queries/ordering.py."""
MARK_BATCHES = "UPDATE doorstep_deliveries SET batch = TRUE WHERE id IN (SELECT value FROM json_each(?))"
"""Apart from their insertion, so that what is no batch, which is nearly everything, pays nothing for those that are."""
KEPT_EVENT = "SELECT id, created_at, delivery_count FROM doorstep_events WHERE org_id = ? AND uid = ?"
FIRST_RECEIPT = (
    "SELECT fingerprint, event_uid, event_created_at, delivery_count FROM doorstep_idempotency"
    " WHERE org_id = ? AND key = ? AND created_at > ?"
)
KEEP_KEYS = (
    "INSERT OR REPLACE INTO doorstep_idempotency"
    " (org_id, key, fingerprint, event_uid, event_created_at, delivery_count, created_at) VALUES {rows}"
)

INLINE_BYTES_MAX = 500
"""Longer payloads get a row of their own: see `payloads` in schema/event.py. Below, a second insert costs as much."""


class Call(NamedTuple):
    """One call of accept."""

    submissions: Sequence[Submission]
    routing_version: int
    now: Instant


class _Arrival(NamedTuple):
    """A submission with the place of its receipt among all that are kept together."""

    place: int
    org_key: int
    submission: Submission
    now: Instant


class _Newcomer(NamedTuple):
    """An arrival that no idempotency key has answered, with its new key inside."""

    key: int
    arrival: _Arrival


def accept(connection: sqlite3.Connection, calls: Sequence[Call], directory: Directory) -> list[list[Receipt]]:
    """Keep the submissions of all calls; for each call one receipt a submission, in order."""
    routing_version, last_event, last_delivery = connection.execute(MARKS).fetchone()
    for call in calls:
        if call.routing_version != routing_version:
            raise StaleRouting("endpoints changed since the routing was read; read it again and recompute")
    arrivals = _arrivals(directory, calls)
    receipts, repeats = _answered_by_key(connection, arrivals)
    unanswered = [one for one in arrivals if one.place not in receipts and one.place not in repeats]
    newcomers = [_Newcomer(key, one) for key, one in enumerate(unanswered, last_event + 1)]
    receipts |= _keep_events(connection, newcomers)
    _keep_long_payloads(connection, [one for one in newcomers if one.arrival.place not in receipts])
    owners = _keep_deliveries(connection, directory, newcomers, receipts, last_delivery + 1)
    connection.execute(MOVE_MARKS, (len(newcomers), len(owners)))
    new = [one.arrival.org_key for one in newcomers if one.arrival.place not in receipts]
    counters.tick(connection, counters.accepted(new, owners), calls[-1].now)
    for newcomer in newcomers:
        receipts.setdefault(newcomer.arrival.place, _receipt(newcomer.arrival.submission))
    _keep_keys(connection, newcomers, receipts)
    for place, first in repeats.items():
        receipts[place] = _again(receipts[first], arrivals[place].submission, arrivals[first].submission.fingerprint)
    in_order = (receipts[place] for place in range(len(arrivals)))
    return [list(islice(in_order, len(call.submissions))) for call in calls]


def _arrivals(directory: Directory, calls: Iterable[Call]) -> list[_Arrival]:
    with_time = [(one, call.now) for call in calls for one in call.submissions]
    org_key = directory.orgs.key
    return [_Arrival(place, org_key(one.event.org_id), one, now) for place, (one, now) in enumerate(with_time)]


# -- events and deliveries ---------------------------------------------------------------------------------


def _keep_events(connection: sqlite3.Connection, newcomers: Sequence[_Newcomer]) -> dict[int, Receipt]:
    """Insert the events; returns receipts for those that had been kept before under the same id."""
    rows = [_event_row(newcomer) for newcomer in newcomers]
    if write_rows(connection, ADD_EVENTS, rows) == len(rows):
        return {}
    kept: dict[int, Receipt] = {}
    for key, (place, org_key, submission, _) in newcomers:
        event_id = submission.event.event_id
        found, created_at, count = connection.execute(KEPT_EVENT, (org_key, event_id.bytes)).fetchone()
        if found != key:
            kept[place] = Receipt(Verdict.ACCEPTED, event_id, created_at, count, known=True)
    return kept


def _event_row(newcomer: _Newcomer) -> tuple[object, ...]:
    event, count = newcomer.arrival.submission.event, len(newcomer.arrival.submission.deliveries)
    return (
        newcomer.key,
        event.event_id.bytes,
        newcomer.arrival.org_key,
        event.event_type,
        "received",
        count,
        count,
        event.created_at,
        event.deliver_at,
        event.expires_at,
        event.correlation_id,
        event.ordering_key,
        event.trace,
        event.metadata,
        event.payload if len(event.payload) <= INLINE_BYTES_MAX else None,
    )


def _keep_long_payloads(connection: sqlite3.Connection, newcomers: Iterable[_Newcomer]) -> None:
    rows = [
        (key, arrival.org_key, arrival.submission.event.payload)
        for key, arrival in newcomers
        if len(arrival.submission.event.payload) > INLINE_BYTES_MAX
    ]
    write_rows(connection, ADD_PAYLOADS, rows)


def _keep_deliveries(
    connection: sqlite3.Connection,
    directory: Directory,
    newcomers: Iterable[_Newcomer],
    kept: dict[int, Receipt],
    first_key: int,
) -> list[Owner]:
    """Insert the deliveries of the events that are new; returns of whom they are."""
    endpoint_key = directory.endpoints.key_in
    owed = [
        (delivery, event_key, arrival.org_key, arrival.submission.event)
        for event_key, arrival in newcomers
        if arrival.place not in kept
        for delivery in arrival.submission.deliveries
    ]
    rows = [
        (
            key,
            delivery.delivery_id.bytes,
            org_key,
            event_key,
            endpoint_key(org_key, delivery.endpoint_id),
            "pending",
            delivery.due_at,
            event.created_at,
            delivery.retries_max,
            event.ordering_key,
        )
        for key, (delivery, event_key, org_key, event) in enumerate(owed, first_key)
    ]
    write_rows(connection, ADD_DELIVERIES, rows)
    if ordered := [row[0] for row in rows if row[-1] is not None]:
        connection.execute(BLOCK, (as_list(ordered),))
    if batches := [key for key, (delivery, *_) in enumerate(owed, first_key) if delivery.batch]:
        connection.execute(MARK_BATCHES, (as_list(batches),))
    return [(row[2], row[4]) for row in rows]


def _receipt(submission: Submission) -> Receipt:
    event = submission.event
    return Receipt(Verdict.ACCEPTED, event.event_id, event.created_at, len(submission.deliveries))


# -- idempotency -------------------------------------------------------------------------------------------


def _answered_by_key(
    connection: sqlite3.Connection, arrivals: Iterable[_Arrival]
) -> tuple[dict[int, Receipt], dict[int, int]]:
    """What keys answer: receipts given before, and which arrivals repeat another one of this batch."""
    receipts: dict[int, Receipt] = {}
    repeats: dict[int, int] = {}
    firsts: dict[tuple[int, str], int] = {}
    for arrival in arrivals:
        if arrival.submission.idempotency_key is None:
            continue
        first = firsts.setdefault((arrival.org_key, arrival.submission.idempotency_key), arrival.place)
        if first in receipts or first == arrival.place:
            given = _given_before(connection, arrival)
            if given is not None:
                receipts[arrival.place] = given
        else:
            repeats[arrival.place] = first
    return receipts, repeats


def _given_before(connection: sqlite3.Connection, arrival: _Arrival) -> Receipt | None:
    key = (arrival.org_key, arrival.submission.idempotency_key, arrival.now - DAY)
    row = connection.execute(FIRST_RECEIPT, key).fetchone()
    if row is None:
        return None
    fingerprint, event_uid, created_at, count = row
    first = Receipt(Verdict.ACCEPTED, UUID(bytes=event_uid), created_at, count)
    return _again(first, arrival.submission, fingerprint)


def _again(first: Receipt, submission: Submission, fingerprint: bytes) -> Receipt:
    """The first receipt once more; or a conflict, if another body came under its key."""
    verdict = Verdict.REPEATED if submission.fingerprint == fingerprint else Verdict.CONFLICT
    return Receipt(verdict, first.event_id, first.created_at, first.deliveries)


def _keep_keys(connection: sqlite3.Connection, newcomers: Iterable[_Newcomer], receipts: dict[int, Receipt]) -> None:
    rows = [
        (org_key, submission.idempotency_key, submission.fingerprint, *_columns(receipts[place]), now)
        for _, (place, org_key, submission, now) in newcomers
        if submission.idempotency_key is not None
    ]
    write_rows(connection, KEEP_KEYS, rows)


def _columns(receipt: Receipt) -> tuple[bytes, Instant, int]:
    return receipt.event_id.bytes, receipt.created_at, receipt.deliveries
