"""Accept: insert events with their deliveries and idempotency keys, in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import DAY, Instant
from doorstep.errors import StaleRouting
from doorstep.model.claim import Lease, claim_of_new
from doorstep.model.endpoint import RAMP
from doorstep.model.event import Receipt, Submission, Verdict
from doorstep.stores import notes
from doorstep.stores.sql.ddl import ROUTING_LOCK, ordering_lock
from doorstep.stores.sql.keys import Addresses, key_of
from doorstep.stores.sql.postgres import counters
from doorstep.stores.sql.postgres.connections import Connection
from doorstep.stores.sql.schema import NEVER

BEGIN_ACCEPT = f"BEGIN; SELECT pg_advisory_xact_lock_shared({ROUTING_LOCK})"
"""Begins a transaction and takes the routing lock. The statement that reads the routing versions runs later, so it sees
every earlier change."""

ACCEPT = f"""
WITH event AS MATERIALIZED (
    SELECT nextval('doorstep_events_id_seq') AS id, e.*
    FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::int[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[],
                $9::text[], $10::text[], $23::text[], $11::bytea[], $12::bytea[]) WITH ORDINALITY
      AS e(uid, org_id, event_type, deliveries, created_at, deliver_at, expires_at, correlation_id,
           ordering_key, trace, user_id, metadata, payload, n)
), delivery AS MATERIALIZED (
    SELECT d.*, coalesce(d.claimable, false) AND NOT EXISTS (
        SELECT FROM doorstep_circuits c
        WHERE c.endpoint_id = ANY (ARRAY[d.endpoint_id]) AND (c.state <> 'closed' OR c.failures > 0
                                                           OR c.changed_at > $21::bigint - {RAMP})) AS taken
    FROM unnest($13::int[], $14::uuid[], $15::bigint[], $16::bigint[], $17::bigint[], $18::bigint[], $19::int[],
                $20::text[], $24::bool[])
      AS d(n, uid, org_id, endpoint_id, due_at, created_at, retries_max, ordering_key, claimable)
), inserted AS (
    INSERT INTO doorstep_events (id, uid, org_id, event_type, status, delivery_count, open_count, created_at,
                                 deliver_at, expires_at, correlation_id, ordering_key, trace, user_id, metadata, payload)
    SELECT id, uid, org_id, event_type, CASE WHEN n IN (SELECT n FROM delivery WHERE taken) THEN 'queued' ELSE 'received' END,
           deliveries, deliveries, created_at, deliver_at, expires_at, correlation_id, ordering_key, trace, user_id, metadata,
           payload
    FROM event
    ON CONFLICT (org_id, uid) DO NOTHING
    RETURNING id, org_id, status
), numbered AS (
    SELECT array_agg(CASE WHEN id IN (SELECT id FROM inserted) THEN id END ORDER BY n) AS event_ids FROM event
), owed AS (
    INSERT INTO doorstep_deliveries (uid, org_id, event_id, endpoint_id, created_at, retries_max, ordering_key,
                                     state, due_at, claimed_at, worker, token, attempt, moves)
    SELECT d.uid, d.org_id, event_ids[d.n], d.endpoint_id, d.created_at, d.retries_max, d.ordering_key,
           CASE WHEN taken THEN 'in_progress' ELSE 'pending' END, CASE WHEN taken THEN $25::bigint ELSE d.due_at END,
           CASE WHEN taken THEN $21::bigint END, CASE WHEN taken THEN $26::text END, taken::int, taken::int, taken::int
    FROM numbered, delivery AS d
    WHERE event_ids[d.n] IS NOT NULL
    RETURNING id, uid, org_id, event_id, endpoint_id, state
), logged AS (
    INSERT INTO doorstep_history (delivery_id, move, org_id, at, old_state, new_state, attempt, note)
    SELECT id, 1, org_id, $21, 'pending', 'in_progress', 1, $27 FROM owed WHERE state = 'in_progress'
), counted AS (
    {counters.accepted("$21", "$22", "inserted", "owed")}
)
SELECT EXISTS (SELECT FROM unnest($28::bigint[], $29::bigint[]) AS known(org_id, routing)
               JOIN doorstep_orgs o ON o.id = ANY (ARRAY[known.org_id]) WHERE o.routing <> known.routing),
       ARRAY(SELECT n FROM event WHERE id NOT IN (SELECT id FROM inserted)),
       claimed.uids, claimed.ids, claimed.event_ids
