"""Settle and release: what is written when a claim ends, in the transaction that the writer is in."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import NamedTuple, cast

from doorstep.clock import Instant
from doorstep.model.claim import Claim, Settled, Settlement, StatusChange
from doorstep.model.delivery import DeliveryState, check_transition
from doorstep.stores import notes
from doorstep.stores.deaths import cause_in
from doorstep.stores.incidents import death_in, document_of
from doorstep.stores.sql.endings import endings_of
from doorstep.stores.sql.queries.ordering import unblock
from doorstep.stores.sql.sqlite import counters
from doorstep.stores.sql.sqlite.batches import Column, Numbers, as_list, packed, unpacked, write_rows
from doorstep.stores.sql.sqlite.names import Directory
from doorstep.stores.sql.sqlite.transactions import run_transaction
from doorstep.stores.tally import Tally
from doorstep.stores.text import storable

_HELD: tuple[Column, ...] = (Numbers("id"), Numbers("token"), Numbers("moves"), Numbers("org_id"))
HELD = packed(
    _HELD,
    "FROM doorstep_deliveries WHERE id IN (SELECT value FROM json_each(?)) AND state = 'in_progress'",
)
SETTLE = """
UPDATE doorstep_deliveries SET state = ?1, settled_at = ?2, retries_max = ?3, retry_attempts = min(retry_attempts, ?3),
    forced = 0, claimed_at = NULL, worker = NULL, moves = moves + 1, cause = ?5,
    (due_at, last_attempt_at, first_failed_at, category, code, reason, response_code) = (
        SELECT a.next_retry_at, a.finished_at,
            coalesce(first_failed_at, CASE WHEN a.category IS NOT NULL THEN a.finished_at END),
            a.category, a.code, CASE WHEN a.category IS NOT NULL THEN a.reason END, a.response_code
        FROM doorstep_attempts a WHERE a.delivery_id = doorstep_deliveries.id AND a.number = attempt
            AND a.move = moves + 1 AND a.late = 0)
WHERE id IN (SELECT value FROM json_each(?4))
"""
"""What the attempt meant is taken from its row in the log, which is written first: one statement for many rows."""
ADD_SETTLED_HISTORY = """
INSERT INTO doorstep_history (delivery_id, move, org_id, at, old_state, new_state, attempt, note)
SELECT id, moves, org_id, ?, 'in_progress', state, attempt, ? FROM doorstep_deliveries
WHERE id IN (SELECT value FROM json_each(?))
"""
ADD_ATTEMPTS = """
INSERT INTO doorstep_attempts (delivery_id, number, move, late, org_id, worker, started_at, finished_at, dns_us,
    connect_us, tls_us, first_byte_us, response_code, category, code, reason, detail, request_headers,
    response_headers, response_body, next_retry_at) VALUES {rows}
"""
ADD_LATE_ATTEMPT = """
INSERT INTO doorstep_attempts (delivery_id, number, move, late, org_id, worker, started_at, finished_at, dns_us,
    connect_us, tls_us, first_byte_us, response_code, category, code, reason, detail, request_headers,
    response_headers, response_body)
SELECT d.id, ?2, d.moves, 1 + (SELECT coalesce(max(a.late), 0) FROM doorstep_attempts a
        WHERE a.delivery_id = ?1 AND a.number = ?2 AND a.move = d.moves),
    d.org_id, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17
FROM doorstep_deliveries d WHERE d.id = ?1
"""
ADD_RELEASED_HISTORY = """
INSERT INTO doorstep_history (delivery_id, move, org_id, at, old_state, new_state, attempt, note) VALUES {rows}
"""
RELEASE = """
UPDATE doorstep_deliveries SET state = 'pending', due_at = ?, attempt = attempt - 1,
    retry_attempts = min(max(attempt - 2 - round_base, 0), retries_max), claimed_at = NULL, worker = NULL,
    moves = moves + 1
WHERE id IN (SELECT value FROM json_each(?))
"""
COUNT = """
UPDATE doorstep_events SET open_count = open_count - ?1 - ?2, dead_count = dead_count + ?1, done_count = done_count + ?2,
    status = CASE WHEN open_count > ?1 + ?2 THEN status WHEN dead_count + ?1 > 0 THEN 'failed' ELSE 'delivered' END,
    ended_at = CASE WHEN open_count = ?1 + ?2 AND dead_count + ?1 > 0 THEN ?3 END
