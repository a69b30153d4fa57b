"""Lanes and claims: which deliveries are due, and taking them under a lease."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.circuit import Circuit, CircuitState
from doorstep.model.claim import Claim, Lane, Quota
from doorstep.stores import notes
from doorstep.stores.rate import admit
from doorstep.stores.sql.sqlite.batches import Blobs, Column, Numbers, Texts, Uids, as_list, packed, unpacked
from doorstep.stores.sql.sqlite.names import Directory

# -- lanes -------------------------------------------------------------------------------------------------

LANES = """
WITH RECURSIVE lane (endpoint_id, due_at) AS (
    SELECT * FROM (SELECT endpoint_id, due_at FROM doorstep_deliveries
        WHERE state = 'pending' ORDER BY endpoint_id, due_at LIMIT 1)
    UNION ALL
    SELECT next.endpoint_id, next.due_at FROM lane JOIN doorstep_deliveries AS next ON next.id = (
        SELECT id FROM doorstep_deliveries WHERE state = 'pending' AND endpoint_id > lane.endpoint_id
        ORDER BY endpoint_id, due_at, id LIMIT 1)
)
SELECT lane.endpoint_id, lane.due_at, c.version, c.state, c.failures, c.failing_since, c.changed_at, c.until
FROM lane LEFT JOIN doorstep_circuits c ON c.endpoint_id = lane.endpoint_id ORDER BY lane.due_at, lane.endpoint_id
"""
"""Hops from endpoint to endpoint over the index of pending deliveries: one seek each, whatever waits behind it."""


def lanes(connection: sqlite3.Connection, directory: Directory) -> list[Lane]:
    rows = connection.execute(LANES).fetchall()
    return [_lane(directory.endpoints.uid(connection, row[0]), row) for row in rows]


def _lane(endpoint_id: UUID, row: Sequence[Any]) -> Lane:
    _, due_at, version, state, failures, failing_since, changed_at, until = row
    if version is None:
        return Lane(endpoint_id, due_at)
    circuit = Circuit(
        endpoint_id=endpoint_id,
        state=CircuitState(state),
        failures=failures,
        failing_since=failing_since,
        changed_at=changed_at,
        until=until,
        version=version,
    )
    return Lane(endpoint_id, due_at, circuit)


# -- claims ------------------------------------------------------------------------------------------------

_COLUMNS: tuple[Column, ...] = (
    Numbers("d.id"),
    Numbers("d.event_id"),
    Numbers("d.token"),
    Uids("d.uid"),
    Uids("e.uid"),
    Numbers("d.endpoint_id"),
    Numbers("d.org_id"),
    Texts("e.event_type"),
    Blobs("e.payload"),
    Texts("e.correlation_id"),
    Numbers("e.created_at"),
    Numbers("e.expires_at"),
    Numbers("d.attempt"),
    Numbers("d.round_base"),
    Numbers("d.retries_max"),
    Numbers("d.first_failed_at"),
    Numbers("e.status"),
)
_PAIR = "FROM doorstep_deliveries d JOIN doorstep_events e ON e.id = d.event_id"
DUE = packed(
    _COLUMNS,
    f"{_PAIR} WHERE d.endpoint_id = ? AND d.state = 'pending' AND d.due_at <= ? ORDER BY d.due_at, d.id LIMIT ?",
)
DUE_FORCED = packed(
    _COLUMNS,
    f"{_PAIR} JOIN doorstep_endpoints p ON p.id = d.endpoint_id AND p.state = 'active'"
    " WHERE d.state = 'pending' AND d.forced AND d.due_at <= ? ORDER BY d.due_at, d.id LIMIT ?",
)
IN_FLIGHT = "SELECT count(*) FROM doorstep_deliveries WHERE endpoint_id = ? AND state = 'in_progress'"
RATE = "SELECT rate_next_at FROM doorstep_endpoints WHERE id = ?"
KEEP_RATE = "UPDATE doorstep_endpoints SET rate_next_at = ? WHERE id = ?"
TAKE = """
UPDATE doorstep_deliveries SET state = 'in_progress', due_at = ?, token = token + 1, attempt = attempt + 1,
    retry_attempts = min(attempt - round_base, retries_max), claimed_at = ?, worker = ?, moves = moves + 1
