"""Retention: expires, archives and removes records, oldest first, in small batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Column, Select, bindparam, delete, func, literal_column, select, text
from sqlalchemy.sql.base import Executable

from doorstep.clock import DAY, Instant
from doorstep.model.claim import Moved
from doorstep.model.delivery import DeliveryState
from doorstep.model.event import EventStatus
from doorstep.stores import notes
from doorstep.stores.limits import count_within
from doorstep.stores.sql.queries.actions import dead_letter_all
from doorstep.stores.sql.queries.figures import add_counters
from doorstep.stores.sql.queries.moves import MOVED, MOVER, Effect, Mover, move, ordering_locks
from doorstep.stores.sql.queries.transaction import (
    KEYS,
    LIMIT,
    Row,
    Transaction,
    execute,
    execute_each,
    execute_in_parts,
    execute_on_postgres,
    parts,
)
from doorstep.stores.sql.schema import (
    ACKNOWLEDGED,
    ARCHIVED,
    EXPIRING,
    FINISHED,
    STALE,
    UNACKNOWLEDGED,
    alert_configs,
    alerts,
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
    search_values,
    workers,
)
from doorstep.stores.store import Cleaned, Retention
from doorstep.stores.tally import Tally

_D, _H, _I = deliveries.c, circuit_history.c, bulk_items.c


def _oldest(at: Column[Any], *key: Column[Any]) -> Select[*tuple[Any, ...]]:
    """The keys of the rows whose `at` is before a given instant, up to `limit`, oldest first."""
    return select(*key).where(at < bindparam("before")).order_by(at, *key).limit(LIMIT)


def clean(retention: Retention, now: Instant, limit: int) -> Transaction[Cleaned]:
    removed = Counter[str]()
    if retention.settled_before:
        removed.update((yield from _remove_settled(retention.settled_before, now, limit)))
    if retention.dead_before:
        removed.update((yield from _remove_dead_letters(retention.dead_before, now, limit)))
    removed["idempotency_keys"] = yield from _remove_expired_keys(now - DAY, limit)
    if retention.inbox_before:
        removed["inbox_events"] = yield from _remove_events(_UNACKNOWLEDGED_BEFORE, retention.inbox_before, now, limit)
    if retention.audit_before:
        removed["audit_entries"] = yield from _remove_audit_entries(retention.audit_before, limit)
    if retention.alerts_before or retention.silences_before:
        ended = yield from _remove(_ENDED_ALERTS, _REMOVE_ALERTS, retention.alerts_before, limit)
        silences = yield from _remove(_ENDED_SILENCES, _REMOVE_SILENCES, retention.silences_before, limit)
        removed["alerts"] = ended + silences
    if retention.workers_before:
        removed["workers"] = yield from _remove(_UNSEEN_WORKERS, _REMOVE_WORKERS, retention.workers_before, limit)
    return Cleaned(**removed)


def _remove_settled(before: Instant, now: Instant, limit: int) -> Transaction[dict[str, int]]:
    rows = yield execute(_REMOVABLE, before=before, limit=limit)
    removed = {"deliveries": len(rows)} | (yield from _remove_deliveries(rows, now))
    removed["events"] += yield from _remove_events(_ACKNOWLEDGED_BEFORE, before, now, limit)
    removed |= yield from _remove_bulks(before, limit)
    removed["circuit_changes"] = yield from _remove_circuit_changes(before, limit)
    return removed


# -- alerts, silences and workers --------------------------------------------------------------------------

_ENDED_ALERTS = _oldest(alerts.c.ended_at, alerts.c.id).where(
    alerts.c.ended_at.is_not(None), alerts.c.review_at.is_(None)
)
_REMOVE_ALERTS = delete(alerts).where(alerts.c.id.in_(KEYS))
_ENDED_SILENCES = _oldest(alert_configs.c.ends_at, alert_configs.c.id).where(alert_configs.c.ends_at.is_not(None))
_REMOVE_SILENCES = delete(alert_configs).where(alert_configs.c.id.in_(KEYS))
_UNSEEN_WORKERS = _oldest(workers.c.seen_at, workers.c.name)
_REMOVE_WORKERS = delete(workers).where(workers.c.name.in_(bindparam("keys", expanding=True)))


def _remove(chosen: Executable, remove: Executable, before: Instant, limit: int) -> Transaction[int]:
    rows = yield execute(chosen, before=before, limit=limit)
    yield from execute_in_parts(remove, "keys", [row[0] for row in rows])
    return len(rows)


# -- deliveries, and events without deliveries -------------------------------------------------------------

_REMOVABLE = (
    _oldest(_D.settled_at, _D.id).add_columns(_D.event_id).where(text(FINISHED)).with_for_update(skip_locked=True)
)
_DEAD_BEFORE = tuple(
    _oldest(_D.settled_at, _D.id)
    .add_columns(_D.event_id, _D.org_id, _D.endpoint_id, _D.state)
    .where(text(condition))
    .with_for_update(skip_locked=True)  # keeps a dead letter that somebody acts on at this moment
    for condition in (ARCHIVED, STALE)
)
_LOCK_EVENTS = select(events.c.id).where(events.c.id.in_(KEYS)).order_by(events.c.id).with_for_update()
_COUNT_ATTEMPTS = select(func.count()).where(attempts.c.delivery_id.in_(KEYS))
_REMOVE_ATTEMPTS = delete(attempts).where(attempts.c.delivery_id.in_(KEYS))
_REMOVE_HISTORY = delete(history).where(history.c.delivery_id.in_(KEYS))
_REMOVE_DELIVERIES = delete(deliveries).where(_D.id.in_(KEYS))
_REMOVED_EVENT = (events.c.id, events.c.org_id, events.c.status, events.c.deleted_at)
_REMOVE_EMPTY_EVENTS = (
    delete(events)
    .where(events.c.id.in_(KEYS), ~select(_D.id).where(_D.event_id == events.c.id).exists())
    .returning(*_REMOVED_EVENT)
)
_REMOVE_CONTENT = tuple(delete(table).where(table.c.event_id.in_(KEYS)) for table in (payloads, search_values))


def _remove_dead_letters(before: Instant, now: Instant, limit: int) -> Transaction[dict[str, int]]:
    rows: list[Row] = []
    for chosen in _DEAD_BEFORE:
        rows += yield execute(chosen, before=before, limit=limit - len(rows))
    tally = Tally()
    for _, __, org, endpoint, state in rows:
        tally.moved((org, endpoint), DeliveryState(state), None)
    yield from add_counters(tally, now)
    return {"dead_letters": len(rows)} | (yield from _remove_deliveries(rows, now))


def _remove_deliveries(rows: Sequence[Row], now: Instant) -> Transaction[dict[str, int]]:
    """Remove deliveries, given by their keys and those of their events, with their attempts and history."""
    keys, event_keys = [row[0] for row in rows], sorted({row[1] for row in rows})
    # Events are locked before their deliveries are removed. Otherwise, if two cleaners each removed some deliveries of
    # an event, each would still see the other's deliveries, and neither would remove the event.
    yield from execute_in_parts(_LOCK_EVENTS, "keys", event_keys)
    attempt_counts = yield from execute_in_parts(_COUNT_ATTEMPTS, "keys", keys)
    for statement in (_REMOVE_ATTEMPTS, _REMOVE_HISTORY, _REMOVE_DELIVERIES):
        yield from execute_in_parts(statement, "keys", keys)
    removed = yield from execute_in_parts(_REMOVE_EMPTY_EVENTS, "keys", event_keys)
    yield from _remove_content([row[0] for row in removed])
    yield from _count_removed(removed, now)
    return {"attempts": sum(row[0] for row in attempt_counts), "events": len(removed)}


def _remove_content(event_keys: Sequence[int]) -> Transaction[None]:
    for statement in _REMOVE_CONTENT:
        yield from execute_in_parts(statement, "keys", event_keys)


def _count_removed(removed: Iterable[Row], now: Instant) -> Transaction[None]:
    """Subtract removed events from the counters, except for deleted events, which were already subtracted on
    deletion."""
    tally = Tally()
    for _, org, status, deleted_at in removed:
        if deleted_at is None:
            tally.status(org, EventStatus(status), None)
    yield from add_counters(tally, now)


# -- events of the inbox ---------------------------------------------------------------------------------

_ACKNOWLEDGED_BEFORE = _oldest(events.c.ended_at, events.c.id).where(text(ACKNOWLEDGED))
_UNACKNOWLEDGED_BEFORE = (
    _oldest(events.c.created_at, events.c.id)
    .where(text(UNACKNOWLEDGED))
    .with_for_update(skip_locked=True)  # keeps an event that is being acknowledged at this moment
)
_REMOVE_EVENTS = delete(events).where(events.c.id.in_(KEYS)).returning(*_REMOVED_EVENT)


def _remove_events(chosen: Select[tuple[int]], before: Instant, now: Instant, limit: int) -> Transaction[int]:
    """Remove inbox events, which have no deliveries."""
    keys = [row[0] for row in (yield execute(chosen, before=before, limit=limit))]
    removed = yield from execute_in_parts(_REMOVE_EVENTS, "keys", keys)
    yield from _remove_content(keys)
    yield from _count_removed(removed, now)
    return len(keys)


# -- idempotency keys ------------------------------------------------------------------------------------

_EXPIRED_KEYS = (
    select(idempotency.c.org_id, idempotency.c.key).where(idempotency.c.created_at <= bindparam("before")).limit(LIMIT)
)
_REMOVE_KEY = delete(idempotency).where(
    idempotency.c.org_id == bindparam("org_key"),
    idempotency.c.key == bindparam("key"),
    idempotency.c.created_at <= bindparam("before"),
)


def _remove_expired_keys(created_before: Instant, limit: int) -> Transaction[int]:
    rows = yield execute(_EXPIRED_KEYS, before=created_before, limit=limit)
    yield execute_each(_REMOVE_KEY, [{"org_key": org, "key": key, "before": created_before} for org, key in rows])
    return len(rows)


# -- bulk operations -------------------------------------------------------------------------------------

_BULKS_BEFORE = _oldest(bulks.c.finished_at, bulks.c.id).with_for_update(skip_locked=True)
_ITEMS_OF = (
    select(_I.bulk_id, _I.delivery_id).where(_I.bulk_id.in_(KEYS)).order_by(_I.bulk_id, _I.delivery_id).limit(LIMIT)
)
_REMOVE_ITEM = delete(bulk_items).where(
    _I.bulk_id == bindparam("bulk_key"), _I.delivery_id == bindparam("delivery_key")
)
_REMOVE_EMPTY_BULKS = (
    delete(bulks)
    .where(bulks.c.id.in_(KEYS), ~select(_I.bulk_id).where(_I.bulk_id == bulks.c.id).exists())
    .returning(bulks.c.id)
)


def _remove_bulks(before: Instant, limit: int) -> Transaction[dict[str, int]]:
    """Remove bulk operations. An operation may have a million items, so its items are removed first, in batches. The
    operation itself is removed together with its last items."""
    chosen = [row[0] for row in (yield execute(_BULKS_BEFORE, before=before, limit=limit))]
    items: list[Row] = []
    for part in parts(chosen):
        items += yield execute(_ITEMS_OF, keys=part, limit=limit - len(items))
    yield execute_each(_REMOVE_ITEM, [{"bulk_key": bulk, "delivery_key": delivery} for bulk, delivery in items])
    removed = yield from execute_in_parts(_REMOVE_EMPTY_BULKS, "keys", chosen)
    return {"bulk_items": len(items), "bulks": len(removed)}


# -- logs ------------------------------------------------------------------------------------------------

_LATER = circuit_history.alias()
_CHANGES_BEFORE = _oldest(_H.at, _H.endpoint_id, _H.version).where(
    select(_LATER.c.version).where(_LATER.c.endpoint_id == _H.endpoint_id, _LATER.c.version > _H.version).exists()
)
_REMOVE_CHANGE = delete(circuit_history).where(
    _H.endpoint_id == bindparam("endpoint_key"), _H.version == bindparam("change")
)
_ENTRIES_BEFORE = _oldest(audit.c.at, audit.c.id).add_columns(func.length(audit.c.subjects))
_REMOVE_SUBJECTS = delete(audit_subjects).where(audit_subjects.c.audit_id.in_(KEYS))
_REMOVE_ENTRIES = delete(audit).where(audit.c.id.in_(KEYS))
_SUBJECT_CHARACTERS_MAX = 400_000
"""A batch of audit entries ends when their subjects have this many characters in total. That corresponds to about
10,000 ids, each of which is a row to remove. Most entries have one id, but an entry may have a thousand. An entry is
always removed as a whole."""


def _remove_circuit_changes(before: Instant, limit: int) -> Transaction[int]:
    rows = yield execute(_CHANGES_BEFORE, before=before, limit=limit)
    yield execute_each(_REMOVE_CHANGE, [{"endpoint_key": endpoint, "change": version} for endpoint, version in rows])
    return len(rows)


def _remove_audit_entries(before: Instant, limit: int) -> Transaction[int]:
    rows = yield execute(_ENTRIES_BEFORE, before=before, limit=limit)
    chosen = [row[0] for row in rows[: count_within((row[1] for row in rows), _SUBJECT_CHARACTERS_MAX)]]
    yield from execute_in_parts(_REMOVE_SUBJECTS, "keys", chosen)
    yield from execute_in_parts(_REMOVE_ENTRIES, "keys", chosen)
    return len(chosen)


# -- archiving ---------------------------------------------------------------------------------------------

_ARCHIVE = Effect(MOVED.values(state=DeliveryState.ARCHIVED.value), DeliveryState.ARCHIVED)
_ARCHIVABLE = (
    MOVER.where(
        # Exactly the condition STALE: with parameters, its partial index would not be used.
        _D.state == literal_column("'dead'"),
        _D.deleted_at.is_(None),
        _D.org_id > literal_column("0"),
        _D.settled_at < bindparam("before"),
    )
    .order_by(_D.settled_at, _D.id)
    .limit(LIMIT)
    .with_for_update(of=deliveries, skip_locked=True)
)


def archive(dead_before: Instant, now: Instant, limit: int) -> Transaction[Moved]:
    """Archive dead letters. Event statuses do not change, because archived deliveries still count as dead."""
    rows = yield execute(_ARCHIVABLE, before=dead_before, limit=limit)
    movers = [Mover.of(row) for row in rows]
    yield from move(movers, _ARCHIVE, now, notes.ARCHIVED)
    return Moved(tuple(mover.to(DeliveryState.ARCHIVED) for mover in movers))


# -- expiring ----------------------------------------------------------------------------------------------

_WAITS = select(_D.id).where(_D.event_id == events.c.id, _D.state == literal_column("'pending'")).exists()
_EXPIRED = (
    select(events.c.id)
    .where(
        text(EXPIRING),
        events.c.expires_at > bindparam("since"),
        events.c.expires_at <= bindparam("now"),
        events.c.open_count > 0,  # avoids reading the deliveries of events that have no open ones
        _WAITS,
    )
    .order_by(events.c.expires_at, events.c.id)
    .limit(LIMIT)
)
_WAITING = MOVER.where(_D.event_id.in_(KEYS), _D.state == literal_column("'pending'"))
_LOCK_THEIR_GROUPS = ordering_locks(select(deliveries).where(_D.event_id.in_(KEYS)))
"""Locks the groups of all deliveries of the events, not only of the waiting ones: a delivery that is in progress now
may be waiting again by the time the waiting deliveries are locked."""
_LOCK_WAITING = _WAITING.order_by(_D.id).with_for_update(of=deliveries)


def expired_events(since: Instant, now: Instant, limit: int) -> Transaction[list[int]]:
    rows = yield execute(_EXPIRED, since=since, now=now, limit=limit)
    return [row[0] for row in rows]


def expire(event_keys: Sequence[int], code: str, reason: str, now: Instant) -> Transaction[Moved]:
    """An event's `expires_at` never changes, so the events found by `expired_events` are still expired. Only the states
    of their deliveries are read again."""
    yield execute_on_postgres(_LOCK_THEIR_GROUPS, keys=event_keys)
    rows = yield from execute_in_parts(_LOCK_WAITING, "keys", event_keys)
    return (yield from dead_letter_all([Mover.of(row) for row in rows], code, reason, now))