WHERE id IN (SELECT value FROM json_each(?4))
"""
"""The rule of model/event.py `status_of`, for an event that has been picked up and has one more dead or done."""
_ENDED: tuple[Column, ...] = (Numbers("id"), Numbers("status"))
ENDED = packed(
    _ENDED,
    "FROM doorstep_events WHERE id IN (SELECT value FROM json_each(?)) AND status IN ('delivered', 'failed')",
)


ADD_INCIDENTS = "INSERT INTO doorstep_incidents (org_id, document) VALUES {rows}"


class _Held(NamedTuple):
    """A claim that is still the newest and still running."""

    token: int
    moves: int
    org_key: int


class _Ending(NamedTuple):
    """A settlement that may be written, with what is needed of its row."""

    settlement: Settlement
    move: int
    org_key: int


class _Late(NamedTuple):
    """A settlement that only leaves a row in the attempt log."""

    settlement: Settlement
    repeated: bool
    """The delivery was settled by another one of the same call, which was written before."""


# -- settle ------------------------------------------------------------------------------------------------


def settle(
    connection: sqlite3.Connection, directory: Directory, settlements: Sequence[Settlement], now: Instant
) -> Settled:
    for settlement in settlements:
        check_transition(DeliveryState.IN_PROGRESS, settlement.state)
    endings, late = _split(connection, settlements)
    _log_late(connection, (one.settlement for one in late if not one.repeated))
    write_rows(connection, ADD_ATTEMPTS, [_attempt_row(ending) for ending in endings])
    for (state, retries_max, note, cause), keys in _alike(ending.settlement for ending in endings).items():
        settled_at = None if state is DeliveryState.PENDING else now
        connection.execute(SETTLE, (state.value, settled_at, retries_max, as_list(keys), cause))
        connection.execute(ADD_SETTLED_HISTORY, (now, note, as_list(keys)))
    _log_late(connection, (one.settlement for one in late if one.repeated))
    changes = _count(connection, [ending.settlement for ending in endings], now)
    write_rows(connection, ADD_INCIDENTS, _incident_rows(endings, now))
    counters.tick(connection, _tally_of(directory, endings, late, changes, now), now)
    _unblock(connection, endings, now)
    return Settled(tuple(one.settlement.claim for one in late), tuple(changes))


def _tally_of(
    directory: Directory,
    endings: Iterable[_Ending],
    late: Iterable[_Late],
    changes: Iterable[StatusChange],
    now: Instant,
) -> Tally:
    org_key, endpoint_key = directory.orgs.key, directory.endpoints.key
    tally = Tally()
    tally.settled(
        (((one.org_key, endpoint_key(one.settlement.claim.endpoint_id)), one.settlement) for one in endings), now
    )
    for claim in (one.settlement.claim for one in late):
        tally.add((org_key(claim.org_id), endpoint_key(claim.endpoint_id)), "late")
    tally.statuses((org_key(change.org_id), change) for change in changes)
    return tally


def _incident_rows(endings: Iterable[_Ending], now: Instant) -> list[tuple[object, ...]]:
    """Of those that died."""
    deaths = ((one.org_key, death_in(one.settlement, now)) for one in endings)
    return [(org_key, document_of(death)) for org_key, death in deaths if death is not None]


def _unblock(connection: sqlite3.Connection, endings: Iterable[_Ending], now: Instant) -> None:
    """The first of each line in which one has ended may go."""
    ordered = (one.settlement for one in endings if one.settlement.claim.ordering_key is not None)
    if ended := [one.claim.key for one in ordered if one.state is not DeliveryState.PENDING]:
        run_transaction(connection, unblock(cast(list[int], ended), now))


def _split(connection: sqlite3.Connection, settlements: Sequence[Settlement]) -> tuple[list[_Ending], list[_Late]]:
    """The settlements whose claims are still held, and those that come too late."""
    held = _held(connection, [settlement.claim for settlement in settlements])
    endings: dict[object, _Ending] = {}
    late: list[_Late] = []
    for settlement in settlements:
        key, row = settlement.claim.key, held.get(settlement.claim.key)
        if key in endings or row is None or row.token != settlement.claim.token:
            late.append(_Late(settlement, repeated=key in endings))
        else:
            endings[key] = _Ending(settlement, row.moves + 1, row.org_key)
    return list(endings.values()), late


def _log_late(connection: sqlite3.Connection, settlements: Iterable[Settlement]) -> None:
    """One by one: there are few, and each is numbered after those before it."""
    for settlement in settlements:
        claim = settlement.claim
        connection.execute(ADD_LATE_ATTEMPT, (claim.key, claim.attempt, *_attempt_columns(settlement)))


def _held(connection: sqlite3.Connection, claims: Iterable[Claim]) -> dict[object, _Held]:
    row = connection.execute(HELD, (as_list(claim.key for claim in claims),)).fetchone()
    return {key: _Held(*values) for key, *values in zip(*unpacked(_HELD, row), strict=True)}


_Alike = tuple[DeliveryState, int, str, int | None]
"""State, retries allowed, note, cause."""


def _alike(settlements: Iterable[Settlement]) -> dict[_Alike, list[object]]:
    """The keys of deliveries that get the same state and the same note: in a usual batch one or a few groups."""
    groups: dict[_Alike, list[object]] = {}
    for settlement in settlements:
        note = storable(notes.settled(settlement))
        group = (settlement.state, settlement.retries_max, note, cause_in(settlement))
        groups.setdefault(group, []).append(settlement.claim.key)
    return groups


def _attempt_row(ending: _Ending) -> tuple[object, ...]:
    settlement, move, org_key = ending
    counted = (settlement.claim.key, settlement.claim.attempt, move, 0, org_key)
    return (*counted, *_attempt_columns(settlement), settlement.due_at)


def _attempt_columns(settlement: Settlement) -> tuple[object, ...]:
    claim, outcome, reply = settlement.claim, settlement.outcome, settlement.outcome.reply
    return (
        claim.worker,
        reply.started_at,
        reply.finished_at,
        reply.timings.dns,
        reply.timings.connect,
        reply.timings.tls,
        reply.timings.first_byte,
        reply.status,
        outcome.category and outcome.category.value,
        outcome.code and storable(outcome.code),
        outcome.reason and storable(outcome.reason),
        outcome.detail and storable(outcome.detail),
        reply.request_headers,
        reply.headers,
        reply.body,
    )


# -- the status of events ----------------------------------------------------------------------------------


def _count(connection: sqlite3.Connection, settlements: Iterable[Settlement], now: Instant) -> list[StatusChange]:
    """Add to the counts of the events; events with the same sum in one statement, which is nearly always all."""
    endings = endings_of(settlements)
    alike: dict[tuple[int, int], list[object]] = {}
    for key, ending in endings.items():
        alike.setdefault((ending.dead, ending.done), []).append(key)
    for (dead, done), keys in alike.items():
        connection.execute(COUNT, (dead, done, now, as_list(keys)))
    ended = _ended(connection, endings) if endings else {}
    return [ending.change_to(ended[key]) for key, ending in endings.items() if key in ended]


def _ended(connection: sqlite3.Connection, keys: Iterable[object]) -> dict[object, str]:
    """The events among these that are delivered or failed. Before this settle none was: each had one in progress."""
    ids, statuses = unpacked(_ENDED, connection.execute(ENDED, (as_list(keys),)).fetchone())
    return dict(zip(ids, statuses, strict=True))


# -- release -----------------------------------------------------------------------------------------------


def release(connection: sqlite3.Connection, claims: Sequence[Claim], now: Instant) -> list[Claim]:
    held = _held(connection, claims)
    released = []
    lines: list[tuple[object, ...]] = []
    for claim in claims:
        row = held.get(claim.key)
        if row is None or row.token != claim.token:
            continue
        del held[claim.key]
        released.append(claim)
        line = (claim.key, row.moves + 1, row.org_key, now, "in_progress", "pending")
        lines.append((*line, claim.attempt - 1, notes.released(claim.worker)))
    connection.execute(RELEASE, (now, as_list(claim.key for claim in released)))
    write_rows(connection, ADD_RELEASED_HISTORY, lines)
    return released