WHERE id IN (SELECT value FROM json_each(?))
"""
TAKE_HISTORY = """
INSERT INTO doorstep_history (delivery_id, move, org_id, at, old_state, new_state, attempt, note)
SELECT id, moves, org_id, ?, 'pending', 'in_progress', attempt, ? FROM doorstep_deliveries
WHERE id IN (SELECT value FROM json_each(?))
"""
QUEUE_EVENTS = """
UPDATE doorstep_events SET status = 'queued' WHERE id IN (SELECT value FROM json_each(?)) AND status = 'received'
"""


class Lease(NamedTuple):
    now: Instant
    until: Instant
    worker: str


class _Due(NamedTuple):
    """A delivery that may be claimed, as the columns above."""

    key: int
    event_key: int
    token: int
    delivery_id: UUID
    event_id: UUID
    endpoint_key: int
    org_key: int
    event_type: str
    payload: bytes
    correlation_id: str
    accepted_at: Instant
    expires_at: Instant | None
    attempt: int
    round_base: int
    retries_max: int
    first_failed_at: Instant | None
    status: str


def claim_due(
    connection: sqlite3.Connection, directory: Directory, quotas: Sequence[Quota], lease: Lease, forced_max: int
) -> list[Claim]:
    """Forced ones first, in a write of their own: the quotas must see their endpoints as full as they then are."""
    claims: list[Claim] = []
    if forced_max:
        claims += _take(connection, directory, _read_due(connection, DUE_FORCED, lease.now, forced_max), lease)
    due = [one for quota in quotas for one in _due_in(connection, directory, quota, lease.now)]
    return claims + _take(connection, directory, due, lease)


def _due_in(connection: sqlite3.Connection, directory: Directory, quota: Quota, now: Instant) -> list[_Due]:
    """The oldest due deliveries of an endpoint, as many as the quota, its concurrency and its rate allow."""
    endpoint_key, room = directory.endpoints.find(connection, quota.endpoint_id), quota.count
    if endpoint_key is None:
        return []
    if quota.concurrency_max is not None:
        room = min(room, quota.concurrency_max - connection.execute(IN_FLIGHT, (endpoint_key,)).fetchone()[0])
    if room <= 0:
        return []
    due = _read_due(connection, DUE, endpoint_key, now, room)
    if quota.rate_per_second is None or not due:
        return due
    return due[: _admit(connection, endpoint_key, quota.rate_per_second, now, len(due))]


def _read_due(connection: sqlite3.Connection, query: str, *arguments: int) -> list[_Due]:
    row = connection.execute(query, arguments).fetchone()
    return [_Due(*values) for values in zip(*unpacked(_COLUMNS, row), strict=True)]


def _admit(connection: sqlite3.Connection, endpoint_key: int, rate: float, now: Instant, wanted: int) -> int:
    (next_at,) = connection.execute(RATE, (endpoint_key,)).fetchone()
    admitted, next_at = admit(rate, next_at, now, wanted)
    connection.execute(KEEP_RATE, (next_at, endpoint_key))
    return admitted


def _take(connection: sqlite3.Connection, directory: Directory, due: Sequence[_Due], lease: Lease) -> list[Claim]:
    if not due:
        return []
    keys = as_list(one.key for one in due)
    connection.execute(TAKE, (lease.until, lease.now, lease.worker, keys))
    connection.execute(TAKE_HISTORY, (lease.now, notes.claimed(lease.worker), keys))
    new_events = {one.event_key for one in due if one.status == "received"}
    if new_events:
        connection.execute(QUEUE_EVENTS, (as_list(new_events),))
    endpoint_id, org_id = directory.endpoints.uid, directory.orgs.uid
    claims = []
    for one in due:
        picked_up = one.event_key in new_events
        new_events.discard(one.event_key)
        names = endpoint_id(connection, one.endpoint_key), org_id(connection, one.org_key)
        claims.append(_claim(one, names, lease, picked_up))
    return claims


def _claim(due: _Due, names: tuple[UUID, UUID], lease: Lease, picked_up: bool) -> Claim:
    return Claim(
        key=due.key,
        event_key=due.event_key,
        token=due.token + 1,
        delivery_id=due.delivery_id,
        event_id=due.event_id,
        endpoint_id=names[0],
        org_id=names[1],
        event_type=due.event_type,
        payload=due.payload,
        correlation_id=due.correlation_id,
        accepted_at=due.accepted_at,
        expires_at=due.expires_at,
        attempt=due.attempt + 1,
        retry_attempts=min(due.attempt - due.round_base, due.retries_max),
        retries_max=due.retries_max,
        first_failed_at=due.first_failed_at,
        claimed_at=lease.now,
        lease_until=lease.until,
        worker=lease.worker,
        picked_up=picked_up,
    )


# -- expired leases ----------------------------------------------------------------------------------------

EXPIRED = f"""
SELECT d.id, d.event_id, d.token, d.uid, e.uid, d.endpoint_id, d.org_id, e.event_type, e.payload, e.correlation_id,
    e.created_at, e.expires_at, d.attempt, d.retry_attempts, d.retries_max, d.first_failed_at, d.claimed_at, d.due_at,
    d.worker
{_PAIR} WHERE d.state = 'in_progress' AND d.due_at <= ? ORDER BY d.due_at, d.id LIMIT ?
"""


def expired(connection: sqlite3.Connection, directory: Directory, now: Instant, limit: int) -> list[Claim]:
    """Reads all that is in progress, from its index: as much as there are workers to hold it, not more."""
    rows = connection.execute(EXPIRED, (now, limit)).fetchall()
    return [_held_claim(connection, directory, row) for row in rows]


def _held_claim(connection: sqlite3.Connection, directory: Directory, row: Sequence[Any]) -> Claim:
    uids = UUID(bytes=row[3]), UUID(bytes=row[4])
    names = directory.endpoints.uid(connection, row[5]), directory.orgs.uid(connection, row[6])
    picked_up = False
    return Claim._make((*row[:3], *uids, *names, *row[7:], picked_up))
