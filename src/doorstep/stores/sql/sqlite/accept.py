"""Accept: insert events with their deliveries and idempotency keys, in the writer's transaction.

All accept calls that arrived during the previous commit are written together, as if they were one call.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple
from uuid import UUID

from doorstep.clock import DAY, Instant
from doorstep.errors import StaleRouting
from doorstep.model.claim import Claim, Lease, claim_of_new
from doorstep.model.delivery import NewDelivery
from doorstep.model.endpoint import RAMP
from doorstep.model.event import EventStatus, Receipt, Submission, Verdict
from doorstep.stores import notes
from doorstep.stores.sql.keys import Addresses, SqliteKeys, key_of
from doorstep.stores.sql.schema import NEVER
from doorstep.stores.sql.sqlite import batches
from doorstep.stores.sql.sqlite.batches import ADD_HISTORY, as_list, write_rows
from doorstep.stores.tally import Owner, Tally

VERSIONS = "SELECT id, routing FROM doorstep_orgs WHERE id IN (SELECT value FROM json_each(?))"
VARIABLES = (
    "SELECT (SELECT value FROM doorstep_variables WHERE name = 'events'),"
    " (SELECT value FROM doorstep_variables WHERE name = 'deliveries')"
)
ADVANCE_KEYS = (
    "UPDATE doorstep_variables SET value = value + CASE name WHEN 'events' THEN ? ELSE ? END"
    " WHERE name IN ('events', 'deliveries')"
)
ADD_EVENTS = (
    "INSERT INTO doorstep_events (id, uid, org_id, event_type, status, delivery_count, open_count, created_at,"
    " deliver_at, expires_at, correlation_id, ordering_key, trace, user_id, metadata, payload) VALUES {rows}"
    " ON CONFLICT (org_id, uid) DO NOTHING"
)
ADD_PAYLOADS = "INSERT INTO doorstep_payloads (event_id, org_id, payload) VALUES {rows}"
ADD_SEARCH_VALUES = "INSERT INTO doorstep_search_values (event_id, value, org_id, event_uid) VALUES {rows}"
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
"""Blocks new deliveries if an earlier delivery of their ordering group is open; see queries/moves.py."""
ADD_CLAIMED_DELIVERIES = (
    "INSERT INTO doorstep_deliveries (id, uid, org_id, event_id, endpoint_id, state, due_at, created_at, retries_max,"
    " claimed_at, worker, token, attempt, moves) VALUES {rows}"
)
"""Inserts deliveries that are claimed in the same transaction. Their first move is the claim."""
UNHEALTHY = (
    "SELECT endpoint_id FROM doorstep_circuits WHERE endpoint_id IN (SELECT value FROM json_each(?))"
    " AND (state <> 'closed' OR failures > 0 OR changed_at > ?)"
)
"""Also endpoints that have just recovered: the claimer limits their attempts for a while."""
MARK_BATCHES = "UPDATE doorstep_deliveries SET batch = TRUE WHERE id IN (SELECT value FROM json_each(?))"
"""Marks batch deliveries. This is a separate statement, so that it adds no cost to other deliveries, which are the vast
majority."""
EXISTING_EVENT = "SELECT id, created_at, delivery_count FROM doorstep_events WHERE org_id = ? AND uid = ?"
FIRST_RECEIPT = (
    "SELECT fingerprint, event_uid, event_created_at, delivery_count FROM doorstep_idempotency"
    " WHERE org_id = ? AND key = ? AND created_at > ?"
)
ADD_IDEMPOTENCY_KEYS = (
    "INSERT OR REPLACE INTO doorstep_idempotency"
    " (org_id, key, fingerprint, event_uid, event_created_at, delivery_count, created_at) VALUES {rows}"
)

INLINE_BYTES_MAX = 500
"""The maximum size of a payload that is stored in the row of its event. Longer payloads are stored in `payloads`
(schema.py). For shorter ones, the extra insert would cost as much as it saves."""


class Call(NamedTuple):
    """One call of accept."""

    submissions: Sequence[Submission]
    routing: Mapping[UUID, int]
    now: Instant
    lease: Lease | None = None


class _Arrival(NamedTuple):
    """A submission, and the position of its receipt among the receipts of all calls that are written together."""

    position: int
    org_key: int
    endpoint_keys: Sequence[int]
    """The integer keys of the endpoints to which the event is delivered."""
    submission: Submission
    now: Instant
    lease: Lease | None


class _NewEvent(NamedTuple):
    """An arrival to insert as a new event, and the integer key for its row."""

    key: int
    arrival: _Arrival


def accept(connection: sqlite3.Connection, calls: Sequence[Call], key_map: SqliteKeys) -> list[list[Receipt]]:
    """Write the submissions of all calls. Returns a list of receipts for each call, in the order of its submissions."""
    orgs = key_map.org_keys({one.event.org_id for call in calls for one in call.submissions})
    _check_routing(connection, calls, orgs)
    last_event, last_delivery = connection.execute(VARIABLES).fetchone()
    owed = {one.endpoint_id for call in calls for submission in call.submissions for one in submission.deliveries}
    arrivals = _arrivals(calls, orgs, key_map.addresses(owed))
    unhealthy = _unhealthy(connection, arrivals)
    receipts, repeats = _answers_by_key(connection, arrivals)
    unanswered = [one for one in arrivals if one.position not in receipts and one.position not in repeats]
    new_events = [_NewEvent(key, one) for key, one in enumerate(unanswered, last_event + 1)]
    claimable = {one.key: found for one in new_events if (found := _claimable(one.arrival, unhealthy))}
    receipts |= _insert_events(connection, new_events, claimable)
    added = [one for one in new_events if one.arrival.position not in receipts]
    _insert_long_payloads(connection, added)
    _insert_search_values(connection, added)
    owners, claims = _insert_deliveries(connection, added, claimable, last_delivery + 1)
    connection.execute(ADVANCE_KEYS, (len(new_events), len(owners)))
    queued = [one.arrival.org_key for one in added if one.key in claims]
    batches.add_counts(connection, _tally_of([one.arrival.org_key for one in added], owners, queued), calls[-1].now)
    receipts |= {arrival.position: _receipt(arrival.submission, claims.get(key, ())) for key, arrival in added}
    _insert_idempotency_keys(connection, new_events, receipts)
    for position, first in repeats.items():
        receipts[position] = _repeated(
            receipts[first], arrivals[position].submission, arrivals[first].submission.fingerprint
        )
    in_order = (receipts[position] for position in range(len(arrivals)))
    return [list(islice(in_order, len(call.submissions))) for call in calls]


def _tally_of(orgs: Iterable[int], owed: Iterable[Owner], queued: Iterable[int]) -> Tally:
    """Counts new events and those that are claimed at once per organization, and new deliveries per organization and
    endpoint."""
    tally = Tally()
    for org, events in Counter(orgs).items():
        tally.accepted(org, events)
    for owner, deliveries in Counter(owed).items():
        tally.owed(owner, deliveries)
    for org, events in Counter(queued).items():
        tally.status(org, EventStatus.RECEIVED, EventStatus.QUEUED, events)
    return tally


def _check_routing(connection: sqlite3.Connection, calls: Sequence[Call], orgs: Mapping[UUID, int]) -> None:
    versions = dict(connection.execute(VERSIONS, (as_list(orgs.values()),)))
    for call in calls:
        if any(versions[orgs[one.event.org_id]] != call.routing.get(one.event.org_id) for one in call.submissions):
            raise StaleRouting("endpoints changed since the routing was read; read it again and recompute")


def _arrivals(calls: Iterable[Call], orgs: Mapping[UUID, int], addresses: Addresses) -> list[_Arrival]:
    arrivals: list[_Arrival] = []
    for call in calls:
        for submission in call.submissions:
            org_key = orgs[submission.event.org_id]
            endpoint_keys = [key_of(one.endpoint_id, org_key, addresses) for one in submission.deliveries]
            arrivals.append(_Arrival(len(arrivals), org_key, endpoint_keys, submission, call.now, call.lease))
    return arrivals


# -- claims ------------------------------------------------------------------------------------------------

_Claimable = dict[int, frozenset[int]]
"""The endpoint keys of the deliveries to claim, by the key of their event."""


def _unhealthy(connection: sqlite3.Connection, arrivals: Sequence[_Arrival]) -> set[int]:
    """The endpoints of claimable deliveries whose circuit is not closed, counts failures or closed a moment ago."""
    ramp_from = min((one.now for one in arrivals), default=0) - RAMP
    wanted = {
        key
        for one in arrivals
        if one.lease is not None
        for key, delivery in zip(one.endpoint_keys, one.submission.deliveries, strict=True)
        if delivery.claimable
    }
    return {key for (key,) in connection.execute(UNHEALTHY, (as_list(wanted), ramp_from))} if wanted else set()


def _claimable(arrival: _Arrival, unhealthy: Collection[int]) -> frozenset[int]:
    """The endpoints whose deliveries of a new event are claimed at once."""
    if arrival.lease is None or arrival.submission.event.ordering_key is not None:
        return frozenset()
    pairs = zip(arrival.endpoint_keys, arrival.submission.deliveries, strict=True)
    return frozenset(key for key, delivery in pairs if delivery.claimable and key not in unhealthy)


# -- events and deliveries ---------------------------------------------------------------------------------


def _insert_events(
    connection: sqlite3.Connection, new_events: Sequence[_NewEvent], claimable: _Claimable
) -> dict[int, Receipt]:
    """Insert the events. Returns receipts, by position, for events whose ids were already stored."""
    rows = [_event_row(one, "queued" if one.key in claimable else "received") for one in new_events]
    if write_rows(connection, ADD_EVENTS, rows) == len(rows):
        return {}
    existing: dict[int, Receipt] = {}
    for key, (position, org_key, _, submission, *_) in new_events:
        event_id = submission.event.event_id
        found, created_at, count = connection.execute(EXISTING_EVENT, (org_key, event_id.bytes)).fetchone()
        if found != key:
            existing[position] = Receipt(Verdict.ACCEPTED, event_id, created_at, count, known=True)
    return existing


def _event_row(new_event: _NewEvent, status: str) -> tuple[object, ...]:
    key, arrival = new_event
    event, count = arrival.submission.event, len(arrival.submission.deliveries)
    return (
        key,
        event.event_id.bytes,
        arrival.org_key,
        event.event_type,
        status,
        count,
        count,
        event.created_at,
        event.deliver_at,
        event.expires_at,
        event.correlation_id,
        event.ordering_key,
        event.trace,
        event.user_id,
        event.metadata,
        event.payload if len(event.payload) <= INLINE_BYTES_MAX else None,
    )


def _insert_long_payloads(connection: sqlite3.Connection, new_events: Iterable[_NewEvent]) -> None:
    rows = [
        (key, arrival.org_key, arrival.submission.event.payload)
        for key, arrival in new_events
        if len(arrival.submission.event.payload) > INLINE_BYTES_MAX
    ]
    write_rows(connection, ADD_PAYLOADS, rows)


def _insert_search_values(connection: sqlite3.Connection, new_events: Iterable[_NewEvent]) -> None:
    rows = [
        (key, value, arrival.org_key, arrival.submission.event.event_id.bytes)
        for key, arrival in new_events
        for value in arrival.submission.search_keys
    ]
    write_rows(connection, ADD_SEARCH_VALUES, rows)


class _Owed(NamedTuple):
    """A new delivery, and the keys of its row, its endpoint and its event."""

    key: int
    endpoint_key: int
    event_key: int
    delivery: NewDelivery
    arrival: _Arrival


def _insert_deliveries(
    connection: sqlite3.Connection, new_events: Iterable[_NewEvent], claimable: _Claimable, first_key: int
) -> tuple[list[Owner], dict[int, list[Claim]]]:
    """Insert the deliveries of new events. Returns the organization and endpoint of each delivery, and the claims of
    each event, by its key."""
    places = (
        (endpoint_key, event_key, delivery, arrival)
        for event_key, arrival in new_events
        for delivery, endpoint_key in zip(arrival.submission.deliveries, arrival.endpoint_keys, strict=True)
    )
    owed = [_Owed(key, *place) for key, place in enumerate(places, first_key)]
    taken = [one for one in owed if one.endpoint_key in claimable.get(one.event_key, ())] if claimable else []
    left = [one for one in owed if one.endpoint_key not in claimable.get(one.event_key, ())] if taken else owed
    write_rows(connection, ADD_DELIVERIES, [(*_row(one), one.arrival.submission.event.ordering_key) for one in left])
    claims = _insert_claimed(connection, taken)
    if ordered := [one.key for one in left if one.arrival.submission.event.ordering_key is not None]:
        connection.execute(BLOCK, (as_list(ordered),))
    if batched := [one.key for one in owed if one.delivery.batch]:
        connection.execute(MARK_BATCHES, (as_list(batched),))
    return [(one.arrival.org_key, one.endpoint_key) for one in owed], claims


def _insert_claimed(connection: sqlite3.Connection, taken: Sequence[_Owed]) -> dict[int, list[Claim]]:
    """Insert deliveries together with their claims. Returns the claims of each event."""
    claims: dict[int, list[Claim]] = {}
    rows: list[tuple[object, ...]] = []
    history: list[tuple[object, ...]] = []
    for one in taken:
        lease, now = one.arrival.lease, one.arrival.now
        assert lease is not None, "only a call with a lease claims"
        rows.append((*_row(one, "in_progress", lease.until), now, lease.worker, 1, 1, 1))
        moved = (one.key, 1, one.arrival.org_key, now, "pending", "in_progress", 1)
        history.append((*moved, notes.claimed(lease.worker)))
        of_event = claims.setdefault(one.event_key, [])
        event, first = one.arrival.submission.event, not of_event
        of_event.append(claim_of_new(one.key, one.event_key, event, one.delivery, lease, now, picked_up=first))
    write_rows(connection, ADD_CLAIMED_DELIVERIES, rows)
    write_rows(connection, ADD_HISTORY, history)
    return claims


def _row(one: _Owed, state: str = "pending", due_at: Instant | None = None) -> tuple[object, ...]:
    return (
        one.key,
        one.delivery.delivery_id.bytes,
        one.arrival.org_key,
        one.event_key,
        one.endpoint_key,
        state,
        one.delivery.due_at if due_at is None else due_at,
        one.arrival.submission.event.created_at,
        one.delivery.retries_max,
    )


def _receipt(submission: Submission, claims: Sequence[Claim]) -> Receipt:
    event = submission.event
    return Receipt(Verdict.ACCEPTED, event.event_id, event.created_at, len(submission.deliveries), claims=tuple(claims))


# -- idempotency -------------------------------------------------------------------------------------------


def _answers_by_key(
    connection: sqlite3.Connection, arrivals: Iterable[_Arrival]
) -> tuple[dict[int, Receipt], dict[int, int]]:
    """Two dictionaries: the receipts for arrivals whose idempotency key was used before this batch, and the arrivals
    that repeat a key used earlier in this batch.

    Both dictionaries are keyed by position. The second maps the position of a repeat to the position of the first
    arrival with the same key.
    """
    receipts: dict[int, Receipt] = {}
    repeats: dict[int, int] = {}
    firsts: dict[tuple[int, str], int] = {}
    for arrival in arrivals:
        if arrival.submission.idempotency_key is None:
            continue
        first = firsts.setdefault((arrival.org_key, arrival.submission.idempotency_key), arrival.position)
        if first in receipts or first == arrival.position:
            given = _first_receipt(connection, arrival)
            if given is not None:
                receipts[arrival.position] = given
        else:
            repeats[arrival.position] = first
    return receipts, repeats


def _first_receipt(connection: sqlite3.Connection, arrival: _Arrival) -> Receipt | None:
    key = (arrival.org_key, arrival.submission.idempotency_key, arrival.now - DAY)
    row = connection.execute(FIRST_RECEIPT, key).fetchone()
    if row is None:
        return None
    fingerprint, event_uid, created_at, count = row
    first = Receipt(Verdict.ACCEPTED, UUID(bytes=event_uid), created_at, count)
    return _repeated(first, arrival.submission, fingerprint)


def _repeated(first: Receipt, submission: Submission, fingerprint: bytes) -> Receipt:
    """The first receipt again, or a conflict if the key was first used with a different body."""
    verdict = Verdict.REPEATED if submission.fingerprint == fingerprint else Verdict.CONFLICT
    return Receipt(verdict, first.event_id, first.created_at, first.deliveries)


def _insert_idempotency_keys(
    connection: sqlite3.Connection, new_events: Iterable[_NewEvent], receipts: dict[int, Receipt]
) -> None:
    rows = []
    for _, (position, org_key, _, submission, now, _) in new_events:
        if submission.idempotency_key is not None:
            receipt, key = receipts[position], (org_key, submission.idempotency_key, submission.fingerprint)
            rows.append((*key, receipt.event_id.bytes, receipt.created_at, receipt.deliveries, now))
    write_rows(connection, ADD_IDEMPOTENCY_KEYS, rows)
