"""Retention: expiring, archiving and removing, oldest first, in small batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import BindParameter, Select, bindparam, delete, func, literal_column, select, text

from doorstep.clock import DAY, Instant
from doorstep.model.claim import Moved
from doorstep.model.delivery import DeliveryState
from doorstep.model.event import EventStatus
from doorstep.stores import notes
from doorstep.stores.limits import fitting
from doorstep.stores.sql.queries.actions import dead_letter_all
from doorstep.stores.sql.queries.aggregation import tick
from doorstep.stores.sql.queries.moves import MOVED, MOVER, Effect, Mover, move, parts
from doorstep.stores.sql.queries.ordering import turns_of
from doorstep.stores.sql.queries.transaction import Row, Transaction, execute, execute_each, execute_on_postgres
from doorstep.stores.sql.schema import (
    ACKNOWLEDGED,
    EXPIRING,
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

_KEYS: BindParameter[list[int]] = bindparam("keys", expanding=True)
_D, _H, _I = deliveries.c, circuit_history.c, bulk_items.c


def clean(
    settled_before: Instant, inbox_before: Instant, audit_before: Instant, now: Instant, limit: int
) -> Transaction[Cleaned]:
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


def _remove_deliveries(settled_before: Instant, now: Instant, limit: int) -> Transaction[Cleaned]:
    rows = yield execute(_REMOVABLE, before=settled_before, most=limit)
    event_keys = sorted({row[1] for row in rows})
    attempt_count = event_count = 0
    # Locked before their deliveries go: two cleaners at once would each see the other's and leave the event behind.
    for part in parts(event_keys):
        yield execute(_LOCK_EVENTS, keys=part)
    for part in parts([row[0] for row in rows]):
        attempt_count += (yield execute(_COUNT_ATTEMPTS, keys=part))[0][0]
        yield execute(_REMOVE_ATTEMPTS, keys=part)
        yield execute(_REMOVE_HISTORY, keys=part)
        yield execute(_REMOVE_DELIVERIES, keys=part)
    for part in parts(event_keys):
        removed = yield execute(_REMOVE_EMPTY_EVENTS, keys=part)
        yield execute(_REMOVE_PAYLOADS, keys=[row[0] for row in removed])
        yield from _count_leaving(removed, now)
        event_count += len(removed)
    return Cleaned(len(rows), attempt_count, event_count)


def _count_leaving(removed: Iterable[Row], now: Instant) -> Transaction[None]:
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


def _remove_events(chosen: Select[tuple[int]], before: Instant, now: Instant, limit: int) -> Transaction[int]:
    """Those of the inbox, which have no deliveries."""
    rows = yield execute(chosen, before=before, most=limit)
    for part in parts([row[0] for row in rows]):
        removed = yield execute(_REMOVE_EVENTS, keys=part)
        yield execute(_REMOVE_PAYLOADS, keys=part)
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


def _remove_expired_keys(created_before: Instant, limit: int) -> Transaction[int]:
    rows = yield execute(_EXPIRED_KEYS, before=created_before, most=limit)
    yield execute_each(_REMOVE_KEY, [{"org_key": org, "key": key, "before": created_before} for org, key in rows])
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


def _remove_bulks(before: Instant, limit: int) -> Transaction[Cleaned]:
    """An operation may remember a million deliveries: it goes when the last of them has gone."""
    chosen = [row[0] for row in (yield execute(_BULKS_BEFORE, before=before, most=limit))]
    items: list[Row] = []
    removed = 0
    for part in parts(chosen):
        items += yield execute(_ITEMS_OF, keys=part, most=limit - len(items))
    yield execute_each(_REMOVE_ITEM, [{"bulk_key": bulk, "delivery_key": delivery} for bulk, delivery in items])
    for part in parts(chosen):
        removed += len((yield execute(_REMOVE_EMPTY_BULKS, keys=part)))
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


def _remove_circuit_changes(before: Instant, limit: int) -> Transaction[int]:
    rows = yield execute(_CHANGES_BEFORE, before=before, most=limit)
    yield execute_each(_REMOVE_CHANGE, [{"endpoint_key": endpoint, "change": version} for endpoint, version in rows])
    return len(rows)


def _remove_audit_lines(before: Instant, limit: int) -> Transaction[int]:
    rows = yield execute(_LINES_BEFORE, before=before, most=limit)
    chosen = [row[0] for row in rows[: fitting((row[1] for row in rows), _SUBJECT_CHARACTERS_MAX)]]
    for part in parts(chosen):
        yield execute(_REMOVE_SUBJECTS, keys=part)
        yield execute(_REMOVE_LINES, keys=part)
    return len(chosen)


_WAITING_DELIVERY = deliveries.c

# -- archiving ---------------------------------------------------------------------------------------------

_ARCHIVE = Effect(MOVED.values(state=DeliveryState.ARCHIVED.value), DeliveryState.ARCHIVED)
_ARCHIVABLE = (
    MOVER.where(
        # The words of UNTOUCHED: parameters would keep its partial index from being used.
        _WAITING_DELIVERY.state == literal_column("'dead'"),
        _WAITING_DELIVERY.deleted_at.is_(None),
        _WAITING_DELIVERY.org_id > literal_column("0"),
        _WAITING_DELIVERY.settled_at < bindparam("before"),
    )
    .order_by(_WAITING_DELIVERY.settled_at, _WAITING_DELIVERY.id)
    .limit(bindparam("most"))
    .with_for_update(of=deliveries, skip_locked=True)
)


def archive(dead_before: Instant, now: Instant, limit: int) -> Transaction[Moved]:
    """Events need no new status: dead and archived count alike."""
    rows = yield execute(_ARCHIVABLE, before=dead_before, most=limit)
    movers = [Mover.of(row) for row in rows]
    yield from move(movers, _ARCHIVE, now, notes.ARCHIVED)
    return Moved(tuple(mover.to(DeliveryState.ARCHIVED) for mover in movers))


# -- expiring ----------------------------------------------------------------------------------------------

_WAITS = (
    select(_WAITING_DELIVERY.id)
    .where(_WAITING_DELIVERY.event_id == events.c.id, _WAITING_DELIVERY.state == literal_column("'pending'"))
    .exists()
)
_EXPIRED = (
    select(events.c.id)
    .where(
        text(EXPIRING),
        events.c.expires_at > bindparam("since"),
        events.c.expires_at <= bindparam("now"),
        events.c.open_count > 0,  # spares a look at the deliveries of all that are settled
        _WAITS,
    )
    .order_by(events.c.expires_at, events.c.id)
    .limit(bindparam("most"))
)
_WAITING = MOVER.where(_WAITING_DELIVERY.event_id.in_(_KEYS), _WAITING_DELIVERY.state == literal_column("'pending'"))
_THEIR_TURNS = turns_of(select(deliveries).where(_WAITING_DELIVERY.event_id.in_(_KEYS)))
"""Of all their deliveries: one that is in progress now may wait again by the time the waiting ones are locked."""
_LOCK_WAITING = _WAITING.order_by(_WAITING_DELIVERY.id).with_for_update(of=deliveries)


def expired_events(since: Instant, now: Instant, limit: int) -> Transaction[list[int]]:
    rows = yield execute(_EXPIRED, since=since, now=now, most=limit)
    return [row[0] for row in rows]


def expire(event_keys: Sequence[int], code: str, reason: str, now: Instant) -> Transaction[Moved]:
    """An event's expiry never changes, so what was found may be acted on later; only the states are read again."""
    movers: list[Mover] = []
    yield execute_on_postgres(_THEIR_TURNS, keys=event_keys)
    for part in parts(event_keys):
        movers += [Mover.of(row) for row in (yield execute(_LOCK_WAITING, keys=part))]
    return (yield from dead_letter_all(movers, code, reason, now))
