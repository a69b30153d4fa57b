"""Lanes and claims: find the endpoints that have due deliveries, and claim these deliveries under a lease."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain, compress, repeat
from typing import Any, NamedTuple
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.claim import Claim, Lane, Quota
from doorstep.model.event import EventStatus
from doorstep.stores import notes
from doorstep.stores.limits import admit, count_within
from doorstep.stores.sql.keys import Address, SqliteKeys
from doorstep.stores.sql.queries.rows import ATTEMPTABLE as _ATTEMPTABLE
from doorstep.stores.sql.queries.rows import CIRCUIT_FIELDS, lane_from
from doorstep.stores.sql.queries.rows import RECOVERABLE_AT as _RECOVERABLE_AT
from doorstep.stores.sql.schema import NEVER
from doorstep.stores.sql.schema import RECOVERABLE as _RECOVERABLE
from doorstep.stores.sql.sqlite import batches
from doorstep.stores.sql.sqlite.batches import Blobs, Column, Numbers, Texts, Uids, as_list, packed, unpacked
from doorstep.stores.tally import Tally

# -- lanes -------------------------------------------------------------------------------------------------

_LANE = [
    Numbers(name)
    for name in ("lane.endpoint_id", "lane.due_at", _RECOVERABLE_AT, *(f"c.{name}" for name in CIRCUIT_FIELDS))
]
_LANES = """
WITH RECURSIVE lane (endpoint_id, due_at) AS (
    SELECT * FROM (SELECT endpoint_id, due_at FROM doorstep_deliveries
        WHERE state = 'pending' ORDER BY endpoint_id, due_at LIMIT 1)
    UNION ALL
    SELECT next.endpoint_id, next.due_at FROM lane JOIN doorstep_deliveries AS next ON next.id = (
        SELECT id FROM doorstep_deliveries WHERE state = 'pending' AND endpoint_id > lane.endpoint_id
        ORDER BY endpoint_id, due_at, id LIMIT 1)
)
"""
LANES = _LANES + packed(
    _LANE,
    "FROM lane LEFT JOIN doorstep_circuits c ON c.endpoint_id = lane.endpoint_id"
    f" WHERE lane.due_at < {NEVER} ORDER BY lane.due_at, lane.endpoint_id LIMIT -1",
)
"""Skips from endpoint to endpoint in the index of pending deliveries. It needs one seek per endpoint, regardless of how
many deliveries the endpoint has."""


NEAR_LANES = _LANES + packed(
    _LANE,
    f"""FROM lane LEFT JOIN doorstep_circuits c ON c.endpoint_id = lane.endpoint_id
    WHERE lane.due_at <= ?1 AND {_ATTEMPTABLE} OR lane.due_at > ?1 AND (
        lane.endpoint_id IN (SELECT endpoint_id FROM lane WHERE due_at > ?1 AND due_at < {NEVER}
                             ORDER BY due_at, endpoint_id LIMIT ?2)
        OR lane.due_at < {NEVER} AND {_RECOVERABLE_AT} IS NOT NULL
    ) ORDER BY lane.due_at, lane.endpoint_id LIMIT -1""",
)
"""Like LANES, but without what a worker cannot attempt yet. The walk through the index is the same, but it takes less
than a microsecond per endpoint, and passing on a lane takes ten."""


def lanes(
    connection: sqlite3.Connection, key_map: SqliteKeys, now: Instant = 0, later_max: int | None = None
) -> list[Lane]:
    if later_max is None:
        row = connection.execute(LANES).fetchone()
    else:
        row = connection.execute(NEAR_LANES, (now, later_max)).fetchone()
    rows = list(zip(*unpacked(_LANE, row), strict=True))
    addresses = key_map.by_key({row[0] for row in rows})
    return [lane_from(addresses[row[0]], row) for row in rows]


# -- claims ------------------------------------------------------------------------------------------------

_SHORT_BYTES_MAX = 16_384
_SHORT = f"""CASE WHEN d.payload IS NULL
    THEN coalesce(e.payload, (SELECT l.payload FROM doorstep_payloads l
        WHERE l.event_id = e.id AND length(l.payload) <= {_SHORT_BYTES_MAX}))
    ELSE iif(length(d.payload) <= {_SHORT_BYTES_MAX}, d.payload, NULL) END"""
"""The payload to send: the edited payload if there is one, otherwise the event's. NULL stands for a long payload, which
is read separately when the delivery is claimed. If 64 payloads of 16 MiB were packed together, they would exceed
SQLite's limit for one value."""
_COLUMNS: tuple[Column, ...] = (
    Numbers("d.id"),
    Numbers("d.event_id"),
    Numbers("d.token"),
    Uids("d.uid"),
    Uids("e.uid"),
    Numbers("d.endpoint_id"),
    Numbers("d.org_id"),
    Texts("e.event_type"),
    Blobs(_SHORT),
    Texts("e.correlation_id"),
    Numbers("e.created_at"),
    Numbers("e.expires_at"),
    Numbers("d.attempt"),
    Numbers("d.round_base + d.uncounted"),
    Numbers("d.retries_max"),
    Numbers("d.first_failed_at"),
    Numbers("e.ordering_key"),
    Blobs("e.metadata"),
    Numbers("e.trace"),
    Numbers("e.deliver_at"),
    Numbers("d.due_at"),
    Numbers("d.uncounted"),
    Numbers("e.user_id"),
    Numbers("e.status"),
)
_ENDPOINT, _ORG, _PAYLOAD, _DUE_AT = 5, 6, 8, -4
"""Positions in `_COLUMNS`."""
_PAIR = "FROM doorstep_deliveries d JOIN doorstep_events e ON e.id = d.event_id"
DUE = packed(
    _COLUMNS,
    f"{_PAIR} WHERE d.endpoint_id = ? AND d.state = 'pending' AND d.due_at > ? AND d.due_at <= ?"
    " ORDER BY d.due_at, d.id LIMIT ?",
)
DUE_ON_RECOVERY = packed(
    _COLUMNS,
    f"{_PAIR} WHERE d.endpoint_id = ? AND {_RECOVERABLE} AND d.last_attempt_at < ?"
    " ORDER BY d.last_attempt_at, d.id LIMIT ?",
)
DUE_FORCED = packed(
    _COLUMNS,
    f"{_PAIR} JOIN doorstep_endpoints p ON p.id = d.endpoint_id AND p.state = 'active'"
    " WHERE d.state = 'pending' AND d.forced AND d.due_at <= ?"
    " AND d.endpoint_id NOT IN (SELECT value FROM json_each(?)) ORDER BY d.due_at, d.id LIMIT ?",
)
_LONG_OF = (
    "FROM doorstep_deliveries d LEFT JOIN doorstep_payloads l ON l.event_id = d.event_id"
    " WHERE d.id IN (SELECT value FROM json_each(?))"
)
LONG_SIZES = f"SELECT d.id, coalesce(length(d.payload), length(l.payload)) {_LONG_OF}"
LONG_PAYLOADS = f"SELECT d.id, coalesce(d.payload, l.payload) {_LONG_OF}"
IN_FLIGHT = "SELECT count(*) FROM doorstep_deliveries WHERE endpoint_id = ? AND state = 'in_progress'"
RATE = "SELECT rate_next_at FROM doorstep_endpoints WHERE id = ?"
UPDATE_RATE = "UPDATE doorstep_endpoints SET rate_next_at = ? WHERE id = ?"
TAKE = """
UPDATE doorstep_deliveries SET state = 'in_progress', due_at = ?, token = token + 1, attempt = attempt + 1,
    retry_attempts = min(attempt - round_base - uncounted, retries_max), claimed_at = ?, worker = ?, moves = moves + 1
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

_Due = list[list[Any]]
"""Due deliveries as columns, in the order of `_COLUMNS`."""
_NONE_DUE: _Due = [[] for _ in _COLUMNS]


class Lease(NamedTuple):
    now: Instant
    until: Instant
    worker: str


def claim_due(
    connection: sqlite3.Connection,
    key_map: SqliteKeys,
    quotas: Sequence[Quota],
    lease: Lease,
    forced_max: int,
    unserved: Sequence[UUID] = (),
) -> list[Claim]:
    """Claim due deliveries. Forced deliveries are claimed first, in a separate write, so that they count against the
    concurrency limits of their endpoints."""
    claims: list[Claim] = []
    if forced_max:
        excluded = as_list(address.key for address in key_map.addresses(unserved).values())
        forced = _read_due(connection, DUE_FORCED, lease.now, excluded, forced_max)
        forced[_DUE_AT] = [None] * len(forced[_DUE_AT])
        claims += _take(connection, key_map, [forced], lease)
    addresses = key_map.addresses([quota.endpoint_id for quota in quotas])
    known = [(addresses[quota.endpoint_id].key, quota) for quota in quotas if quota.endpoint_id in addresses]
    for round in _rounds(known):
        due = [_due_in(connection, endpoint_key, quota, lease.now) for endpoint_key, quota in round]
        claims += _take(connection, key_map, due, lease)
    return claims


_KeyedQuota = tuple[int, Quota]
"""The key of an endpoint, and its quota."""


def _rounds(quotas: Sequence[_KeyedQuota]) -> Sequence[Sequence[_KeyedQuota]]:
    """Groups of quotas that can be claimed together. There is only one group, unless an endpoint has two quotas, which
    would both read the same rows."""
    return [quotas] if len(dict(quotas)) == len(quotas) else [[quota] for quota in quotas]


def _due_in(connection: sqlite3.Connection, endpoint_key: int, quota: Quota, now: Instant) -> _Due:
    """The oldest due deliveries of an endpoint, as many as its quota and its concurrency and rate limits allow."""
    room = quota.count
    if quota.concurrency_max is not None:
        room = min(room, quota.concurrency_max - connection.execute(IN_FLIGHT, (endpoint_key,)).fetchone()[0])
    if room <= 0:
        return _NONE_DUE
    if quota.attempted_before is not None:
        due = _read_due(connection, DUE_ON_RECOVERY, endpoint_key, quota.attempted_before, room)
    else:
        until = now if quota.due_until is None else min(now, quota.due_until)
        due = _read_due(connection, DUE, endpoint_key, quota.due_after, until, room)
    taken = count_within(_sizes(connection, due), quota.bytes_max)
    if quota.rate_per_second is not None and taken:
        taken = _admit(connection, endpoint_key, quota.rate_per_second, now, taken)
    return [column[:taken] for column in due]


def _read_due(connection: sqlite3.Connection, query: str, *arguments: int | str) -> _Due:
    return unpacked(_COLUMNS, connection.execute(query, arguments).fetchone())


def _sizes(connection: sqlite3.Connection, due: _Due) -> list[int]:
    """The length of each payload."""
    sizes = dict(connection.execute(LONG_SIZES, (as_list(long),))) if (long := _long(due)) else {}
    return [sizes[key] if payload is None else len(payload) for key, payload in zip(due[0], due[_PAYLOAD], strict=True)]


def _long(due: _Due) -> list[int]:
    """The keys of deliveries whose payload has not been read yet."""
    return [key for key, payload in zip(due[0], due[_PAYLOAD], strict=True) if payload is None]


def _read_long(connection: sqlite3.Connection, due: _Due) -> None:
    if long := _long(due):
        read = dict(connection.execute(LONG_PAYLOADS, (as_list(long),)))
        pairs = zip(due[0], due[_PAYLOAD], strict=True)
        due[_PAYLOAD] = [read[key] if payload is None else payload for key, payload in pairs]


def _admit(connection: sqlite3.Connection, endpoint_key: int, rate: float, now: Instant, requested: int) -> int:
    (next_at,) = connection.execute(RATE, (endpoint_key,)).fetchone()
    admitted, next_at = admit(rate, next_at, now, requested)
    connection.execute(UPDATE_RATE, (next_at, endpoint_key))
    return admitted


def _take(connection: sqlite3.Connection, key_map: SqliteKeys, dues: Sequence[_Due], lease: Lease) -> list[Claim]:
    due = [list(chain.from_iterable(columns)) for columns in zip(*dues, strict=True)]
    if not due or not due[0]:
        return []
    _read_long(connection, due)
    keys, event_keys, *_, statuses = due
    listed = as_list(keys)
    connection.execute(TAKE, (lease.until, lease.now, lease.worker, listed))
    connection.execute(TAKE_HISTORY, (lease.now, notes.claimed(lease.worker), listed))
    picked_up = _first_of_each(event_keys, statuses)
    if any(picked_up):
        connection.execute(QUEUE_EVENTS, (as_list(compress(event_keys, picked_up)),))
        batches.add_counts(connection, _pickup_tally(compress(due[_ORG], picked_up)), lease.now)
    by_key = key_map.by_key(set(due[_ENDPOINT]))
    return _claims(due, [by_key[key] for key in due[_ENDPOINT]], picked_up, lease)


def _first_of_each(event_keys: Sequence[int], statuses: Sequence[str]) -> list[bool]:
    """For each claim, whether it changes its event from received to queued. Only the first claim of an event can."""
    seen: set[int] = set()
    first = []
    for key, status in zip(event_keys, statuses, strict=True):
        first.append(status == "received" and key not in seen)
        seen.add(key)
    return first


def _pickup_tally(orgs: Iterable[int]) -> Tally:
    """Counts events that change from received to queued, per organization."""
    tally = Tally()
    for org, events in Counter(orgs).items():
        tally.status(org, EventStatus.RECEIVED, EventStatus.QUEUED, events)
    return tally


def _claims(due: _Due, addresses: Sequence[Address], picked_up: Sequence[bool], lease: Lease) -> list[Claim]:
    """Build the claims from columns, in the order of Claim's fields. Building them one by one takes twice as long."""
    keys, event_keys, tokens, delivery_ids, event_ids, _, _, *of_event = due[:12]
    attempts, bases, retries_max, first_failed_at, ordering_keys, metadata, traces, deliver_at, due_at, *rest = due[12:]
    uncounted, user_ids, _ = rest
    used = (min(n - base, most) for n, base, most in zip(attempts, bases, retries_max, strict=True))
    columns = (
        keys,
        event_keys,
        (token + 1 for token in tokens),
        delivery_ids,
        event_ids,
        (address.endpoint_id for address in addresses),
        (address.org_id for address in addresses),
        *of_event,
        (attempt + 1 for attempt in attempts),
        used,
        retries_max,
        first_failed_at,
        repeat(lease.now),
        repeat(lease.until),
        repeat(lease.worker),
        picked_up,
        ordering_keys,
        metadata,
        traces,
        deliver_at,
        repeat(None),
        due_at,
        uncounted,
        user_ids,
        repeat(False),
    )
    return list(map(Claim._make, zip(*columns, strict=False)))


