"""accept: events, their deliveries and idempotency keys, kept in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from doorstep.clock import DAY, Instant
from doorstep.errors import NotFound, StaleRouting
from doorstep.model.delivery import NewDelivery
from doorstep.model.event import Receipt, Submission, Verdict
from doorstep.stores.sql.postgres import counters
from doorstep.stores.sql.postgres.connections import Connection
from doorstep.stores.sql.postgres.directory import Directory
from doorstep.stores.sql.postgres_ddl import ROUTING_LOCK, turn_of
from doorstep.stores.sql.schema import NEVER
from doorstep.stores.text import check_storable

BEGIN_ACCEPT = f"BEGIN; SELECT pg_advisory_xact_lock_shared({ROUTING_LOCK})"
"""The lock is taken before the statement that reads the version, which therefore sees every earlier change."""

ACCEPT = f"""
WITH event AS MATERIALIZED (
    SELECT nextval('doorstep_events_id_seq') AS id, e.*
    FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::int[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[],
                $9::text[], $10::text[], $11::bytea[], $12::bytea[]) WITH ORDINALITY
      AS e(uid, org_id, event_type, deliveries, created_at, deliver_at, expires_at, correlation_id,
           ordering_key, trace, metadata, payload, n)
), kept AS (
    INSERT INTO doorstep_events (id, uid, org_id, event_type, status, delivery_count, open_count, created_at,
                                 deliver_at, expires_at, correlation_id, ordering_key, trace, metadata, payload)
    SELECT id, uid, org_id, event_type, 'received', deliveries, deliveries, created_at,
           deliver_at, expires_at, correlation_id, ordering_key, trace, metadata, payload
    FROM event
    ON CONFLICT (org_id, uid) DO NOTHING
    RETURNING id, org_id
), numbered AS (
    SELECT array_agg(CASE WHEN id IN (SELECT id FROM kept) THEN id END ORDER BY n) AS event_ids FROM event
), owed AS (
    INSERT INTO doorstep_deliveries (uid, org_id, event_id, endpoint_id, state, due_at, created_at, retries_max,
                                     ordering_key)
    SELECT d.uid, d.org_id, event_ids[d.n], d.endpoint_id, 'pending', d.due_at, d.created_at, d.retries_max,
           d.ordering_key
    FROM numbered, unnest($13::int[], $14::uuid[], $15::bigint[], $16::bigint[], $17::bigint[], $18::bigint[], $19::int[],
                          $20::text[])
      AS d(n, uid, org_id, endpoint_id, due_at, created_at, retries_max, ordering_key)
    WHERE event_ids[d.n] IS NOT NULL
    RETURNING org_id, endpoint_id
), ticked AS (
    {counters.accepted("$21", "$22", "kept", "owed")}
)
SELECT (SELECT value FROM doorstep_marks WHERE name = 'routing'),
       ARRAY(SELECT n FROM event WHERE id NOT IN (SELECT id FROM kept))
"""
"""Deliveries name their event by its place in the arrays: a subscript is cheaper than a join of 500 by 500.

Answers with the routing version and with the places of events that were there already: the repetition of a call whose
answer was lost. Nothing is added for those."""

WAIT_FOR_TURNS = f"""
SELECT pg_advisory_xact_lock(turn) FROM (
    SELECT DISTINCT {turn_of("line")} AS turn
    FROM unnest($1::bigint[], $2::text[]) AS line(endpoint_id, ordering_key)
    WHERE ordering_key IS NOT NULL ORDER BY turn
) AS turns
"""
"""Before ACCEPT, so that the deliveries of a line get their keys in the order in which they are accepted."""

BLOCK = f"""
UPDATE doorstep_deliveries d SET due_at = {NEVER}
FROM unnest($1::bigint[], $2::uuid[]) AS new(org_id, uid)
WHERE d.org_id = ANY (ARRAY[new.org_id]) AND d.uid = new.uid AND d.xmin = pg_current_xact_id()::xid AND EXISTS (
    SELECT FROM doorstep_deliveries o WHERE o.endpoint_id = d.endpoint_id AND o.ordering_key = d.ordering_key
      AND o.due_at IS NOT NULL AND o.id < d.id)