FROM (SELECT array_agg(uid) AS uids, array_agg(id) AS ids, array_agg(event_id) AS event_ids
      FROM owed WHERE state = 'in_progress') AS claimed
"""
"""Deliveries refer to their event by its position in the arrays: a subscript is cheaper than a join of 500 by 500 rows.

Returns whether the routing is stale, the positions of events that existed already, and the ids and keys of the deliveries that
were claimed. Events exist already if a caller repeats a call because it did not get the response. The statement adds no
rows for these events."""

LOCK_ORDERING_GROUPS = f"""
SELECT pg_advisory_xact_lock(key) FROM (
    SELECT DISTINCT {ordering_lock("delivery")} AS key
    FROM unnest($1::bigint[], $2::text[]) AS delivery(endpoint_id, ordering_key)
    WHERE ordering_key IS NOT NULL ORDER BY key
) AS locks
"""
"""Runs before ACCEPT, so that the keys of the deliveries in an ordering group follow the order of acceptance."""

BLOCK = f"""
UPDATE doorstep_deliveries d SET due_at = {NEVER}
FROM unnest($1::bigint[], $2::uuid[]) AS new(org_id, uid)
WHERE d.org_id = ANY (ARRAY[new.org_id]) AND d.uid = new.uid AND d.xmin = pg_current_xact_id()::xid AND EXISTS (
    SELECT FROM doorstep_deliveries o WHERE o.endpoint_id = d.endpoint_id AND o.ordering_key = d.ordering_key
      AND o.due_at IS NOT NULL AND o.id < d.id)
"""
"""Blocks new deliveries if an earlier delivery of their ordering group is open; see queries/moves.py.

`xmin` is the transaction that wrote a row. Comparing it excludes the deliveries of a repeated call, which may already
be in progress."""

MARK_BATCHES = """
UPDATE doorstep_deliveries d SET batch = TRUE
FROM unnest($1::bigint[], $2::uuid[]) AS new(org_id, uid)
WHERE d.org_id = ANY (ARRAY[new.org_id]) AND d.uid = new.uid
"""
"""This is a separate statement, so that it adds no cost for deliveries that are not batches, which are the vast
majority."""

ADD_SEARCH_VALUES = """
INSERT INTO doorstep_search_values (event_id, value, org_id, event_uid)
SELECT e.id, new.value, e.org_id, e.uid
FROM unnest($1::bigint[], $2::uuid[], $3::bigint[]) AS new(org_id, uid, value)
JOIN doorstep_events e ON e.org_id = ANY (ARRAY[new.org_id]) AND e.uid = new.uid
"""

TAKE_KEYS = """
INSERT INTO doorstep_idempotency AS existing
    (org_id, key, fingerprint, event_uid, event_created_at, delivery_count, created_at)
SELECT org_id, key, fingerprint, event_uid, event_created_at, delivery_count, $7
FROM unnest($1::bigint[], $2::text[], $3::bytea[], $4::uuid[], $5::bigint[], $6::int[])
  AS k(org_id, key, fingerprint, event_uid, event_created_at, delivery_count)
ORDER BY org_id, key
ON CONFLICT (org_id, key) DO UPDATE SET
    fingerprint = excluded.fingerprint, event_uid = excluded.event_uid, event_created_at = excluded.event_created_at,
    delivery_count = excluded.delivery_count, created_at = excluded.created_at
