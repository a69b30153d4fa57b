"""Settle and release: write the result of a claim, or return the claim unused, in the writer's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from doorstep.clock import Instant
from doorstep.model.claim import Claim, Settled, Settlement, StatusChange
from doorstep.model.delivery import DeliveryState, check_transition
from doorstep.stores import notes
from doorstep.stores.incidents import encode_incident, settlement_cause, settlement_incident
from doorstep.stores.limits import storable
from doorstep.stores.sql.keys import SqliteKeys
from doorstep.stores.sql.queries.moves import ended_and_ordered, unblock
from doorstep.stores.sql.queries.rows import RESULT_COLUMNS as _RESULT
from doorstep.stores.sql.queries.rows import result_values
from doorstep.stores.sql.schema import NEVER
from doorstep.stores.sql.sqlite import batches
from doorstep.stores.sql.sqlite.batches import ADD_HISTORY, Column, Numbers, as_list, packed, unpacked, write_rows
from doorstep.stores.sql.sqlite.connections import run_transaction
from doorstep.stores.tally import settlement_tally, tally_by_event

_HELD: tuple[Column, ...] = (
    Numbers("id"),
    Numbers("token"),
    Numbers("moves"),
    Numbers("org_id"),
    Numbers("endpoint_id"),
)
HELD = packed(
    _HELD,
    "FROM doorstep_deliveries WHERE id IN (SELECT value FROM json_each(?)) AND state = 'in_progress'",
)
SETTLE = f"""
UPDATE doorstep_deliveries SET state = ?1, settled_at = ?2, retries_max = ?3, on_recovery = ?6,
    retry_attempts = min(iif(?7, retry_attempts, max(attempt - 2 - round_base - uncounted, 0)), ?3),
    uncounted = uncounted + NOT ?7,
    forced = 0, claimed_at = NULL, worker = NULL, moves = moves + 1, cause = ?5,
    (due_at, last_attempt_at, first_failed_at, category, code, reason, response_code) = (
        SELECT coalesce(a.next_retry_at, iif(?1 = 'pending', {NEVER}, NULL)), a.finished_at,
            coalesce(first_failed_at, CASE WHEN a.category IS NOT NULL THEN a.finished_at END),
            a.category, a.code, CASE WHEN a.category IS NOT NULL THEN a.reason END, a.response_code
        FROM doorstep_attempts a WHERE a.delivery_id = doorstep_deliveries.id AND a.number = attempt
            AND a.move = moves + 1 AND a.late = 0)
WHERE id IN (SELECT value FROM json_each(?4))
"""
"""This reads the outcome from the attempt row, which is written first. So one statement can settle many deliveries."""
ADD_SETTLED_HISTORY = """
INSERT INTO doorstep_history (delivery_id, move, org_id, at, old_state, new_state, attempt, note)
SELECT id, moves, org_id, ?, 'in_progress', state, attempt, ? FROM doorstep_deliveries
WHERE id IN (SELECT value FROM json_each(?))
"""
_ATTEMPT = f"delivery_id, number, move, late, org_id, endpoint_id, {_RESULT}"
ADD_ATTEMPTS = f"INSERT INTO doorstep_attempts ({_ATTEMPT}, next_retry_at) VALUES {{rows}}"
ADD_LATE_ATTEMPT = f"""
INSERT INTO doorstep_attempts ({_ATTEMPT})
SELECT d.id, ?2, d.moves, 1 + (SELECT coalesce(max(a.late), 0) FROM doorstep_attempts a
        WHERE a.delivery_id = ?1 AND a.number = ?2 AND a.move = d.moves),
    d.org_id, d.endpoint_id, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17
FROM doorstep_deliveries d WHERE d.id = ?1
"""
RELEASE = """
UPDATE doorstep_deliveries SET state = 'pending', due_at = ?, attempt = attempt - 1,
    retry_attempts = min(max(attempt - 2 - round_base - uncounted, 0), retries_max), claimed_at = NULL, worker = NULL,
    moves = moves + 1
