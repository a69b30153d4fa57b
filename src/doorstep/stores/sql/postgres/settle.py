"""settle and release: the results of claims, written only for the newest token.

Deliveries are written before events and both in the order of their keys, so that two workers that settle deliveries
of the same events wait for each other and never in a circle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.claim import Claim, Settled, Settlement, StatusChange
from doorstep.model.delivery import DeliveryState, check_transition
from doorstep.stores import notes
from doorstep.stores.deaths import cause_in
from doorstep.stores.incidents import death_in, document_of
from doorstep.stores.sql.endings import endings_of
from doorstep.stores.sql.postgres import counters, transactions
from doorstep.stores.sql.postgres.connections import Connection
from doorstep.stores.sql.postgres.directory import Address
from doorstep.stores.sql.queries.ordering import turns_to_end, unblock
from doorstep.stores.text import storable

BEGIN_RELAXED = "BEGIN; SET LOCAL synchronous_commit = off"
"""A settle or release that a crash of the server loses is a second delivery, never a lost one."""

SETTLE = """
WITH settled AS (
    UPDATE doorstep_deliveries d SET
        state = r.state, due_at = r.due_at, retries_max = r.retries_max,
        retry_attempts = least(d.retry_attempts, r.retries_max), moves = d.moves + 1,
        forced = false, claimed_at = NULL, worker = NULL,
        first_failed_at = coalesce(d.first_failed_at, CASE WHEN r.category IS NOT NULL THEN r.finished_at END),
        last_attempt_at = r.finished_at, settled_at = CASE WHEN r.state <> 'pending' THEN $1::bigint END,
        response_code = r.response_code, category = r.category, code = r.code, cause = r.cause,
        reason = CASE WHEN r.category IS NOT NULL THEN r.reason END
    FROM (
        SELECT id, token, coalesce(state, 'delivered') AS state, due_at, retries_max, coalesce(note, 'delivered') AS note,
               worker, started_at, finished_at, coalesce(dns_us, 0) AS dns_us, coalesce(connect_us, 0) AS connect_us,
               coalesce(tls_us, 0) AS tls_us, first_byte_us, response_code, category, code,
               coalesce(reason, '') AS reason, coalesce(detail, '') AS detail, request_headers, response_headers,
               response_body, cause
        FROM unnest($2::bigint[], $3::bigint[], $4::text[], $5::bigint[], $6::int[], $7::text[], $8::text[],
                    $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[],
                    $15::int[], $16::text[], $17::text[], $18::text[], $19::text[], $20::bytea[], $21::bytea[],
                    $22::bytea[], $23::bigint[])
          AS u(id, token, state, due_at, retries_max, note, worker, started_at, finished_at, dns_us, connect_us, tls_us,
               first_byte_us, response_code, category, code, reason, detail, request_headers, response_headers,
               response_body, cause)
    ) AS r
    WHERE d.id = ANY (ARRAY[r.id]) AND d.token = r.token AND d.state IS NOT DISTINCT FROM 'in_progress'
    RETURNING d.id AS delivery_id, d.token, d.org_id, d.moves, d.attempt, r.state, r.due_at, r.note, r.worker, r.started_at,
              r.finished_at, r.dns_us, r.connect_us, r.tls_us, r.first_byte_us, r.response_code, r.category, r.code,
              r.reason, r.detail, r.request_headers, r.response_headers, r.response_body
), tried AS (
    INSERT INTO doorstep_attempts
        (delivery_id, number, move, late, org_id, worker, started_at, finished_at, dns_us, connect_us, tls_us,
         first_byte_us, next_retry_at, response_code, category, code, reason, detail, request_headers,
         response_headers, response_body)
    SELECT delivery_id, attempt, moves, 0, org_id, worker, started_at, finished_at, dns_us, connect_us, tls_us,
           first_byte_us, due_at, response_code, category, code, reason, detail, request_headers, response_headers,
           response_body
    FROM settled
), logged AS (
    INSERT INTO doorstep_history (delivery_id, move, org_id, at, old_state, new_state, attempt, note)
    SELECT delivery_id, moves, org_id, $1, 'in_progress', state, attempt, note FROM settled
)
SELECT delivery_id, token FROM settled
"""
"""Answers with the deliveries that were still held; what is missing was late. See `_unless_usual` for coalesce.

IS NOT DISTINCT FROM, here and in RELEASE, keeps the planner off the index of what is in progress. Statistics taken
while nothing was make it believe that index empty; it then walked it for each row, 2,300 ms for 500 instead of 22.
"""

SETTLE_EVENTS = """
UPDATE doorstep_events e SET
    open_count = e.open_count - s.done - s.dead, done_count = e.done_count + s.done, dead_count = e.dead_count + s.dead,
    status = CASE WHEN e.open_count > s.done + s.dead THEN e.status
                  WHEN e.dead_count + s.dead > 0 THEN 'failed' ELSE 'delivered' END,
    ended_at = CASE WHEN e.open_count = s.done + s.dead AND e.dead_count + s.dead > 0 THEN $1::bigint END