"""
"""Those that came in behind an open one of their line: see queries/ordering.py. By `xmin`, which tells who wrote a row, only
what this transaction has added: the call may be the repetition of one whose deliveries are long under way."""

MARK_BATCHES = """
UPDATE doorstep_deliveries d SET batch = TRUE
FROM unnest($1::bigint[], $2::uuid[]) AS new(org_id, uid)
WHERE d.org_id = ANY (ARRAY[new.org_id]) AND d.uid = new.uid
"""
"""Apart from their insertion, so that what is no batch, which is nearly everything, pays nothing for those that are."""

TAKE_KEYS = """
INSERT INTO doorstep_idempotency AS kept
    (org_id, key, fingerprint, event_uid, event_created_at, delivery_count, created_at)
SELECT org_id, key, fingerprint, event_uid, event_created_at, delivery_count, $7
FROM unnest($1::bigint[], $2::text[], $3::bytea[], $4::uuid[], $5::bigint[], $6::int[])
  AS k(org_id, key, fingerprint, event_uid, event_created_at, delivery_count)
ORDER BY org_id, key
ON CONFLICT (org_id, key) DO UPDATE SET
    fingerprint = excluded.fingerprint, event_uid = excluded.event_uid, event_created_at = excluded.event_created_at,
    delivery_count = excluded.delivery_count, created_at = excluded.created_at