WHERE existing.created_at <= $8
RETURNING org_id, key
"""
"""Inserts keys, and replaces expired ones. A key that is still valid is only locked. If another transaction has just
inserted the same key, the statement waits until that transaction ends."""

READ_KEYS = """
SELECT i.org_id, i.key, i.fingerprint, i.event_uid, i.event_created_at, i.delivery_count
FROM unnest($1::bigint[], $2::text[]) AS k(org_id, key)
JOIN doorstep_idempotency i ON i.org_id = ANY (ARRAY[k.org_id]) AND i.key = k.key
"""

READ_EVENTS = """
SELECT e.uid, e.created_at, e.delivery_count
FROM unnest($1::bigint[], $2::uuid[]) AS k(org_id, uid)
JOIN doorstep_events e ON e.org_id = ANY (ARRAY[k.org_id]) AND e.uid = k.uid
"""

_NO_LEASE = Lease(0, "")
OrgAndKey = tuple[int, str]
"""An organization and an idempotency key."""


class FirstReceipt(NamedTuple):
    """The first receipt for an idempotency key, and the fingerprint of its body."""

    fingerprint: bytes
    event_id: UUID
    created_at: Instant
    deliveries: int

    @classmethod
    def of(cls, submission: Submission) -> FirstReceipt:
        event = submission.event
        return cls(submission.fingerprint, event.event_id, event.created_at, len(submission.deliveries))

    def receipt_for(self, submission: Submission) -> Receipt:
        verdict = Verdict.REPEATED if self.fingerprint == submission.fingerprint else Verdict.CONFLICT
        return Receipt(verdict, self.event_id, self.created_at, self.deliveries)


class AcceptCall:
    """One accept call. The constructor looks up the keys of all organizations and endpoints."""

    def __init__(
        self,
        submissions: Sequence[Submission],
        routing: Mapping[UUID, int],
        orgs: Mapping[UUID, int],
        addresses: Addresses,
    ) -> None:
        self._submissions = submissions
        self._orgs = [orgs[submission.event.org_id] for submission in submissions]
        self._endpoint_keys = [
            [key_of(delivery.endpoint_id, org, addresses) for delivery in submission.deliveries]
            for org, submission in zip(self._orgs, submissions)
        ]
        self._routing = {key: routing.get(org_id, -1) for org_id, key in orgs.items()}

    async def write(self, connection: Connection, now: Instant, lease: Lease | None) -> list[Receipt]:
        """Write the submissions in the current transaction. Returns their receipts."""
        firsts = await self._take_keys(connection, now)
        receipts, new = self._receipts(firsts)
        owed = self._delivery_arrays(new)
        _, uids, orgs, endpoints, *_, ordering_keys = owed
        if ordering_keys:
            await connection.fetch(LOCK_ORDERING_GROUPS, endpoints, ordering_keys)
        claiming = (
            self._claimable(new) if lease else [],
            *(lease or _NO_LEASE),
            notes.claimed(lease.worker if lease else ""),
        )
        arrays = (*self._event_arrays(new), *owed)
        versions = (list(self._routing), list(self._routing.values()))
        rows = await connection.fetch(
            ACCEPT, *arrays, now, counters.generation(), self._owners(new), *claiming, *versions
        )
        stale, repeated, *claimed = rows[0]
        if stale:
            raise StaleRouting("endpoints changed since the routing was read; read it again and recompute")
        if ordering_keys:
            await connection.execute(BLOCK, orgs, uids)
        if batches := self._batches(new):
            await connection.execute(MARK_BATCHES, *map(list, zip(*batches)))
        known = [new[number - 1] for number in repeated]
        if values := self._search_values(sorted(set(new).difference(known))):
            await connection.execute(ADD_SEARCH_VALUES, *map(list, zip(*values)))
        if known:
            await self._correct(connection, receipts, known)
        if lease and claimed[0]:
            self._add_claims(receipts, new, claimed, lease, now)
        return receipts

    def _add_claims(
        self, receipts: list[Receipt], new: Sequence[int], claimed: Sequence[Sequence[Any]], lease: Lease, now: Instant
    ) -> None:
        keys = {uid: (key, event_key) for uid, key, event_key in zip(*claimed)}
        for position in new:
            event = self._submissions[position].event
            taken = [one for one in self._submissions[position].deliveries if one.delivery_id in keys]
            claims = (
                claim_of_new(*keys[one.delivery_id], event, one, lease, now, picked_up=one is taken[0]) for one in taken
            )
            receipts[position] = replace(receipts[position], claims=tuple(claims))

    def _claimable(self, positions: Sequence[int]) -> list[bool]:
        """Whether each delivery is to be claimed; an empty list if none is."""
        marks = [
            one.claimable and self._submissions[position].event.ordering_key is None
            for position in positions
            for one in self._submissions[position].deliveries
        ]
        return marks if any(marks) else []

    def _receipts(self, firsts: dict[OrgAndKey, FirstReceipt]) -> tuple[list[Receipt], list[int]]:
        """A receipt for each submission, and the positions of the submissions that are new."""
        receipts: list[Receipt] = []
        new: list[int] = []
        for position, submission in enumerate(self._submissions):
            org_and_key = self._org_and_key(position)
            if org_and_key is not None and org_and_key in firsts:
                receipts.append(firsts[org_and_key].receipt_for(submission))
                continue
            event, count = submission.event, len(submission.deliveries)
            receipts.append(Receipt(Verdict.ACCEPTED, event.event_id, event.created_at, count))
            new.append(position)
            if org_and_key is not None:
                firsts[org_and_key] = FirstReceipt.of(submission)
        return receipts, new

    def _org_and_key(self, position: int) -> OrgAndKey | None:
        key = self._submissions[position].idempotency_key
        return None if key is None else (self._orgs[position], key)

    async def _take_keys(self, connection: Connection, now: Instant) -> dict[OrgAndKey, FirstReceipt]:
        """Insert the idempotency keys that are not in use yet. Returns the first receipts of the keys that are in
        use."""
        requested = {
            org_and_key: FirstReceipt.of(submission)
            for position, submission in reversed(list(enumerate(self._submissions)))
            if (org_and_key := self._org_and_key(position)) is not None
        }
        if not requested:
            return {}
        orgs, keys = [org for org, _ in requested], [key for _, key in requested]
        taken = await connection.fetch(TAKE_KEYS, orgs, keys, *map(list, zip(*requested.values())), now, now - DAY)
        lost = requested.keys() - {(row[0], row[1]) for row in taken}
        if not lost:
            return {}
        rows = await connection.fetch(READ_KEYS, [org for org, _ in lost], [key for _, key in lost])
        return {(row[0], row[1]): FirstReceipt(row[2], row[3], row[4], row[5]) for row in rows}

    def _event_arrays(self, positions: Sequence[int]) -> list[list[object]]:
        events = [self._submissions[position].event for position in positions]
        return [
            [event.event_id for event in events],
            [self._orgs[position] for position in positions],
            [event.event_type for event in events],
            [len(self._submissions[position].deliveries) for position in positions],
            [event.created_at for event in events],
            [event.deliver_at for event in events],
            [event.expires_at for event in events],
            [event.correlation_id for event in events],
            _unless_empty([event.ordering_key for event in events]),
            _unless_empty([event.trace for event in events]),
            [event.metadata for event in events],
            [event.payload for event in events],
        ]

    def _delivery_arrays(self, positions: Sequence[int]) -> list[list[object]]:
        owed = [
            (number, position, delivery, endpoint_key)
            for number, position in enumerate(positions, 1)
            for delivery, endpoint_key in zip(self._submissions[position].deliveries, self._endpoint_keys[position])
        ]
        return [
            [number for number, _, _, _ in owed],
            [delivery.delivery_id for _, _, delivery, _ in owed],
            [self._orgs[position] for _, position, _, _ in owed],
            [endpoint_key for _, _, _, endpoint_key in owed],
            [delivery.due_at for _, _, delivery, _ in owed],
            [self._submissions[position].event.created_at for _, position, _, _ in owed],
            [delivery.retries_max for _, _, delivery, _ in owed],
            _unless_empty([self._submissions[position].event.ordering_key for _, position, _, _ in owed]),
        ]

    def _owners(self, positions: Sequence[int]) -> list[object]:
        return _unless_empty([self._submissions[position].event.user_id for position in positions])

    def _batches(self, positions: Sequence[int]) -> list[tuple[int, UUID]]:
        return [
            (self._orgs[position], delivery.delivery_id)
            for position in positions
            for delivery in self._submissions[position].deliveries
            if delivery.batch
        ]

    def _search_values(self, positions: Sequence[int]) -> list[tuple[int, UUID, int]]:
        submissions = ((self._orgs[position], self._submissions[position]) for position in positions)
        return [(org, one.event.event_id, value) for org, one in submissions for value in one.search_keys]

    async def _correct(self, connection: Connection, receipts: list[Receipt], known: Sequence[int]) -> None:
        """Replace the receipts of events that existed already with those of their first acceptance."""
        uids = [self._submissions[position].event.event_id for position in known]
        rows = await connection.fetch(READ_EVENTS, [self._orgs[position] for position in known], uids)
        kept = {row[0]: Receipt(Verdict.ACCEPTED, row[0], row[1], row[2], known=True) for row in rows}
        for position, uid in zip(known, uids):
            receipts[position] = kept[uid]


def _unless_empty(column: list[object]) -> list[object]:
    """The column, or an empty array if all its values are None. `unnest` then fills the column with NULLs, and the
    driver has nothing to encode."""
    return [] if column.count(None) == len(column) else column
