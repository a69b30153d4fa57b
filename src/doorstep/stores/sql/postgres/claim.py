"""Lanes and claims: find the endpoints that have due deliveries, and claim these deliveries under a lease."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from asyncpg import Record
from msgspec.structs import replace

from doorstep.clock import Instant
from doorstep.model.claim import Claim, Quota
from doorstep.stores import notes
from doorstep.stores.limits import admit
from doorstep.stores.sql.keys import Address
from doorstep.stores.sql.postgres import counters
from doorstep.stores.sql.postgres.connections import Connection
from doorstep.stores.sql.queries.rows import ATTEMPTABLE, CIRCUIT_FIELDS, RECOVERABLE_AT
from doorstep.stores.sql.schema import NEVER

_CLAIM = f"""
WITH forced AS MATERIALIZED (
    SELECT d.id, d.endpoint_id, owner.endpoint_uid, owner.org_uid
    FROM doorstep_deliveries d
    CROSS JOIN LATERAL (
        SELECT p.uid AS endpoint_uid, o.uid AS org_uid
        FROM doorstep_endpoints p JOIN doorstep_orgs o ON o.id = p.org_id
        WHERE p.id = d.endpoint_id AND p.state = 'active' AND p.uid <> ALL ($13::uuid[])
        LIMIT 1
    ) AS owner
    WHERE d.forced AND d.due_at <= $1 AND d.state IS NOT DISTINCT FROM 'pending'
    ORDER BY d.due_at, d.id LIMIT $5
    FOR UPDATE OF d SKIP LOCKED
), picked AS MATERIALIZED (
    SELECT id, endpoint_uid, org_uid, NULL::bigint AS due_at FROM forced
    UNION ALL
    SELECT due.id, q.endpoint_uid, q.org_uid, due.due_at
    FROM unnest($6::bigint[], $7::uuid[], $8::uuid[], $9::int[], $10::int[], $11::bigint[], $12::bigint[], $15::bigint[])
      AS q(endpoint_id, endpoint_uid, org_uid, count, concurrency_max, floor, bytes_max, until)
    CROSS JOIN LATERAL (
        SELECT waiting.id, waiting.due_at, sum(waiting.size) OVER (
            ORDER BY waiting.place, waiting.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS size_before
        FROM (
            SELECT d.id, d.due_at, d.PLACE AS place, CASE WHEN q.bytes_max IS NOT NULL THEN coalesce(octet_length(d.payload),
                (SELECT octet_length(e.payload) FROM doorstep_events e WHERE e.id = ANY (ARRAY[d.event_id]))) END AS size
            FROM doorstep_deliveries d
            WHERE d.endpoint_id = q.endpoint_id AND d.state = 'pending' AND d.PLACE >= q.floor AND d.PLACE <= q.until
              AND d.id <> ALL (ARRAY(SELECT id FROM forced))
            ORDER BY d.PLACE, d.id
            LIMIT CASE WHEN q.concurrency_max IS NULL THEN q.count ELSE greatest(0, least(q.count, q.concurrency_max
                - (SELECT count(*) FROM doorstep_deliveries f WHERE f.endpoint_id = q.endpoint_id AND f.state = 'in_progress')
                - (SELECT count(*) FROM forced f WHERE f.endpoint_id = q.endpoint_id))) END
            FOR UPDATE SKIP LOCKED
        ) AS waiting
    ) AS due
    WHERE q.bytes_max IS NULL OR coalesce(due.size_before, 0) < q.bytes_max
), claimed AS (
    UPDATE doorstep_deliveries d SET
        state = 'in_progress', due_at = $2, token = d.token + 1, attempt = d.attempt + 1,
        retry_attempts = least(greatest(d.attempt - d.round_base - d.uncounted, 0), d.retries_max),
        moves = d.moves + 1, claimed_at = $1, worker = $3
    FROM picked WHERE d.id = ANY (ARRAY[picked.id])
    RETURNING d.id, d.event_id, d.token, d.uid, picked.endpoint_uid, picked.org_uid, d.attempt, d.retry_attempts,
              d.retries_max, d.first_failed_at, d.moves, d.org_id, picked.due_at AS was_due_at, d.uncounted, d.endpoint_id,
              d.payload
), logged AS (
    INSERT INTO doorstep_history (delivery_id, move, org_id, at, old_state, new_state, attempt, note)
    SELECT id, moves, org_id, $1, 'pending', 'in_progress', attempt, $4 FROM claimed
), queued AS (
    UPDATE doorstep_events e SET status = 'queued'
    FROM (SELECT DISTINCT event_id FROM claimed ORDER BY event_id) AS c
    WHERE e.id = ANY (ARRAY[c.event_id]) AND e.status = 'received'
    RETURNING e.id, e.org_id
), counted AS (
    {counters.picked_up("$1", "$14", "queued")}
)
SELECT c.id, c.event_id, c.token, c.uid, e.uid, c.endpoint_uid, c.org_uid, e.event_type,
       coalesce(c.payload, e.payload), e.correlation_id, e.created_at, e.expires_at, c.attempt, c.retry_attempts,
       c.retries_max, c.first_failed_at, $1::bigint, $2::bigint, $3::text, c.event_id IN (SELECT id FROM queued),
       e.ordering_key, e.metadata, e.trace, e.deliver_at, NULL::text, c.was_due_at, c.uncounted,
       e.user_id, c.endpoint_id
FROM claimed c JOIN doorstep_events e ON e.id = ANY (ARRAY[c.event_id])
"""
"""One statement that selects and locks deliveries, counts the attempt, writes the history, updates the events, and
returns everything a worker needs.

The first columns are the fields of Claim in order; the last one is used to update the floors (floors.py).

Operators' retries are found with IS NOT DISTINCT FROM, so that `forced` is the only index that PostgreSQL can use. With
a condition that left it a choice, it once assumed that few deliveries were pending and used the index of all pending
deliveries. With 100,000 pending deliveries, a claim then took 15 ms instead of 1 ms."""

CLAIM = _CLAIM.replace("d.PLACE", "d.due_at")
CLAIM_ON_RECOVERY = _CLAIM.replace(
    "d.state = 'pending' AND d.PLACE", "d.state = 'pending' AND d.on_recovery AND d.PLACE"
).replace("d.PLACE", "d.last_attempt_at")
"""Claims deliveries that wait for a recovery, due or not."""

LOCK_ENDPOINTS = """
SELECT id, rate_next_at FROM doorstep_endpoints WHERE id = ANY($1::bigint[])
ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
"""
"""Locks the endpoints that have a concurrency or rate limit, except those that another worker is claiming from. The
claim is a separate, later statement, so that it sees and counts the claims of the previous lock holder."""

UPDATE_RATES = """
UPDATE doorstep_endpoints p SET rate_next_at = r.next_at
FROM unnest($1::bigint[], $2::bigint[]) AS r(id, next_at) WHERE p.id = r.id
"""

_CIRCUIT = ", ".join(f"c.{name}" for name in CIRCUIT_FIELDS)

_WALK = """
WITH RECURSIVE lane AS (
    (SELECT endpoint_id, due_at FROM doorstep_deliveries WHERE state = 'pending'
     ORDER BY endpoint_id, due_at, id LIMIT 1)
    UNION ALL
    SELECT next.endpoint_id, next.due_at FROM lane CROSS JOIN LATERAL (
        SELECT d.endpoint_id, d.due_at FROM doorstep_deliveries d
        WHERE d.state = 'pending' AND d.endpoint_id > lane.endpoint_id
        ORDER BY d.endpoint_id, d.due_at, d.id LIMIT 1
    ) AS next
)
"""
"""Skips from endpoint to endpoint in the index. It needs one seek per endpoint, regardless of how many deliveries the
endpoint has."""

SWEEP = f"""{_WALK}
SELECT lane.endpoint_id, lane.due_at, {RECOVERABLE_AT}, {_CIRCUIT}
FROM lane LEFT JOIN doorstep_circuits c ON c.endpoint_id = ANY (ARRAY[lane.endpoint_id])
WHERE lane.due_at < {NEVER}
ORDER BY lane.due_at
"""

SWEEP_NEAR = f"""{_WALK}
SELECT near.*, walk.lanes FROM (SELECT count(*) AS lanes FROM lane) AS walk LEFT JOIN LATERAL (
    SELECT lane.endpoint_id, lane.due_at, {RECOVERABLE_AT} AS recoverable_at, {_CIRCUIT}
    FROM lane LEFT JOIN doorstep_circuits c ON c.endpoint_id = ANY (ARRAY[lane.endpoint_id])
    WHERE lane.due_at <= $1 AND {ATTEMPTABLE} OR lane.due_at > $1 AND (
        lane.endpoint_id IN (SELECT endpoint_id FROM lane WHERE due_at > $1 AND due_at < {NEVER}
                             ORDER BY due_at, endpoint_id LIMIT $2)
        OR lane.due_at < {NEVER} AND {RECOVERABLE_AT} IS NOT NULL
    )
) AS near ON true
ORDER BY near.due_at
"""
"""Like SWEEP, but without what a worker cannot attempt yet. The last column is the number of lanes that were walked. If
nothing was found, there is one row, without a lane."""

SWEEP_FROM_FLOORS = f"""
SELECT lane.endpoint_id, first.due_at, {RECOVERABLE_AT}, {_CIRCUIT}
FROM unnest($1::bigint[], $2::bigint[]) AS lane(endpoint_id, floor)
CROSS JOIN LATERAL (
    SELECT d.due_at FROM doorstep_deliveries d
    WHERE d.endpoint_id = lane.endpoint_id AND d.state = 'pending' AND d.due_at >= lane.floor AND d.due_at < {NEVER}
    ORDER BY d.due_at, d.id LIMIT 1
) AS first
LEFT JOIN doorstep_circuits c ON c.endpoint_id = ANY (ARRAY[lane.endpoint_id])
ORDER BY first.due_at
"""
"""Like SWEEP, but only for known endpoints. The search for each endpoint starts at its floor (floors.py)."""

EXPIRED = """
WITH RECURSIVE busy AS (
    (SELECT min(endpoint_id) AS endpoint_id FROM doorstep_deliveries WHERE state = 'in_progress')
    UNION ALL
    SELECT (SELECT min(d.endpoint_id) FROM doorstep_deliveries d
            WHERE d.state = 'in_progress' AND d.endpoint_id > busy.endpoint_id)
    FROM busy WHERE busy.endpoint_id IS NOT NULL
)
SELECT d.id, d.event_id, d.token, d.uid, e.uid, p.uid, o.uid, e.event_type, ''::bytea, e.correlation_id, e.created_at,
       e.expires_at, d.attempt, d.retry_attempts, d.retries_max, d.first_failed_at, d.claimed_at, d.due_at, d.worker, false,
       e.ordering_key, e.metadata, e.trace, e.deliver_at, d.code, NULL::bigint, d.uncounted, e.user_id
FROM busy
CROSS JOIN LATERAL (
    SELECT * FROM doorstep_deliveries d
    WHERE d.endpoint_id = busy.endpoint_id AND d.state = 'in_progress' AND d.due_at <= $1
    ORDER BY d.due_at LIMIT $2
) AS d
JOIN doorstep_events e ON e.id = ANY (ARRAY[d.event_id])
JOIN doorstep_endpoints p ON p.id = d.endpoint_id
JOIN doorstep_orgs o ON o.id = p.org_id
ORDER BY d.due_at, d.id LIMIT $2
"""


class EndpointQuota(NamedTuple):
    """A quota, the address of its endpoint, and the due time from which to search for deliveries."""

    address: Address
    floor: Instant
    quota: Quota

    def place(self, now: Instant) -> tuple[Instant, Instant]:
        """The first and the last place in the index that the quota covers."""
        if self.quota.attempted_before is not None:
            return 0, self.quota.attempted_before - 1
        last = now if self.quota.due_until is None else min(now, self.quota.due_until)
        return max(self.floor, self.quota.due_after + 1), last

    @property
    def oldest_first(self) -> bool:
        """Whether no delivery remains that was due before those claimed."""
        return self.quota.due_after < 0 and self.quota.attempted_before is None

    @property
    def limited(self) -> bool:
        """Whether the endpoint has a limit that all workers share, so that only one worker at a time may claim from
        it."""
        return self.quota.concurrency_max is not None or self.quota.rate_per_second is not None


class ClaimCall(NamedTuple):
    """One claim call."""

    quotas: Sequence[EndpointQuota]
    now: Instant
    lease_until: Instant
    worker: str
    forced_max: int
    unserved: Sequence[UUID] = ()

    @property
    def limited(self) -> bool:
        return any(quota.limited for quota in self.quotas)

    @property
    def statements(self) -> list[tuple[str, ClaimCall]]:
        """Each statement with its part of the quotas."""
        early = [one for one in self.quotas if one.quota.attempted_before is not None]
        if not early:
            return [(CLAIM, self)]
        due = [one for one in self.quotas if one.quota.attempted_before is None]
        later = (CLAIM_ON_RECOVERY, self._replace(quotas=early, forced_max=0))
        return [(CLAIM, self._replace(quotas=due)), later] if due or self.forced_max else [later]

    async def take(self, connection: Connection) -> list[Record]:
        """Claim without checking the limits of endpoints."""
        return [row for sql, call in self.statements for row in await call._fetch(connection, sql)]

    async def _fetch(self, connection: Connection, sql: str) -> list[Record]:
        heading = (self.now, self.lease_until, self.worker, notes.claimed(self.worker), self.forced_max)
        *arrays, until = _quota_arrays(self.quotas, self.now)
        return await connection.fetch(sql, *heading, *arrays, self.unserved, counters.generation(), until)

    async def take_within_limits(self, connection: Connection) -> list[Record]:
        """Claim within the limits of endpoints, in the current transaction."""
        keys = [one.address.key for one in self.quotas if one.limited]
        rates = {row["id"]: row["rate_next_at"] for row in await connection.fetch(LOCK_ENDPOINTS, keys)}
        quotas = [one for one in self.quotas if not one.limited or one.address.key in rates]
        rows = await self._replace(quotas=[self._admitted(one, rates) for one in quotas]).take(connection)
        await self._update_rates(connection, quotas, rates, rows)
        return rows

    def _admitted(self, one: EndpointQuota, rates: dict[int, Instant]) -> EndpointQuota:
        if one.quota.rate_per_second is None:
            return one
        count, _ = admit(one.quota.rate_per_second, rates[one.address.key], self.now, one.quota.count)
        return one._replace(quota=replace(one.quota, count=count))

    async def _update_rates(
        self, connection: Connection, quotas: Sequence[EndpointQuota], rates: dict[int, Instant], rows: Sequence[Record]
    ) -> None:
        """Record how many deliveries were claimed, which may be fewer than the rate limit allowed."""
        taken = Counter(row["endpoint_id"] for row in rows if row["was_due_at"] is not None)
        moved = {
            one.address.key: admit(rate, rates[one.address.key], self.now, taken[one.address.key])[1]
            for one in quotas
            if (rate := one.quota.rate_per_second) is not None and taken[one.address.key]
        }
        if moved:
            await connection.execute(UPDATE_RATES, list(moved), list(moved.values()))


def claims_of(rows: Sequence[Record]) -> list[Claim]:
    """The claims in order. If several claims belong to the same event, only the first one counts as picking up the
    event."""
    claims = [Claim(*row[:_FIELDS]) for row in rows]
    picked_up = [claim.event_key for claim in claims if claim.picked_up]
    return claims if len(set(picked_up)) == len(picked_up) else _picked_up_once(claims)


_FIELDS = len(Claim._fields) - 1
"""Stores do not set the last field, `probe`."""


def _quota_arrays(quotas: Sequence[EndpointQuota], now: Instant) -> list[list[object]]:
    places = [one.place(now) for one in quotas]
    return [
        [one.address.key for one in quotas],
        [one.address.endpoint_id for one in quotas],
        [one.address.org_id for one in quotas],
        [one.quota.count for one in quotas],
        [one.quota.concurrency_max for one in quotas],
        [first for first, _ in places],
        [one.quota.bytes_max for one in quotas],
        [last for _, last in places],
    ]


def _picked_up_once(claims: Sequence[Claim]) -> list[Claim]:
    seen: set[object] = set()
    once = []
    for claim in claims:
        once.append(claim._replace(picked_up=False) if claim.event_key in seen else claim)
        seen.add(claim.event_key)
    return once