# -- expired leases ----------------------------------------------------------------------------------------

EXPIRED = f"""
SELECT d.id, d.event_id, d.token, d.uid, e.uid, d.endpoint_id, d.org_id, e.event_type, x'', e.correlation_id,
    e.created_at, e.expires_at, d.attempt, d.retry_attempts, d.retries_max, d.first_failed_at, d.claimed_at, d.due_at,
    d.worker, 0, e.ordering_key, e.metadata, e.trace, e.deliver_at, d.code, NULL, d.uncounted, e.user_id
{_PAIR} WHERE d.state = 'in_progress' AND d.due_at <= ? ORDER BY d.due_at, d.id LIMIT ?
"""


def expired(connection: sqlite3.Connection, key_map: SqliteKeys, now: Instant, limit: int) -> list[Claim]:
    """The claims whose lease has expired. The query scans the index of deliveries in progress, which has one entry per
    claim."""
    rows = connection.execute(EXPIRED, (now, limit)).fetchall()
    addresses = key_map.by_key({row[5] for row in rows})
    return [_expired_claim(addresses[row[5]], row) for row in rows]


def _expired_claim(address: Address, row: Sequence[Any]) -> Claim:
    uids = UUID(bytes=row[3]), UUID(bytes=row[4]), address.endpoint_id, address.org_id
    return Claim._make((*row[:3], *uids, *row[7:], False))._replace(picked_up=False)
