"""Cleaning: what has been kept long enough is removed, oldest first, in small batches."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import BindParameter, Select, bindparam, delete, func, select, text

from doorstep.clock import DAY, Instant
from doorstep.model.event import EventStatus
from doorstep.stores.sql.cold.moves import parts
from doorstep.stores.sql.cold.script import Row, Script, ask, each
from doorstep.stores.sql.cold.ticks import tick
from doorstep.stores.sql.schema import (
    ACKNOWLEDGED,
    FINISHED,
    UNACKNOWLEDGED,
    attempts,
    audit,
    audit_subjects,
    bulk_items,
    bulks,
    circuit_history,
    deliveries,
    events,
    history,
    idempotency,
    payloads,
)
from doorstep.stores.store import Cleaned
from doorstep.stores.tally import Tally
from doorstep.stores.weight import fitting

_KEYS: BindParameter[list[int]] = bindparam("keys", expanding=True)
_D, _H, _I = deliveries.c, circuit_history.c, bulk_items.c


def clean(
    settled_before: Instant, inbox_before: Instant, audit_before: Instant, now: Instant, limit: int
) -> Script[Cleaned]:
    removed = yield from _remove_deliveries(settled_before, now, limit)
    acknowledged = yield from _remove_events(_ACKNOWLEDGED_BEFORE, settled_before, now, limit)
    ended = yield from _remove_bulks(settled_before, limit)
    return Cleaned(
        deliveries=removed.deliveries,
        attempts=removed.attempts,
        events=removed.events + acknowledged,
        idempotency_keys=(yield from _remove_expired_keys(now - DAY, limit)),
        inbox_events=(yield from _remove_events(_UNACKNOWLEDGED_BEFORE, inbox_before, now, limit)),
        circuit_changes=(yield from _remove_circuit_changes(settled_before, limit)),
        audit_lines=(yield from _remove_audit_lines(audit_before, limit)),
        bulk_items=ended.bulk_items,
        bulks=ended.bulks,
    )


# -- deliveries, and the events of which nothing is left -------------------------------------------------

_REMOVABLE = (
    select(_D.id, _D.event_id)
    .where(text(FINISHED), _D.settled_at < bindparam("before"))
    .order_by(_D.settled_at, _D.id)
    .limit(bindparam("most"))
    .with_for_update(skip_locked=True)
)
_LOCK_EVENTS = select(events.c.id).where(events.c.id.in_(_KEYS)).order_by(events.c.id).with_for_update()
_COUNT_ATTEMPTS = select(func.count()).where(attempts.c.delivery_id.in_(_KEYS))
_REMOVE_ATTEMPTS = delete(attempts).where(attempts.c.delivery_id.in_(_KEYS))
_REMOVE_HISTORY = delete(history).where(history.c.delivery_id.in_(_KEYS))
_REMOVE_DELIVERIES = delete(deliveries).where(_D.id.in_(_KEYS))
_LEAVING = (events.c.id, events.c.org_id, events.c.status, events.c.deleted_at)
_REMOVE_EMPTY_EVENTS = (
    delete(events)
    .where(events.c.id.in_(_KEYS), ~select(_D.id).where(_D.event_id == events.c.id).exists())
    .returning(*_LEAVING)
)
_REMOVE_PAYLOADS = delete(payloads).where(payloads.c.event_id.in_(_KEYS))


def _remove_deliveries(settled_before: Instant, now: Instant, limit: int) -> Script[Cleaned]:
    rows = yield ask(_REMOVABLE, before=settled_before, most=limit)
    event_keys = sorted({row[1] for row in rows})
    attempt_count = event_count = 0
    # Locked before their deliveries go: two cleaners at once would each see the other's and leave the event behind.
    for part in parts(event_keys):
        yield ask(_LOCK_EVENTS, keys=part)
    for part in parts([row[0] for row in rows]):
        attempt_count += (yield ask(_COUNT_ATTEMPTS, keys=part))[0][0]
        yield ask(_REMOVE_ATTEMPTS, keys=part)
        yield ask(_REMOVE_HISTORY, keys=part)
        yield ask(_REMOVE_DELIVERIES, keys=part)
    for part in parts(event_keys):
        removed = yield ask(_REMOVE_EMPTY_EVENTS, keys=part)
        yield ask(_REMOVE_PAYLOADS, keys=[row[0] for row in removed])
        yield from _count_leaving(removed, now)
        event_count += len(removed)
    return Cleaned(len(rows), attempt_count, event_count)


def _count_leaving(removed: Iterable[Row], now: Instant) -> Script[None]:
    """Those that were deleted have left already."""
    tally = Tally()
    for _, org, status, deleted_at in removed:
        if deleted_at is None:
            tally.status(org, EventStatus(status), None)
    yield from tick(tally, now)


# -- events of the inbox ---------------------------------------------------------------------------------

_ACKNOWLEDGED_BEFORE = (
    select(events.c.id)
    .where(text(ACKNOWLEDGED), events.c.ended_at < bindparam("before"))
    .order_by(events.c.ended_at, events.c.id)
    .limit(bindparam("most"))
)
_UNACKNOWLEDGED_BEFORE = (
    select(events.c.id)
    .where(text(UNACKNOWLEDGED), events.c.created_at < bindparam("before"))
    .order_by(events.c.created_at, events.c.id)
    .limit(bindparam("most"))
    .with_for_update(skip_locked=True)  # one that is being acknowledged just now stays
)
_REMOVE_EVENTS = delete(events).where(events.c.id.in_(_KEYS)).returning(*_LEAVING)


def _remove_events(chosen: Select[tuple[int]], before: Instant, now: Instant, limit: int) -> Script[int]:
    """Those of the inbox, which have no deliveries."""
    rows = yield ask(chosen, before=before, most=limit)
    for part in parts([row[0] for row in rows]):
        removed = yield ask(_REMOVE_EVENTS, keys=part)
        yield ask(_REMOVE_PAYLOADS, keys=part)
        yield from _count_leaving(removed, now)
    return len(rows)


# -- idempotency keys ------------------------------------------------------------------------------------

_EXPIRED_KEYS = (
    select(idempotency.c.org_id, idempotency.c.key)
    .where(idempotency.c.created_at <= bindparam("before"))
    .limit(bindparam("most"))
)
_REMOVE_KEY = delete(idempotency).where(
    idempotency.c.org_id == bindparam("org_key"),
    idempotency.c.key == bindparam("key"),
    idempotency.c.created_at <= bindparam("before"),
)


def _remove_expired_keys(created_before: Instant, limit: int) -> Script[int]:
    rows = yield ask(_EXPIRED_KEYS, before=created_before, most=limit)
    yield each(_REMOVE_KEY, [{"org_key": org, "key": key, "before": created_before} for org, key in rows])
    return len(rows)


# -- bulk operations -------------------------------------------------------------------------------------

_BULKS_BEFORE = (
    select(bulks.c.id)
    .where(bulks.c.finished_at < bindparam("before"))
    .order_by(bulks.c.finished_at, bulks.c.id)
    .limit(bindparam("most"))
    .with_for_update(skip_locked=True)
)
_ITEMS_OF = (
    select(_I.bulk_id, _I.delivery_id)
    .where(_I.bulk_id.in_(_KEYS))
    .order_by(_I.bulk_id, _I.delivery_id)
    .limit(bindparam("most"))
)
_REMOVE_ITEM = delete(bulk_items).where(
    _I.bulk_id == bindparam("bulk_key"), _I.delivery_id == bindparam("delivery_key")
)
_REMOVE_EMPTY_BULKS = (
    delete(bulks)
    .where(bulks.c.id.in_(_KEYS), ~select(_I.bulk_id).where(_I.bulk_id == bulks.c.id).exists())
    .returning(bulks.c.id)
)


def _remove_bulks(before: Instant, limit: int) -> Script[Cleaned]:
    """An operation may remember a million deliveries: it goes when the last of them has gone."""
    chosen = [row[0] for row in (yield ask(_BULKS_BEFORE, before=before, most=limit))]
    items: list[Row] = []
    removed = 0
    for part in parts(chosen):
        items += yield ask(_ITEMS_OF, keys=part, most=limit - len(items))
    yield each(_REMOVE_ITEM, [{"bulk_key": bulk, "delivery_key": delivery} for bulk, delivery in items])
    for part in parts(chosen):
        removed += len((yield ask(_REMOVE_EMPTY_BULKS, keys=part)))
    return Cleaned(bulk_items=len(items), bulks=removed)


# -- logs ------------------------------------------------------------------------------------------------

_LATER = circuit_history.alias()
_CHANGES_BEFORE = (
    select(_H.endpoint_id, _H.version)
    .where(
        _H.at < bindparam("before"),
        select(_LATER.c.version).where(_LATER.c.endpoint_id == _H.endpoint_id, _LATER.c.version > _H.version).exists(),
    )
    .order_by(_H.at, _H.endpoint_id, _H.version)
    .limit(bindparam("most"))
)
_REMOVE_CHANGE = delete(circuit_history).where(
    _H.endpoint_id == bindparam("endpoint_key"), _H.version == bindparam("change")
)
_LINES_BEFORE = (
    select(audit.c.id, func.length(audit.c.subjects))
    .where(audit.c.at < bindparam("before"))
    .order_by(audit.c.at, audit.c.id)
    .limit(bindparam("most"))
)
_REMOVE_SUBJECTS = delete(audit_subjects).where(audit_subjects.c.audit_id.in_(_KEYS))
_REMOVE_LINES = delete(audit).where(audit.c.id.in_(_KEYS))
_SUBJECT_CHARACTERS_MAX = 400_000
"""How much the lines of one round say of their subjects: some 10,000 ids, each of which is a row to be removed. Most lines
have one; one about a thousand deliveries is written at once, and so is removed at once."""


def _remove_circuit_changes(before: Instant, limit: int) -> Script[int]:
    rows = yield ask(_CHANGES_BEFORE, before=before, most=limit)
    yield each(_REMOVE_CHANGE, [{"endpoint_key": endpoint, "change": version} for endpoint, version in rows])
    return len(rows)


def _remove_audit_lines(before: Instant, limit: int) -> Script[int]:
    rows = yield ask(_LINES_BEFORE, before=before, most=limit)
    chosen = [row[0] for row in rows[: fitting((row[1] for row in rows), _SUBJECT_CHARACTERS_MAX)]]
    for part in parts(chosen):
        yield ask(_REMOVE_SUBJECTS, keys=part)
        yield ask(_REMOVE_LINES, keys=part)
    return len(chosen)