WHERE id = ?
"""
UPDATE_EVENTS = """
UPDATE doorstep_events SET open_count = open_count - ?1 - ?2, dead_count = dead_count + ?1, done_count = done_count + ?2,
    status = CASE WHEN open_count > ?1 + ?2 THEN status WHEN dead_count + ?1 > 0 THEN 'failed' ELSE 'delivered' END,
    ended_at = CASE WHEN open_count = ?1 + ?2 AND dead_count + ?1 > 0 THEN ?3 END
WHERE id IN (SELECT value FROM json_each(?4))
"""
"""Applies the rule of `status_of` in model/event.py to queued events. For each of these events, `?1` deliveries became
dead and `?2` deliveries ended otherwise."""
_ENDED: tuple[Column, ...] = (Numbers("id"), Numbers("status"))
ENDED = packed(
    _ENDED,
    "FROM doorstep_events WHERE id IN (SELECT value FROM json_each(?)) AND status IN ('delivered', 'failed')",
)
ADD_INCIDENTS = "INSERT INTO doorstep_incidents (org_id, document) VALUES {rows}"


class _Held(NamedTuple):
    """The row of a delivery that is still in progress."""

    token: int
    moves: int
    org_key: int
    endpoint_key: int


class _Valid(NamedTuple):
    """A settlement whose claim is still held, with the number of its transition and the keys of its organization and
    its endpoint."""

    settlement: Settlement
    move: int
    org_key: int
    endpoint_key: int


class _Late(NamedTuple):
    """A settlement whose claim is no longer held. It only adds a row to the attempt log."""

    settlement: Settlement
    repeated: bool
    """Whether an earlier settlement in the same call settled the delivery."""


# -- settle ------------------------------------------------------------------------------------------------


def settle(
    connection: sqlite3.Connection, key_map: SqliteKeys, settlements: Sequence[Settlement], now: Instant
) -> Settled:
    for settlement in settlements:
        check_transition(DeliveryState.IN_PROGRESS, settlement.state)
    valid, late = _split(connection, settlements)
    _log_late(connection, (one.settlement for one in late if not one.repeated))
    write_rows(connection, ADD_ATTEMPTS, [_attempt_row(one) for one in valid])
    for (state, retries_max, note, cause, *flags), keys in _by_change(one.settlement for one in valid).items():
        settled_at = None if state is DeliveryState.PENDING else now
        connection.execute(SETTLE, (state.value, settled_at, retries_max, as_list(keys), cause, *flags))
        connection.execute(ADD_SETTLED_HISTORY, (now, note, as_list(keys)))
    _log_late(connection, (one.settlement for one in late if one.repeated))
    written, too_late = [one.settlement for one in valid], [one.settlement for one in late]
    changes = _update_events(connection, written, now)
    write_rows(connection, ADD_INCIDENTS, _incident_rows(valid, now))
    addresses = key_map.addresses({one.claim.endpoint_id for one in settlements})
    owners = {endpoint_id: address.owner for endpoint_id, address in addresses.items()}
    batches.add_counts(connection, settlement_tally(owners, written, too_late, changes, now), now)
    if ended := ended_and_ordered(written):
        run_transaction(connection, unblock(ended, now))
    return Settled(tuple(one.claim for one in too_late), tuple(changes))


def _incident_rows(valid: Iterable[_Valid], now: Instant) -> list[tuple[object, ...]]:
    """Rows for the incidents of new dead letters."""
    found = ((one.org_key, settlement_incident(one.settlement, now)) for one in valid)
    return [(org_key, encode_incident(incident)) for org_key, incident in found if incident is not None]


def _split(connection: sqlite3.Connection, settlements: Sequence[Settlement]) -> tuple[list[_Valid], list[_Late]]:
    """Separate the settlements whose claims are still held from the late settlements."""
    held = _held(connection, [settlement.claim for settlement in settlements])
    valid: dict[object, _Valid] = {}
    late: list[_Late] = []
    for settlement in settlements:
        key, row = settlement.claim.key, held.get(settlement.claim.key)
        if key in valid or row is None or row.token != settlement.claim.token:
            late.append(_Late(settlement, repeated=key in valid))
        else:
            valid[key] = _Valid(settlement, row.moves + 1, row.org_key, row.endpoint_key)
    return list(valid.values()), late


def _log_late(connection: sqlite3.Connection, settlements: Iterable[Settlement]) -> None:
    """Add late results to the attempt log one by one: there are few, and each is numbered after the previous one."""
    for settlement in settlements:
        claim = settlement.claim
        connection.execute(ADD_LATE_ATTEMPT, (claim.key, claim.attempt, *result_values(settlement)))


def _held(connection: sqlite3.Connection, claims: Iterable[Claim]) -> dict[object, _Held]:
    row = connection.execute(HELD, (as_list(claim.key for claim in claims),)).fetchone()
    return {key: _Held(*values) for key, *values in zip(*unpacked(_HELD, row), strict=True)}


_Change = tuple[DeliveryState, int, str, int | None, bool, bool]
"""The new state, the number of retries allowed, the history note, the cause, whether the delivery waits for a recovery,
and whether the attempt counts."""


def _by_change(settlements: Iterable[Settlement]) -> dict[_Change, list[object]]:
    """The keys of deliveries, grouped by the change to write. A typical batch has one or a few groups."""
    groups: dict[_Change, list[object]] = {}
    for settlement in settlements:
        note = storable(notes.settled(settlement))
        group = (settlement.state, settlement.retries_max, note, settlement_cause(settlement))
        flags = (settlement.on_recovery, settlement.counted)
        groups.setdefault((*group, *flags), []).append(settlement.claim.key)
    return groups


def _attempt_row(one: _Valid) -> tuple[object, ...]:
    settlement, move, org_key, endpoint_key = one
    counted = (settlement.claim.key, settlement.claim.attempt, move, 0, org_key, endpoint_key)
    return (*counted, *result_values(settlement), settlement.due_at)


# -- the status of events ----------------------------------------------------------------------------------


def _update_events(
    connection: sqlite3.Connection, settlements: Iterable[Settlement], now: Instant
) -> list[StatusChange]:
    """Update the counts of the events. Events whose counts change in the same way share a statement; usually one
    statement is enough."""
    tallies = tally_by_event(settlements)
    by_counts: dict[tuple[int, int], list[object]] = {}
    for key, tally in tallies.items():
        by_counts.setdefault((tally.dead, tally.done), []).append(key)
    for (dead, done), keys in by_counts.items():
        connection.execute(UPDATE_EVENTS, (dead, done, now, as_list(keys)))
    if not tallies:
        return []
    # None of these events had ended before, because each still had a delivery in progress.
    event_keys, statuses = unpacked(_ENDED, connection.execute(ENDED, (as_list(tallies),)).fetchone())
    ended = dict(zip(event_keys, statuses, strict=True))
    return [tally.change_to(ended[key]) for key, tally in tallies.items() if key in ended]


# -- release -----------------------------------------------------------------------------------------------


def release(connection: sqlite3.Connection, claims: Sequence[Claim], now: Instant) -> list[Claim]:
    held = _held(connection, claims)
    released = []
    rows: list[tuple[object, ...]] = []
    for claim in claims:
        row = held.get(claim.key)
        if row is None or row.token != claim.token:
            continue
        del held[claim.key]
        released.append(claim)
        start = (claim.key, row.moves + 1, row.org_key, now, "in_progress", "pending")
        rows.append((*start, claim.attempt - 1, notes.released(claim.worker)))
    connection.executemany(RELEASE, [(max(now, claim.was_due_at or 0), claim.key) for claim in released])
    write_rows(connection, ADD_HISTORY, rows)
    return released