FROM unnest($2::bigint[], $3::int[], $4::int[]) AS s(id, done, dead)
WHERE e.id = ANY (ARRAY[s.id])
RETURNING e.id, e.status, e.open_count
"""
"""The rule of model/event.py, by what this call adds: an event was picked up long before it is settled."""

ADD_INCIDENTS = """
INSERT INTO doorstep_incidents (org_id, document)
SELECT d.org_id, i.document FROM unnest($1::bigint[], $2::text[]) AS i(delivery_id, document)
JOIN doorstep_deliveries d ON d.id = ANY (ARRAY[i.delivery_id])
"""

KEEP_LATE = """
INSERT INTO doorstep_attempts
    (delivery_id, number, move, late, org_id, worker, started_at, finished_at, dns_us, connect_us, tls_us,
     first_byte_us, response_code, category, code, reason, detail, request_headers, response_headers, response_body)
SELECT d.id, $2::int, d.moves,
       1 + (SELECT coalesce(max(a.late), 0) FROM doorstep_attempts a WHERE a.delivery_id = d.id AND a.number = $2::int),
       d.org_id, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17
FROM doorstep_deliveries d WHERE d.id = $1
"""

RELEASE = """
WITH released AS (
    UPDATE doorstep_deliveries d SET
        state = 'pending', due_at = $1, attempt = d.attempt - 1, claimed_at = NULL, worker = NULL, moves = d.moves + 1,
        retry_attempts = least(greatest(d.attempt - 2 - d.round_base, 0), d.retries_max)
    FROM unnest($2::bigint[], $3::bigint[], $4::text[]) AS r(id, token, note)
    WHERE d.id = ANY (ARRAY[r.id]) AND d.token = r.token AND d.state IS NOT DISTINCT FROM 'in_progress'
    RETURNING d.id, d.token, d.org_id, d.moves, d.attempt, r.note
), logged AS (
    INSERT INTO doorstep_history (delivery_id, move, org_id, at, old_state, new_state, attempt, note)
    SELECT id, moves, org_id, $1, 'in_progress', 'pending', attempt, note FROM released
)
SELECT id, token FROM released
"""


async def settle(
    connection: Connection, settlements: Sequence[Settlement], addresses: Mapping[UUID, Address], now: Instant
) -> Settled:
    """Write the results of claims, in the surrounding transaction; `addresses` are those of their endpoints."""
    for state in {settlement.state for settlement in settlements}:
        check_transition(DeliveryState.IN_PROGRESS, state)
    await _wait_for_turns(connection, settlements)
    held = await connection.fetch(SETTLE, now, *_settle_arrays(_once_each(settlements)))
    good, late = _sorted_out(settlements, {(row[0], row[1]) for row in held})
    for settlement in late:
        await connection.execute(KEEP_LATE, *_late_attempt(settlement))
    changes = await _settle_events(connection, good, now)
    await _add_incidents(connection, good, now)
    await counters.tick(connection, counters.settled(addresses, good, late, changes, now), now)
    await _unblock(connection, good, now)
    return Settled(tuple(settlement.claim for settlement in late), tuple(changes))


async def _add_incidents(connection: Connection, good: Iterable[Settlement], now: Instant) -> None:
    """Of those that died."""
    deaths = [(one.claim.key, death) for one in good if (death := death_in(one, now)) is not None]
    if deaths:
        keys, found = zip(*deaths, strict=True)
        await connection.execute(ADD_INCIDENTS, list(keys), [document_of(death) for death in found])


async def _wait_for_turns(connection: Connection, settlements: Iterable[Settlement]) -> None:
    if ending := _ending_in_line(settlements):
        await transactions.run_step(connection, turns_to_end(ending))


async def _unblock(connection: Connection, good: Iterable[Settlement], now: Instant) -> None:
    """The first of each line in which one has ended may go."""
    if ended := _ending_in_line(good):
        await transactions.run(connection, lambda: unblock(ended, now))


def _ending_in_line(settlements: Iterable[Settlement]) -> list[Any]:
    """The keys of deliveries that end here, and that others may have waited for."""
    ending = (one for one in settlements if one.state is not DeliveryState.PENDING)
    return [one.claim.key for one in ending if one.claim.ordering_key is not None]


async def release(connection: Connection, claims: Sequence[Claim], now: Instant) -> list[Claim]:
    """Hand claims back, in the surrounding transaction; returns those that were still held."""
    in_order = sorted({(claim.key, claim.token): claim for claim in claims}.values(), key=_by_key)
    notes_of = [notes.released(claim.worker) for claim in in_order]
    keys, tokens = [claim.key for claim in in_order], [claim.token for claim in in_order]
    held = {(row[0], row[1]) for row in await connection.fetch(RELEASE, now, keys, tokens, notes_of)}
    return [claim for claim in dict.fromkeys(claims) if (claim.key, claim.token) in held]


async def _settle_events(connection: Connection, good: Iterable[Settlement], now: Instant) -> list[StatusChange]:
    """Bring the events of settled deliveries up to date."""
    endings = endings_of(good)
    if not endings:
        return []
    keys = sorted(endings)  # type: ignore[type-var]
    done, dead = [endings[key].done for key in keys], [endings[key].dead for key in keys]
    rows = await connection.fetch(SETTLE_EVENTS, now, keys, done, dead)
    closed = {key: status for key, status, open_count in rows if not open_count}
    return [ending.change_to(closed[key]) for key, ending in endings.items() if key in closed]


def _once_each(settlements: Sequence[Settlement]) -> list[Settlement]:
    """The first settlement of each claim, in the order in which rows are locked."""
    first: dict[tuple[object, int], Settlement] = {}
    for settlement in settlements:
        first.setdefault((settlement.claim.key, settlement.claim.token), settlement)
    return sorted(first.values(), key=lambda settlement: settlement.claim.key)  # type: ignore[return-value,arg-type]


def _sorted_out(
    settlements: Sequence[Settlement], held: set[tuple[object, int]]
) -> tuple[list[Settlement], list[Settlement]]:
    """Those that were written and those that came too late; of the same claim twice, the second is late."""
    good: list[Settlement] = []
    late: list[Settlement] = []
    for settlement in settlements:
        slot = (settlement.claim.key, settlement.claim.token)
        if slot in held:
            held.remove(slot)
            good.append(settlement)
        else:
            late.append(settlement)
    return good, late


def _settle_arrays(settlements: Sequence[Settlement]) -> list[Sequence[object]]:
    claims = [settlement.claim for settlement in settlements]
    outcomes = [settlement.outcome for settlement in settlements]
    replies = [outcome.reply for outcome in outcomes]
    timings = [reply.timings for reply in replies]
    return [
        [claim.key for claim in claims],
        [claim.token for claim in claims],
        _unless_usual([settlement.state for settlement in settlements], DeliveryState.DELIVERED),
        _unless_usual([settlement.due_at for settlement in settlements], None),
        [settlement.retries_max for settlement in settlements],
        _unless_usual([storable(notes.settled(settlement)) for settlement in settlements], "delivered"),
        [claim.worker for claim in claims],
        [reply.started_at for reply in replies],
        [reply.finished_at for reply in replies],
        _unless_usual([timing.dns for timing in timings], 0),
        _unless_usual([timing.connect for timing in timings], 0),
        _unless_usual([timing.tls for timing in timings], 0),
        [timing.first_byte for timing in timings],
        [reply.status for reply in replies],
        _unless_usual([outcome.category for outcome in outcomes], None),
        _unless_usual([outcome.code and storable(outcome.code) for outcome in outcomes], None),
        _unless_usual([outcome.reason and storable(outcome.reason) for outcome in outcomes], ""),
        _unless_usual([outcome.detail and storable(outcome.detail) for outcome in outcomes], ""),
        [reply.request_headers for reply in replies],
        [reply.headers for reply in replies],
        [reply.body for reply in replies],
        _unless_usual([cause_in(settlement) for settlement in settlements], None),
    ]


def _unless_usual(column: Sequence[object], usual: object) -> Sequence[object]:
    """Nothing at all for a column in which all is as usual: `unnest` fills it up with NULLs, which SETTLE replaces.

    The driver looks at each element of an array for 0.3 µs, and most settles are all successes: 11 of 22 columns.
    """
    return [] if column.count(usual) == len(column) else column


def _late_attempt(settlement: Settlement) -> list[object]:
    """The arguments of KEEP_LATE."""
    claim, outcome, reply = settlement.claim, settlement.outcome, settlement.outcome.reply
    timings = reply.timings
    return [
        claim.key, claim.attempt, claim.worker, reply.started_at, reply.finished_at, timings.dns, timings.connect,
        timings.tls, timings.first_byte, reply.status, outcome.category, outcome.code and storable(outcome.code),
        storable(outcome.reason), storable(outcome.detail), reply.request_headers, reply.headers, reply.body,
    ]  # fmt: skip


def _by_key(claim: Claim) -> int:
    return claim.key  # type: ignore[return-value]
