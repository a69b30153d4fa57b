"""Events: lists, the inbox and its acknowledgement, counts, and deletion."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec
from sqlalchemy import String, and_, bindparam, case, delete, func, null, or_, select, text, update

from doorstep.clock import Instant
from doorstep.errors import Conflict, NotFound
from doorstep.model.claim import Moved, StatusChange
from doorstep.model.delivery import DEAD_STATES, DeliveryState
from doorstep.model.event import EventStatus, EventSummary, EventView
from doorstep.model.listing import Count, EventFilter, InboxFilter, Page
from doorstep.model.outbox import summary_of_message, view_of_message
from doorstep.model.record import earliest_id
from doorstep.stores import notes
from doorstep.stores.limits import ID_MAX, INBOX_BYTES_MAX, count_within, read_cursor
from doorstep.stores.sql.queries.accounts import write_entry
from doorstep.stores.sql.queries.actions import CANCEL, DELETE
from doorstep.stores.sql.queries.figures import add_counters
from doorstep.stores.sql.queries.moves import MOVER, Mover, move, ordering_locks, unblock_after, update_statuses
from doorstep.stores.sql.queries.outbox import pending_messages
from doorstep.stores.sql.queries.paging import (
    ORG,
    Columns,
    Condition,
    IndexScan,
    Position,
    Statement,
    count_up_to,
    cursor_of,
    entry_count,
    has_type,
    index_scan,
    merge_slices,
    read_slice,
    values_of,
)
from doorstep.stores.sql.queries.rows import (
    EVENT_KEY,
    EVENT_WITH_STATUS,
    IN_ORG,
    Retrying,
    org_key,
    retrying_of,
    view_from,
)
from doorstep.stores.sql.queries.transaction import (
    KEYS,
    LIMIT,
    UIDS,
    Row,
    Transaction,
    execute,
    execute_in_parts,
    execute_on_postgres,
    execute_one,
)
from doorstep.stores.sql.schema import FAILED, INBOX, deliveries, events, orgs, payloads
from doorstep.stores.tally import Tally

_E = events.c
_FIRST, _LAST = UUID(int=0), UUID(int=ID_MAX)

# -- all events --------------------------------------------------------------------------------------------

_IN_ORG = _E.org_id == ORG
_STATUS = bindparam("status", type_=String())
SUMMARY = select(
    _E.id, _E.event_type, _E.created_at, _E.correlation_id, _E.status, _E.delivery_count, _E.ended_at
).select_from(events)


def _matching(event: Columns) -> tuple[Condition, ...]:
    """The conditions of the filter that are checked on each row, because no index covers them."""
    return or_(_STATUS.is_(None), event.status == _STATUS), has_type(event.event_type), event.deleted_at.is_(None)


def _scan(*within: Condition, newest_first: bool) -> IndexScan:
    return index_scan((_IN_ORG, *within), (_E.uid,), SUMMARY, _matching(_E), newest_first=newest_first)


_NEWEST, _OLDEST = _scan(newest_first=True), _scan(newest_first=False)
_NEWEST_FAILED, _OLDEST_FAILED = _scan(text(FAILED), newest_first=True), _scan(text(FAILED), newest_first=False)


def list_events(org_id: UUID, query: EventFilter, cursor: str | None, limit: int) -> Transaction[Page[EventSummary]]:
    after, until = _span(query, cursor)
    values = {"org": org_id, "status": query.status, **values_of(query.event_type)}
    scan = _scan_for(query)
    rows, end = merge_slices(scan, [(yield from read_slice(scan, after, until, limit, values))], limit)
    retrying = yield from retrying_of([row[0] for row in rows])
    return Page(tuple(_summary(row, retrying[row[0]]) for row in rows), cursor_of(end))


def _scan_for(query: EventFilter) -> IndexScan:
    if query.status is EventStatus.FAILED:
        return _OLDEST_FAILED if query.oldest_first else _NEWEST_FAILED
    return _OLDEST if query.oldest_first else _NEWEST


def _span(query: EventFilter, cursor: str | None) -> tuple[Position, Position]:
    """The start and end of the list, in its sort order. Both are ids that no event has."""
    begin = _FIRST if query.created_from is None else earliest_id(query.created_from)
    end = _LAST if query.created_before is None else earliest_id(query.created_before)
    reached = _reached(cursor)
    if query.oldest_first:
        return (max(begin, reached or begin),), (end,)
    return (min(end, reached or end),), (begin,)


def _reached(cursor: str | None) -> UUID | None:
    position = read_cursor(cursor, ID_MAX)
    return None if position is None else UUID(int=position[0])


def _summary(row: Row, retrying: Retrying) -> EventSummary:
    _, event_type, created_at, correlation_id, status, delivery_count, ended_at, event_id = row
    return EventSummary(
        event_id=event_id,
        event_type=event_type,
        created_at=created_at,
        correlation_id=correlation_id,
        status=EventStatus(status),
        deliveries=delivery_count,
        failed_at=ended_at if status == EventStatus.FAILED else None,
        **retrying._asdict(),
    )


_THESE = SUMMARY.add_columns(_E.uid).where(_IN_ORG, _E.uid.in_(UIDS), _E.deleted_at.is_(None))


def get_summaries(org_id: UUID, event_ids: Sequence[UUID]) -> Transaction[list[EventSummary]]:
    found = yield from execute_in_parts(_THESE, "uids", event_ids, org=org_id)
    retrying = yield from retrying_of([row[0] for row in found])
    missing = set(event_ids) - {row[-1] for row in found}
    posted = (yield from pending_messages(org_id, list(missing))) if missing else []
    return [_summary(row, retrying[row[0]]) for row in found] + [summary_of_message(one) for one in posted]


# -- one event ---------------------------------------------------------------------------------------------

_NAMED = (IN_ORG, _E.uid == bindparam("event"), _E.deleted_at.is_(None))
_EVENT = EVENT_WITH_STATUS.join(orgs, orgs.c.id == _E.org_id).where(*_NAMED)


def event(org_id: UUID, event_id: UUID) -> Transaction[EventView]:
    rows = yield execute(_EVENT, org=org_id, event=event_id)
    if rows:
        key = rows[0][-4]
        retrying = yield from retrying_of([key])
        return view_from(org_id, rows[0], retrying[key])
    for message in (yield from pending_messages(org_id, [event_id])):
        return view_of_message(message)
    raise NotFound(f"no event {event_id}")


# -- the inbox ---------------------------------------------------------------------------------------------

_LONG_SIZE = select(func.length(payloads.c.payload)).where(payloads.c.event_id == _E.id).scalar_subquery()
_SIZE = func.coalesce(func.length(_E.payload), _LONG_SIZE)
SIZED = select(_SIZE, _E.id).select_from(events)
_WAITING = index_scan((_IN_ORG, text(INBOX)), (_E.uid,), SIZED)
_FAILED = index_scan((_IN_ORG, text(FAILED)), (_E.uid,), SIZED)
_EVENTS = EVENT_WITH_STATUS.where(_E.id.in_(KEYS))


def inbox(org_id: UUID, query: InboxFilter, cursor: str | None, limit: int) -> Transaction[Page[EventView]]:
    """Reads the ids and payload sizes first, then only the payloads that fit on a page."""
    scan, after = _FAILED if query.status is EventStatus.FAILED else _WAITING, _reached(cursor) or _FIRST
    found = yield from read_slice(scan, (after,), (_LAST,), limit, {"org": org_id}, filtered=False)
    rows, end = merge_slices(scan, [found], min(limit, count_within((row[0] for row in found.rows), INBOX_BYTES_MAX)))
    keys = [row[1] for row in rows]
    retrying = yield from retrying_of(keys)
    views = [view_from(org_id, row, retrying[row[-4]]) for row in (yield from execute_in_parts(_EVENTS, "keys", keys))]
    return Page(tuple(sorted(views, key=lambda view: view.event.event_id)), cursor_of(end))


_LOCK_EVENT = (
    select(_E.id, _E.org_id, _E.correlation_id, _E.status, _E.delivery_count)
    .join(orgs, orgs.c.id == _E.org_id)
    .where(*_NAMED)
    .with_for_update(of=events)
)
_ACKNOWLEDGE = (
    update(events).where(_E.id == bindparam("key")).values(status=EventStatus.DELIVERED.value, ended_at=bindparam("at"))
)


def acknowledge(org_id: UUID, event_id: UUID, now: Instant) -> Transaction[StatusChange]:
    row = yield from execute_one(f"no event {event_id}", _LOCK_EVENT, org=org_id, event=event_id)
    key, org, correlation_id, status, delivery_count = row
    if delivery_count:
        raise Conflict(f"event {event_id} is delivered to endpoints; only inbox events can be acknowledged")
    change = StatusChange(event_id, org_id, correlation_id, EventStatus(status), EventStatus.DELIVERED)
    if status == EventStatus.RECEIVED:
        tally = Tally()
        tally.statuses([(org, change)])
        yield execute(_ACKNOWLEDGE, key=key, at=now)
        yield from add_counters(tally, now)
    return change


# -- counting ----------------------------------------------------------------------------------------------


def _counted(*within: Condition) -> Statement:
    """A statement that counts the events in the filtered time range, up to `limit`, and those of them that match the
    filter."""
    after, until = (bindparam(edge, type_=_E.uid.type) for edge in ("after", "until"))
    needed = (_E.event_type, _E.status, _E.deleted_at)
    span = (_IN_ORG, *within, _E.uid >= after, _E.uid < until)
    entries = select(*needed).where(*span).order_by(_E.uid).limit(LIMIT).subquery()
    return select(func.count(), func.count(case((and_(*_matching(entries.c)), 1)))).select_from(entries)


_COUNT, _COUNT_FAILED = _counted(), _counted(text(FAILED))


def count_events(org_id: UUID, query: EventFilter, limit: int) -> Transaction[Count]:
    """The sort order does not matter: if there are more than `limit` events, the count is a lower bound in either
    order."""
    statement = _COUNT_FAILED if query.status is EventStatus.FAILED else _COUNT
    (until,), (after,) = _span(msgspec.structs.replace(query, oldest_first=False), None)
    values = {"org": org_id, "status": query.status, **values_of(query.event_type)}
    rows = yield execute(statement, after=after, until=until, limit=limit + 1, **values)
    return count_up_to(limit, *rows[0])


_WAITING_COUNT = entry_count((_IN_ORG, text(INBOX)), _E.uid)
_FAILED_COUNT = entry_count((_IN_ORG, text(FAILED)), _E.uid)


def count_inbox(org_id: UUID, query: InboxFilter, limit: int) -> Transaction[Count]:
    statement = _FAILED_COUNT if query.status is EventStatus.FAILED else _WAITING_COUNT
    rows = yield execute(statement, org=org_id, limit=limit + 1)
    return count_up_to(limit, rows[0][0])


# -- deletion ----------------------------------------------------------------------------------------------

_ITS_DELIVERIES = MOVER.where(deliveries.c.event_id == EVENT_KEY, deliveries.c.deleted_at.is_(None))
_LOCK_ITS_GROUPS = ordering_locks(_ITS_DELIVERIES)
_LOCK_DELIVERIES = _ITS_DELIVERIES.order_by(deliveries.c.id).with_for_update(of=deliveries)
_AT = bindparam("at", type_=_E.deleted_at.type)
_ERASE = (
    update(events)
    .where(_E.id == bindparam("key"))
    .values(
        deleted_at=_AT,
        ended_at=case((_E.delivery_count == 0, func.coalesce(_E.ended_at, _AT)), else_=_E.ended_at),
        payload=b"",
        metadata=b"{}",
    )
    .returning(_E.org_id, _E.status)
)
_ERASE_LONG = delete(payloads).where(payloads.c.event_id == bindparam("key"))
_ERASE_EDITED = (
    update(deliveries)
    .where(deliveries.c.event_id == bindparam("key"), deliveries.c.payload.is_not(None))
    .values(payload=null())
)


def delete_event(org_id: UUID, event_id: UUID, actor: str, now: Instant, reason: str = "") -> Transaction[Moved]:
    """Deliveries are locked before their event, as in every transaction. If two transactions delete the same event at
    the same time, the second waits for the lock and then raises NotFound."""
    org = yield from org_key(org_id)
    yield execute_on_postgres(_LOCK_ITS_GROUPS, org=org_id, event=event_id)
    movers = [Mover.of(row) for row in (yield execute(_LOCK_DELIVERIES, org=org_id, event=event_id))]
    key, *_ = yield from execute_one(f"no event {event_id}", _LOCK_EVENT, org=org_id, event=event_id)
    if any(mover.state is DeliveryState.IN_PROGRESS for mover in movers):
        raise Conflict(notes.in_progress(event_id))
    waiting = [mover for mover in movers if mover.state is DeliveryState.PENDING]
    letters = [mover for mover in movers if mover.state in DEAD_STATES]
    yield from move(waiting, CANCEL, now, notes.deleted(actor), at=now)
    yield from move(letters, DELETE, now, "", at=now)
    changes = yield from update_statuses([(mover, DeliveryState.CANCELLED) for mover in waiting], now)
    yield from _erase(key, now)
    yield from write_entry(org, notes.deletion_entry(org_id, event_id, actor, now, len(waiting), len(letters), reason))
    yield from unblock_after(waiting, now)
    return Moved(tuple(mover.to(DeliveryState.CANCELLED) for mover in waiting), tuple(changes))


def _erase(key: int, now: Instant) -> Transaction[None]:
    tally = Tally()
    for org, status in (yield execute(_ERASE, key=key, at=now)):
        tally.status(org, EventStatus(status), None)
    yield from add_counters(tally, now)
    yield execute(_ERASE_LONG, key=key)
    yield execute(_ERASE_EDITED, key=key)
