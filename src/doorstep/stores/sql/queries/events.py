"""Events: lists, the inbox and its leases, counts, and deletion."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
from sqlalchemy import (
    BindParameter,
    ColumnElement,
    FromClause,
    LargeBinary,
    String,
    Table,
    and_,
    bindparam,
    case,
    delete,
    func,
    literal_column,
    null,
    select,
    text,
    union_all,
    update,
)

from doorstep.clock import Instant
from doorstep.errors import Conflict, NotFound
from doorstep.model.claim import Moved, StatusChange
from doorstep.model.delivery import DEAD_STATES, DeliveryState
from doorstep.model.event import EventBody, EventStatus, EventSummary, EventView
from doorstep.model.inbox import InboxAnswer, InboxAnswered, InboxResult, inbox_result
from doorstep.model.listing import Count, EventBodies, EventFilter, InboxFilter, Page, ShortIds
from doorstep.model.outbox import summary_of_message, view_of_message
from doorstep.model.record import earliest_id
from doorstep.stores import notes
from doorstep.stores.limits import EXAMINED_MAX, ID_MAX, INBOX_BYTES_MAX, check_storable, count_within, read_cursor
from doorstep.stores.sql.queries.accounts import actor_name, write_entry
from doorstep.stores.sql.queries.actions import CANCEL, DELETE
from doorstep.stores.sql.queries.figures import add_counters
from doorstep.stores.sql.queries.moves import MOVER, Mover, move, ordering_locks, unblock_after, update_statuses
from doorstep.stores.sql.queries.outbox import pending_messages
from doorstep.stores.sql.queries.paging import (
    ENDPOINT_KEY,
    ORG,
    Column,
    Columns,
    Condition,
    IndexScan,
    Position,
    Statement,
    between,
    bounds,
    count_up_to,
    cursor_of,
    entry_count,
    has_type,
    index_scan,
    merge_slices,
    read_slice,
    unindexed,
    values_of,
)
from doorstep.stores.sql.queries.rows import (
    EVENT_KEY,
    EVENT_WITH_STATUS,
    IN_ORG,
    PAYLOAD,
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
    execute_each,
    execute_in_parts,
    execute_on_postgres,
    execute_on_sqlite,
    execute_one,
    parts,
)
from doorstep.stores.sql.schema import (
    CORRELATED,
    FAILED,
    FRESH,
    IN_PROGRESS,
    INBOX,
    LEASABLE,
    LEASABLE_AT,
    LEASABLE_BY_TYPE,
    OPEN_FAILED,
    OWNED,
    OWNED_FAILED,
    OWNED_INBOX,
    OWNED_LEASABLE,
    PENDING,
    SETTLED_BY_ENDPOINT,
    TYPED,
    WITH_ORDERING_KEY,
    deliveries,
    events,
    idempotency,
    orgs,
    payloads,
    search_values,
)
from doorstep.stores.tally import Tally

_E, _D = events.c, deliveries.c
_FIRST, _LAST = UUID(int=0), UUID(int=ID_MAX)

# -- all events --------------------------------------------------------------------------------------------

_IN_ORG = _E.org_id == ORG
SUMMARY = select(
    _E.id, _E.event_type, _E.created_at, _E.correlation_id, _E.user_id, _E.status, _E.delivery_count, _E.ended_at
).select_from(events)
_LONG_SIZE = select(func.length(payloads.c.payload)).where(payloads.c.event_id == _E.id).scalar_subquery()
_SIZE = func.coalesce(func.length(_E.payload), _LONG_SIZE)
SIZED = select(_SIZE, _E.id).select_from(events)

_STATUS, _CORRELATION, _ORDERING, _USER = (
    bindparam(name, type_=String()) for name in ("status", "correlation", "ordering", "user")
)
_SENT = (
    select(idempotency.c.event_uid)
    .where(idempotency.c.org_id == ORG, idempotency.c.key == bindparam("idempotency_key"))
    .scalar_subquery()
)
_VALUES: BindParameter[list[int]] = bindparam("search_keys", expanding=True)
_V, _OWN = search_values.c, search_values.alias().c

FILTERS: dict[str, Callable[[Columns], ColumnElement[bool]]] = {
    "status": lambda event: event.status == _STATUS,
    "event_type": lambda event: has_type(unindexed(event.event_type)),
    "correlation_id": lambda event: unindexed(event.correlation_id) == _CORRELATION,
    "ordering_key": lambda event: unindexed(event.ordering_key) == _ORDERING,
    "idempotency_key": lambda event: event.uid == _SENT,
    "user_id": lambda event: unindexed(event.user_id) == _USER,
    "endpoint_id": lambda event: (
        select(_D.id)
        .where(_D.event_id == event.id, unindexed(_D.endpoint_id) == ENDPOINT_KEY, _D.deleted_at.is_(None))
        .exists()
    ),
    "search_keys": lambda event: (
        select(func.count()).where(_OWN.event_id == event.id, _OWN.value.in_(_VALUES)).scalar_subquery()
        == bindparam("search_keys_count")
    ),
}
"""The conditions of the filters that are given. They are checked on each row, so no index may serve them."""


def _owed(condition: str, *order: Column) -> Statement:
    """The events of an endpoint's deliveries in one index. The order makes PostgreSQL use that index. The limit leaves
    room for deliveries that are added after they were counted."""
    found = select(_D.event_id).where(_D.endpoint_id == ENDPOINT_KEY, text(condition))
    return found.order_by(*order).limit(2 * EXAMINED_MAX)


OWED = {
    "pending": _owed(PENDING, _D.due_at, _D.id),
    "in_progress": _owed(IN_PROGRESS, _D.due_at),
    "settled_by_endpoint": _owed(SETTLED_BY_ENDPOINT, _D.state, _D.uid),
}
"""The statements by the index of deliveries that they use."""
_OWED = union_all(*(select(one.subquery().c.event_id) for one in OWED.values())).subquery()
"""The events of an endpoint, if it has few. One statement reads all states, because a delivery may change its state
between two statements."""

_WITH_OPEN = {
    name: select(_D.event_id).where(_D.org_id == ORG, text(condition)).order_by(_D.uid).limit(2 * EXAMINED_MAX)
    for name, condition in (("fresh", FRESH), ("open_failed", OPEN_FAILED))
}
_IN_INBOX = select(_E.id.label("event_id")).where(_IN_ORG, text(INBOX)).order_by(_E.uid).limit(2 * EXAMINED_MAX)
UNENDED = {**_WITH_OPEN, "inbox": _IN_INBOX}
"""The statements that find events whose status may still change, by the index that they use. All are bounded like
those of an endpoint."""
_QUEUED, _RECEIVED = (
    union_all(*(select(UNENDED[name].subquery().c.event_id) for name in names)).subquery()
    for names in (("fresh", "open_failed"), ("fresh", "inbox"))
)
_FEW: dict[str, FromClause] = {"endpoint_id": _OWED, "queued": _QUEUED, "received": _RECEIVED}
"""The paths that are taken only if they lead to few events."""
_FEW_COUNTS = {path: select(func.count()).select_from(found) for path, found in _FEW.items()}


class _Path(NamedTuple):
    """An index that leads to the events of a list, in the order of their ids."""

    within: tuple[Condition, ...]
    position: tuple[Column, ...] = (_E.uid,)
    """The columns that the list is sorted by. The value that a path searches for is part of the position, because
    PostgreSQL would otherwise choose the index of all events if it believed that most of them have this value."""
    joined: FromClause | None = None


_PATHS = {
    "idempotency_key": _Path((_IN_ORG, _E.uid == _SENT)),
    "search_keys": _Path(
        (_V.org_id == ORG,), (_V.value, _V.event_uid), search_values.join(events, _E.id == _V.event_id)
    ),
    "correlation_id": _Path((_IN_ORG, text(CORRELATED)), (_E.correlation_id, _E.uid)),
    "ordering_key": _Path((_IN_ORG, text(WITH_ORDERING_KEY)), (_E.ordering_key, _E.uid)),
    **{
        path: _Path((unindexed(_E.org_id) == ORG, _E.id.in_(select(found.c.event_id))), (unindexed(_E.uid),))
        for path, found in _FEW.items()
    },
    "user_id": _Path((_IN_ORG, text(OWNED)), (_E.user_id, _E.uid)),
    "event_type": _Path((_IN_ORG, text(TYPED)), (_E.event_type, _E.uid)),
    "failed": _Path((_IN_ORG, text(FAILED))),
    "": _Path((_IN_ORG,)),
}
"""The indexes by the filter or the status that they serve, the most selective first.