WHERE kept.created_at <= $8
RETURNING org_id, key
"""
"""Waits for another transaction that has just taken the same key; a key that still counts is locked, not changed."""

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

Slot = tuple[int, str]
"""An organization and its idempotency key."""


class First(NamedTuple):
    """What was answered the first time under an idempotency key."""

    fingerprint: bytes
    event_id: UUID
    created_at: Instant
    deliveries: int

    def receipt_for(self, submission: Submission) -> Receipt:
        verdict = Verdict.REPEATED if self.fingerprint == submission.fingerprint else Verdict.CONFLICT
        return Receipt(verdict, self.event_id, self.created_at, self.deliveries)


class Intake:
    """One accept call, prepared: whatever can be refused without the database has been."""

    def __init__(self, submissions: Sequence[Submission], directory: Directory) -> None:
        self._submissions = submissions
        self._orgs = [directory.orgs[submission.event.org_id] for submission in submissions]
        self._endpoint_keys = [
            [_endpoint_key(directory, org, delivery) for delivery in submission.deliveries]
            for org, submission in zip(self._orgs, submissions)
        ]

    def check(self) -> None:
        for submission in self._submissions:
            check_storable("event_type", submission.event.event_type)
            check_storable("correlation_id", submission.event.correlation_id)
            check_storable("ordering_key", submission.event.ordering_key)
            check_storable("idempotency_key", submission.idempotency_key)

    async def keep(self, connection: Connection, routing_version: int, now: Instant) -> list[Receipt]:
        """Write everything; the surrounding transaction makes it so."""
        firsts = await self._take_keys(connection, now)
        receipts, new = self._sort_out(firsts)
        owed = self._delivery_arrays(new)
        _, uids, orgs, endpoints, *_, ordering_keys = owed
        if ordering_keys:
            await connection.fetch(WAIT_FOR_TURNS, endpoints, ordering_keys)
        rows = await connection.fetch(ACCEPT, *self._event_arrays(new), *owed, now, counters.generation())
        version, repeated = rows[0]
        if version != routing_version:
            raise StaleRouting("endpoints changed since the routing was read; read it again and recompute")
        if ordering_keys:
            await connection.execute(BLOCK, orgs, uids)
        if batches := self._batches(new):
            await connection.execute(MARK_BATCHES, *map(list, zip(*batches)))
        if repeated:
            await self._correct(connection, receipts, [new[number - 1] for number in repeated])
        return receipts

    def _sort_out(self, firsts: dict[Slot, First]) -> tuple[list[Receipt], list[int]]:
        """A receipt for each submission, and the places of those that are new."""
        receipts: list[Receipt] = []
        new: list[int] = []
        for place, submission in enumerate(self._submissions):
            slot = self._slot(place)
            if slot is not None and slot in firsts:
                receipts.append(firsts[slot].receipt_for(submission))
                continue
            event, count = submission.event, len(submission.deliveries)
            receipts.append(Receipt(Verdict.ACCEPTED, event.event_id, event.created_at, count))
            new.append(place)
            if slot is not None:
                firsts[slot] = _first_of(submission)
        return receipts, new

    def _slot(self, place: int) -> Slot | None:
        key = self._submissions[place].idempotency_key
        return None if key is None else (self._orgs[place], key)

    async def _take_keys(self, connection: Connection, now: Instant) -> dict[Slot, First]:
        """Take the idempotency keys that are free; what is known about the others."""
        wanted = {
            slot: _first_of(submission)
            for place, submission in reversed(list(enumerate(self._submissions)))
            if (slot := self._slot(place)) is not None
        }
        if not wanted:
            return {}
        orgs, keys = [org for org, _ in wanted], [key for _, key in wanted]
        taken = await connection.fetch(TAKE_KEYS, orgs, keys, *map(list, zip(*wanted.values())), now, now - DAY)
        lost = wanted.keys() - {(row[0], row[1]) for row in taken}
        if not lost:
            return {}
        rows = await connection.fetch(READ_KEYS, [org for org, _ in lost], [key for _, key in lost])
        return {(row[0], row[1]): First(row[2], row[3], row[4], row[5]) for row in rows}

    def _event_arrays(self, places: Sequence[int]) -> list[list[object]]:
        events = [self._submissions[place].event for place in places]
        return [
            [event.event_id for event in events],
            [self._orgs[place] for place in places],
            [event.event_type for event in events],
            [len(self._submissions[place].deliveries) for place in places],
            [event.created_at for event in events],
            [event.deliver_at for event in events],
            [event.expires_at for event in events],
            [event.correlation_id for event in events],
            _unless_empty([event.ordering_key for event in events]),
            _unless_empty([event.trace for event in events]),
            [event.metadata for event in events],
            [event.payload for event in events],
        ]

    def _delivery_arrays(self, places: Sequence[int]) -> list[list[object]]:
        owed = [
            (number, place, delivery, endpoint_key)
            for number, place in enumerate(places, 1)
            for delivery, endpoint_key in zip(self._submissions[place].deliveries, self._endpoint_keys[place])
        ]
        return [
            [number for number, _, _, _ in owed],
            [delivery.delivery_id for _, _, delivery, _ in owed],
            [self._orgs[place] for _, place, _, _ in owed],
            [endpoint_key for _, _, _, endpoint_key in owed],
            [delivery.due_at for _, _, delivery, _ in owed],
            [self._submissions[place].event.created_at for _, place, _, _ in owed],
            [delivery.retries_max for _, _, delivery, _ in owed],
            _unless_empty([self._submissions[place].event.ordering_key for _, place, _, _ in owed]),
        ]

    def _batches(self, places: Sequence[int]) -> list[tuple[int, UUID]]:
        return [
            (self._orgs[place], delivery.delivery_id)
            for place in places
            for delivery in self._submissions[place].deliveries
            if delivery.batch
        ]

    async def _correct(self, connection: Connection, receipts: list[Receipt], known: Sequence[int]) -> None:
        """An event that was there already is answered with the figures it was accepted with."""
        uids = [self._submissions[place].event.event_id for place in known]
        rows = await connection.fetch(READ_EVENTS, [self._orgs[place] for place in known], uids)
        kept = {row[0]: Receipt(Verdict.ACCEPTED, row[0], row[1], row[2], known=True) for row in rows}
        for place, uid in zip(known, uids):
            receipts[place] = kept[uid]


def _unless_empty(column: list[object]) -> list[object]:
    """Nothing at all for a column of NULLs: `unnest` fills it up, and the driver need not look at each."""
    return [] if column.count(None) == len(column) else column


def _endpoint_key(directory: Directory, org: int, delivery: NewDelivery) -> int:
    address = directory.endpoints[delivery.endpoint_id]
    if address.org_key != org:
        raise NotFound(f"no endpoint {delivery.endpoint_id}")
    return address.key


def _first_of(submission: Submission) -> First:
    event = submission.event
    return First(submission.fingerprint, event.event_id, event.created_at, len(submission.deliveries))
