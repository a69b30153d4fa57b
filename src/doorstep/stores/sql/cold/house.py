"""Keeping house: old dead letters are archived, old settled rows are removed, in small batches."""

from __future__ import annotations

from sqlalchemy import BindParameter, bindparam, delete, func, literal_column, select, text

from doorstep.clock import DAY, Instant
from doorstep.model.delivery import DeliveryState
from doorstep.model.move import Moved
from doorstep.stores import notes
from doorstep.stores.sql.cold.moves import MOVED, MOVER, Effect, Mover, move, parts
from doorstep.stores.sql.cold.script import Script, ask, each
from doorstep.stores.sql.schema import (
    ACKNOWLEDGED,
    FINISHED,
    attempts,
    deliveries,
    events,
    history,
    idempotency,
    payloads,
)
from doorstep.stores.store import Cleaned

_KEYS: BindParameter[list[int]] = bindparam("keys", expanding=True)
_D = deliveries.c

# -- archiving ---------------------------------------------------------------------------------------------

_ARCHIVE = Effect(MOVED.values(state=DeliveryState.ARCHIVED.value), DeliveryState.ARCHIVED)
_ARCHIVABLE = (
    MOVER.where(
        _D.state
        == literal_column("'dead'"),  # as in UNTOUCHED; a parameter would keep its partial index from being used
        _D.deleted_at.is_(None),
        _D.settled_at < bindparam("before"),
    )
    .order_by(_D.settled_at, _D.id)
    .limit(bindparam("most"))
    .with_for_update(of=deliveries, skip_locked=True)
)


def archive(dead_before: Instant, now: Instant, limit: int) -> Script[Moved]:
    """Events need no new status: dead and archived count alike."""
    rows = yield ask(_ARCHIVABLE, before=dead_before, most=limit)
    movers = [Mover.of(row) for row in rows]
    yield from move(movers, _ARCHIVE, now, notes.ARCHIVED)
    return Moved(tuple(mover.to(DeliveryState.ARCHIVED) for mover in movers))


# -- cleaning ----------------------------------------------------------------------------------------------

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
_REMOVE_EMPTY_EVENTS = (
    delete(events)
    .where(events.c.id.in_(_KEYS), ~select(_D.id).where(_D.event_id == events.c.id).exists())
    .returning(events.c.id)
)
_ACKNOWLEDGED_BEFORE = (
    select(events.c.id)
    .where(text(ACKNOWLEDGED), events.c.ended_at < bindparam("before"))
    .order_by(events.c.ended_at, events.c.id)
    .limit(bindparam("most"))
)
_REMOVE_EVENTS = delete(events).where(events.c.id.in_(_KEYS))
_REMOVE_PAYLOADS = delete(payloads).where(payloads.c.event_id.in_(_KEYS))
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


def clean(settled_before: Instant, now: Instant, limit: int) -> Script[Cleaned]:
    removed = yield from _remove_deliveries(settled_before, limit)
    acknowledged = yield from _remove_acknowledged(settled_before, limit)
    expired = yield from _remove_expired_keys(now - DAY, limit)
    return Cleaned(removed.deliveries, removed.attempts, removed.events + acknowledged, expired)


def _remove_deliveries(settled_before: Instant, limit: int) -> Script[Cleaned]:
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
        event_count += len(removed)
    return Cleaned(len(rows), attempt_count, event_count)


def _remove_acknowledged(settled_before: Instant, limit: int) -> Script[int]:
    rows = yield ask(_ACKNOWLEDGED_BEFORE, before=settled_before, most=limit)
    for part in parts([row[0] for row in rows]):
        yield ask(_REMOVE_EVENTS, keys=part)
        yield ask(_REMOVE_PAYLOADS, keys=part)
    return len(rows)


def _remove_expired_keys(created_before: Instant, limit: int) -> Script[int]:
    rows = yield ask(_EXPIRED_KEYS, before=created_before, most=limit)
    yield each(_REMOVE_KEY, [{"org_key": org, "key": key, "before": created_before} for org, key in rows])
    return len(rows)