The indexes of deliveries do not have the order of their events: an event may have waited in the outbox. So the events of
an endpoint, and those with an open delivery, are sorted, and these paths are taken only if there are at most
EXAMINED_MAX. If there are more, a page of other events has some of them, unless they are far from its start."""


@cache
def list_scan(found: Statement, path: str, others: tuple[str, ...], oldest_first: bool) -> IndexScan:
    """The scan of an index, which checks the other filters on each row. Cached, so that each is compiled only once."""
    where = _PATHS[path]
    matching = [_E.deleted_at.is_(None), *(FILTERS[name](_E) for name in others)]
    rows = found if where.joined is None else found.select_from(where.joined)
    return index_scan(where.within, where.position, rows, matching, newest_first=not oldest_first)


class _Reading(NamedTuple):
    """How a list is read: the index, the filters that it does not serve, and the parameters of the statements."""

    path: str
    others: tuple[str, ...]
    values: dict[str, object]


def _reading_of(org_id: UUID, query: EventFilter) -> Transaction[_Reading]:
    values = _values(org_id, query)
    given = [name for name in FILTERS if getattr(query, name) not in (None, ())]
    path = yield from _path_of(query, given, values)
    served = path if len(query.search_keys) < 2 else ""  # the index serves only the first value
    return _Reading(path, tuple(name for name in given if name != served), values)


def _path_of(query: EventFilter, given: Sequence[str], values: Mapping[str, object]) -> Transaction[str]:
    usable = [name for name in given if name != "event_type" or _is_exact(query)]
    usable += [] if query.status is None else [query.status.value]
    for path in (name for name in _PATHS if name in usable):
        if path not in _FEW:
            return path
        ((count,),) = yield execute(_FEW_COUNTS[path], **values)
        if count <= EXAMINED_MAX:
            return path
    return ""


def _is_exact(query: EventFilter) -> bool:
    """Whether the index of types serves the filter. The index of failed events is smaller than that of their type."""
    exact = query.event_type is not None and not query.event_type.endswith("*")
    return exact and query.status is not EventStatus.FAILED


def list_events(org_id: UUID, query: EventFilter, cursor: str | None, limit: int) -> Transaction[Page[EventSummary]]:
    rows, end = yield from _rows(SUMMARY, org_id, query, cursor, limit)
    retrying = yield from retrying_of([row[0] for row in rows])
    return Page(tuple(_summary(row, retrying[row[0]]) for row in rows), cursor_of(end))


_BODIES = select(_E.uid, _E.metadata, PAYLOAD).where(_E.id.in_(KEYS))


def list_bodies(org_id: UUID, query: EventBodies, cursor: str | None, limit: int) -> Transaction[Page[EventBody]]:
    """Reads the payload sizes first, then only the payloads that fit on a page."""
    rows, end = yield from _rows(SIZED, org_id, query.filter, cursor, limit)
    fitting = rows[: count_within((row[0] for row in rows), INBOX_BYTES_MAX)]
    found = yield from execute_in_parts(_BODIES, "keys", [row[1] for row in fitting])
    bodies = {row[0]: EventBody(event_id=row[0], metadata=row[1], payload=row[2]) for row in found}
    if len(fitting) < len(rows):
        end = (fitting[-1][-1],)
    return Page(tuple(bodies[row[-1]] for row in fitting), cursor_of(end))


def _rows(
    found: Statement, org_id: UUID, query: EventFilter, cursor: str | None, limit: int
) -> Transaction[tuple[list[Row], Position | None]]:
    path, others, values = yield from _reading_of(org_id, query)
    scan = list_scan(found, path, others, query.oldest_first)
    after, until = (_sought(path, query) + edge for edge in _span(query, cursor))
    part = yield from read_slice(scan, after, until, limit, values, filtered=path not in _FEW)
    rows, end = merge_slices(scan, [part], limit)
    return rows, end and end[-1:]


def _sought(path: str, query: EventFilter) -> Position:
    """The value that the path searches for, as the beginning of a position."""
    if len(_PATHS[path].position) == 1:
        return ()
    return query.search_keys[:1] if path == "search_keys" else (getattr(query, path),)


def _values(org_id: UUID, query: EventFilter) -> dict[str, object]:
    for name in ("correlation_id", "ordering_key", "idempotency_key", "user_id"):
        check_storable(name, getattr(query, name))
    return {
        "org": org_id,
        "status": query.status,
        "correlation": query.correlation_id,
        "ordering": query.ordering_key,
        "user": query.user_id,
        "idempotency_key": query.idempotency_key,
        "search_keys": query.search_keys,
        "search_keys_count": len(set(query.search_keys)),
        **values_of(query.event_type, query.endpoint_id),
    }


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
    _, event_type, created_at, correlation_id, user_id, status, delivery_count, ended_at, *_, event_id = row
    return EventSummary(
        event_id=event_id,
        event_type=event_type,
        created_at=created_at,
        correlation_id=correlation_id,
        user_id=user_id,
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


# -- short ids ---------------------------------------------------------------------------------------------

_SHORT_IDS_EXAMINED_MAX = 100_000
"""The maximum number of ids examined in each range, which is a minute long."""


class _Ends(NamedTuple):
    """The statements that find short ids in one table."""

    oldest: Statement
    sqlite: Statement
    postgres: Statement

    @classmethod
    def of(cls, rows: Table) -> _Ends:
        here = rows.c.org_id == ORG
        edges = (rows.c.uid >= bindparam("begin"), rows.c.uid < bindparam("end"))
        near = select(rows.c.uid).where(here, *edges).order_by(rows.c.uid.desc()).limit(_SHORT_IDS_EXAMINED_MAX)
        uid = near.subquery().c.uid
        tail: BindParameter[Any] = bindparam("tail")
        # On PostgreSQL, the last bytes are compared: as text, the 67,000 ids of a busy minute took three times as long.
        ending = (func.substr(one, 13, type_=LargeBinary()) == tail for one in (uid, func.uuid_send(uid)))
        oldest = select(rows.c.uid).where(here).order_by(rows.c.uid).limit(1)
        return cls(oldest, *(select(uid).where(one).order_by(uid.desc()).limit(LIMIT) for one in ending))


_ENDS = {"event": _Ends.of(events), "delivery": _Ends.of(deliveries)}


def short_ids(org_id: UUID, query: ShortIds) -> Transaction[list[UUID]]:
    ends, tail = _ENDS[query.kind], query.tail.to_bytes(4)
    found: list[Row] = []
    oldest = yield execute(ends.oldest, org=org_id)
    for begin, end in query.ranges:
        if not oldest or end < oldest[0][0]:
            break
        values = {"org": org_id, "begin": begin, "end": end, "limit": query.limit}
        found += yield execute_on_sqlite(ends.sqlite, tail=tail, **values)
        found += yield execute_on_postgres(ends.postgres, tail=tail, **values)
    return [row[0] for row in found[: query.limit]]


# -- the inbox ---------------------------------------------------------------------------------------------

_INBOX_INDEXES = {
    (EventStatus.RECEIVED, False): ((_IN_ORG, text(INBOX)), (_E.uid,)),
    (EventStatus.FAILED, False): ((_IN_ORG, text(FAILED)), (_E.uid,)),
    (EventStatus.RECEIVED, True): ((_IN_ORG, text(OWNED_INBOX)), (_E.user_id, _E.uid)),
    (EventStatus.FAILED, True): ((_IN_ORG, text(OWNED_FAILED)), (_E.user_id, _E.uid)),
}
"""The condition and the order of each index, by the status of the events and whether they are those of one user."""
INBOX_SCANS = {list: index_scan(*index, SIZED) for list, index in _INBOX_INDEXES.items()}
_EVENTS = EVENT_WITH_STATUS.where(_E.id.in_(KEYS))


def inbox(org_id: UUID, query: InboxFilter, cursor: str | None, limit: int) -> Transaction[Page[EventView]]:
    """Reads the ids and payload sizes first, then only the payloads that fit on a page."""
    check_storable("user_id", query.user_id)
    scan = INBOX_SCANS[query.status, query.user_id is not None]
    owner: Position = () if query.user_id is None else (query.user_id,)
    after, until = (*owner, _reached(cursor) or _FIRST), (*owner, _LAST)
    found = yield from read_slice(scan, after, until, limit, {"org": org_id}, filtered=False)
    rows, end = merge_slices(scan, [found], min(limit, count_within((row[0] for row in found.rows), INBOX_BYTES_MAX)))
    keys = [row[1] for row in rows]
    retrying = yield from retrying_of(keys)
    views = [view_from(org_id, row, retrying[row[-4]]) for row in (yield from execute_in_parts(_EVENTS, "keys", keys))]
    return Page(tuple(sorted(views, key=lambda view: view.event.event_id)), cursor_of(end and end[-1:]))


# -- leases of the inbox -----------------------------------------------------------------------------------

_LEASABLE_AT: ColumnElement[int] = literal_column(LEASABLE_AT, _E.created_at.type)
_TYPE = bindparam("type", type_=String())
_LEASABLE = (
    select(_LEASABLE_AT, _E.uid, _E.id, _SIZE)
    .where(_IN_ORG, _LEASABLE_AT <= bindparam("now"))
    .order_by(_LEASABLE_AT, _E.uid)
    .limit(LIMIT)
    .with_for_update(skip_locked=True, of=events)
)
_ANY_TYPE = _LEASABLE.where(text(LEASABLE))
_OF_TYPE = _LEASABLE.where(text(LEASABLE_BY_TYPE), _E.event_type == _TYPE)
_OF_USER = _LEASABLE.where(text(OWNED_LEASABLE), _E.user_id == _USER)
_OF_USER_AND_TYPE = _OF_USER.where(unindexed(_E.event_type) == _TYPE)
_LEASE = (
    update(events)
    .where(_E.id.in_(KEYS))
    .values(visible_at=bindparam("until"), receive_count=_E.receive_count + 1, leased_by=bindparam("holder"))
)


def lease_inbox(
    org_id: UUID,
    event_types: Sequence[str],
    limit: int,
    holder: str,
    now: Instant,
    until: Instant,
    user_id: str | None = None,
) -> Transaction[list[EventView]]:
    """Each event type has its own index range, so they are read one by one and then merged. Reads the payload sizes
    first, like `inbox`."""
    yield from org_key(org_id)
    check_storable("user_id", user_id)
    of_type, any_type = (_OF_TYPE, _ANY_TYPE) if user_id is None else (_OF_USER_AND_TYPE, _OF_USER)
    values = {"org": org_id, "now": now, "limit": limit} | ({} if user_id is None else {"user": user_id})
    found: list[Row] = []
    for event_type in dict.fromkeys(event_types):
        found += yield execute(of_type, type=event_type, **values)
    if not event_types:
        found += yield execute(any_type, **values)
    found = sorted(found)[:limit]
    keys = [row[2] for row in found[: count_within((row[3] for row in found), INBOX_BYTES_MAX)]]
    for part in parts(keys):
        yield execute(_LEASE, keys=part, until=until, holder=holder)
    rows = {row[-4]: row for row in (yield from execute_in_parts(_EVENTS, "keys", keys))}
    return [view_from(org_id, rows[key], Retrying()) for key in keys]


_LOCKED = (_E.uid, _E.id, _E.org_id, _E.correlation_id, _E.status, _E.delivery_count, _E.receive_count, _E.user_id)
_LOCK_THESE = (
    select(*_LOCKED)
    .where(_IN_ORG, _E.uid.in_(UIDS), _E.deleted_at.is_(None))
    .order_by(_E.uid)
    .with_for_update(of=events)
)
_ACKNOWLEDGE = (
    update(events).where(_E.id.in_(KEYS)).values(status=EventStatus.DELIVERED.value, ended_at=bindparam("at"))
)
_NACK = update(events).where(_E.id == bindparam("key")).values(visible_at=bindparam("at"), leased_by=null())


def answer_inbox(org_id: UUID, answers: Sequence[InboxAnswer], actor: str, now: Instant) -> Transaction[InboxAnswered]:
    """The events are locked in the order of their ids, so that two batches cannot deadlock."""
    org = yield from org_key(org_id)
    ids = sorted(answer.event_id for answer in answers)
    rows = {row[0]: row for row in (yield from execute_in_parts(_LOCK_THESE, "uids", ids, org=org_id))}
    results = {answer.event_id: _result(answer, rows.get(answer.event_id)) for answer in answers}
    taken = [rows[one] for one, result in results.items() if result is InboxResult.ACKNOWLEDGED]
    taken = [row for row in taken if row[4] == EventStatus.RECEIVED]
    nacked = [one for one in answers if results[one.event_id] is InboxResult.NACKED]
    change = EventStatus.RECEIVED, EventStatus.DELIVERED
    changes = tuple(StatusChange(row[0], org_id, row[3], *change, user_id=row[-1]) for row in taken)
    for part in parts([row[1] for row in taken]):
        yield execute(_ACKNOWLEDGE, keys=part, at=now)
    yield execute_each(_NACK, [{"key": rows[one.event_id][1], "at": one.visible_at} for one in nacked])
    tally = Tally()
    tally.statuses([(org, change) for change in changes])
    yield from add_counters(tally, now)
    answered = InboxAnswered(results, changes)
    for entry in notes.inbox_entries(org_id, answered, actor, now):
        yield from write_entry(org, entry)
    return answered


def _result(answer: InboxAnswer, row: Row | None) -> InboxResult:
    if row is None:
        return InboxResult.NOT_FOUND
    *_, status, deliveries, receive_count, owner = row
    return inbox_result(answer, EventStatus(status), deliveries, receive_count, owner)


# -- counting ----------------------------------------------------------------------------------------------


@cache
def count_statement(path: str, others: tuple[str, ...]) -> Statement:
    """A statement that counts the events in the filtered time range, up to `limit`, and those of them that match the
    filter."""
    where = _PATHS[path]
    needed = (_E.id, _E.uid, _E.event_type, _E.status, _E.correlation_id, _E.ordering_key, _E.user_id, _E.deleted_at)
    source = select(*needed).select_from(events if where.joined is None else where.joined)
    span = source.where(*where.within, *between(where.position, newest_first=True))
    entries = span.order_by(*where.position).limit(LIMIT).subquery()
    matching = and_(entries.c.deleted_at.is_(None), *(FILTERS[name](entries.c) for name in others))
    return select(func.count(), func.count(case((matching, 1)))).select_from(entries)


def count_events(org_id: UUID, query: EventFilter, limit: int) -> Transaction[Count]:
    """The sort order does not matter: if there are more than `limit` events, the count is a lower bound in either
    order."""
    path, others, values = yield from _reading_of(org_id, query)
    span = _span(msgspec.structs.replace(query, oldest_first=False), None)
    values |= bounds(*(_sought(path, query) + edge for edge in span))
    rows = yield execute(count_statement(path, others), limit=limit + 1, **values)
    return count_up_to(limit, *rows[0])


INBOX_COUNTS = {
    (status, owned): entry_count((*within, *([_E.user_id == _USER] if owned else [])), _E.uid)
    for (status, owned), (within, _) in _INBOX_INDEXES.items()
}


def count_inbox(org_id: UUID, query: InboxFilter, limit: int) -> Transaction[Count]:
    check_storable("user_id", query.user_id)
    owner = {} if query.user_id is None else {"user": query.user_id}
    rows = yield execute(INBOX_COUNTS[query.status, query.user_id is not None], org=org_id, limit=limit + 1, **owner)
    return count_up_to(limit, rows[0][0])


# -- deletion ----------------------------------------------------------------------------------------------

_ITS_DELIVERIES = MOVER.where(deliveries.c.event_id == EVENT_KEY, deliveries.c.deleted_at.is_(None))
_LOCK_ITS_GROUPS = ordering_locks(_ITS_DELIVERIES)
_LOCK_EVENT = select(*_LOCKED).join(orgs, orgs.c.id == _E.org_id).where(*_NAMED).with_for_update(of=events)
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
_ERASE_VALUES = delete(search_values).where(_V.event_id == bindparam("key"))
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
    _, key, *_ = yield from execute_one(f"no event {event_id}", _LOCK_EVENT, org=org_id, event=event_id)
    if any(mover.state is DeliveryState.IN_PROGRESS for mover in movers):
        raise Conflict(notes.in_progress(event_id))
    waiting = [mover for mover in movers if mover.state is DeliveryState.PENDING]
    letters = [mover for mover in movers if mover.state in DEAD_STATES]
    note = notes.deleted((yield from actor_name(org_id, actor)))
    yield from move(waiting, CANCEL, now, note, at=now)
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
    yield execute(_ERASE_VALUES, key=key)
    yield execute(_ERASE_EDITED, key=key)
