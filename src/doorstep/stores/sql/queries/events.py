"""Lists of events: all of them, and the inbox."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec
from sqlalchemy import String, and_, bindparam, case, func, or_, select, text

from doorstep.model.event import EventStatus, EventSummary, EventView
from doorstep.model.listing import Count, EventFilter, Page
from doorstep.model.outbox import summary_of_posting
from doorstep.model.record import earliest_id
from doorstep.stores import cursor as cursors
from doorstep.stores.limits import INBOX_BYTES_MAX, fitting
from doorstep.stores.sql.queries.moves import parts
from doorstep.stores.sql.queries.outbox import shown_of
from doorstep.stores.sql.queries.paging import (
    ORG,
    Condition,
    Place,
    Statement,
    Walk,
    count_up_to,
    counted_over,
    gathered,
    of_type,
    stretch,
    values_of,
    walk_over,
)
from doorstep.stores.sql.queries.rows import EVENT_AS_IT_STANDS, Retrying, retrying_of, view_from
from doorstep.stores.sql.queries.transaction import Row, Transaction, execute
from doorstep.stores.sql.schema import FAILED, INBOX, events, payloads

_E = events.c
_FIRST, _LAST = UUID(int=0), UUID(int=cursors.ID_MAX)

# -- all events --------------------------------------------------------------------------------------------

_IN_ORG = _E.org_id == ORG
_STATUS = bindparam("status", type_=String())
_SUMMARY = select(
    _E.id, _E.event_type, _E.created_at, _E.correlation_id, _E.status, _E.delivery_count, _E.ended_at
).select_from(events)
_MATCHING = (or_(_STATUS.is_(None), _E.status == _STATUS), of_type(_E.event_type), _E.deleted_at.is_(None))


def _walk(*within: Condition, newest_first: bool) -> Walk:
    return walk_over((_IN_ORG, *within), (_E.uid,), _SUMMARY, _MATCHING, newest_first=newest_first)


_NEWEST, _OLDEST = _walk(newest_first=True), _walk(newest_first=False)
_NEWEST_FAILED, _OLDEST_FAILED = _walk(text(FAILED), newest_first=True), _walk(text(FAILED), newest_first=False)


def list_events(org_id: UUID, wanted: EventFilter, cursor: str | None, limit: int) -> Transaction[Page[EventSummary]]:
    after, until = _span(wanted, cursor)
    values = {"org": org_id, "status": wanted.status, **values_of(wanted.event_type)}
    walk = _walk_for(wanted)
    rows, onward = gathered(walk, [(yield from stretch(walk, after, until, limit, values))], limit)
    retrying = yield from retrying_of([row[0] for row in rows])
    return Page(tuple(_summary(row, retrying[row[0]]) for row in rows), _cursor(onward))


def _walk_for(wanted: EventFilter) -> Walk:
    if wanted.status is EventStatus.FAILED:
        return _OLDEST_FAILED if wanted.oldest_first else _NEWEST_FAILED
    return _OLDEST if wanted.oldest_first else _NEWEST


def _span(wanted: EventFilter, cursor: str | None) -> tuple[Place, Place]:
    """From where to where in the order of the list. The ends themselves are nobody's id."""
    begin = _FIRST if wanted.created_from is None else earliest_id(wanted.created_from)
    end = _LAST if wanted.created_before is None else earliest_id(wanted.created_before)
    reached = _reached(cursor)
    if wanted.oldest_first:
        return (max(begin, reached or begin),), (end,)
    return (min(end, reached or end),), (begin,)


def _reached(cursor: str | None) -> UUID | None:
    place = cursors.read(cursor, cursors.ID_MAX)
    return None if place is None else UUID(int=place[0])


def _cursor(onward: Place | None) -> str | None:
    return None if onward is None else cursors.write(onward[0].int)


def _summary(row: Row, retrying: Retrying) -> EventSummary:
    _, event_type, created_at, correlation_id, status, delivery_count, ended_at, event_id = row
    return EventSummary(
        event_id=event_id,
        event_type=event_type,
        created_at=created_at,
        correlation_id=correlation_id,
        status=EventStatus(status),
        deliveries=delivery_count,
        retry_attempts=retrying.retry_attempts,
        last_retry_at=retrying.last_retry_at,
        failed_at=ended_at if status == EventStatus.FAILED else None,
        next_retry_at=retrying.next_retry_at,
    )


_THESE = _SUMMARY.add_columns(_E.uid).where(
    _IN_ORG, _E.uid.in_(bindparam("uids", expanding=True)), _E.deleted_at.is_(None)
)


def summaries(org_id: UUID, event_ids: Sequence[UUID]) -> Transaction[list[EventSummary]]:
    found: list[Row] = []
    for part in parts(list(dict.fromkeys(event_ids))):
        found += yield execute(_THESE, org=org_id, uids=part)
    retrying = yield from retrying_of([row[0] for row in found])
    missing = set(event_ids) - {row[-1] for row in found}
    posted = (yield from shown_of(org_id, list(missing))) if missing else []
    return [_summary(row, retrying[row[0]]) for row in found] + [summary_of_posting(one) for one in posted]


# -- the inbox ---------------------------------------------------------------------------------------------

_LONG_SIZE = select(func.length(payloads.c.payload)).where(payloads.c.event_id == _E.id).scalar_subquery()
_SIZE = func.coalesce(func.length(_E.payload), _LONG_SIZE)
_SIZED = select(_SIZE, _E.id).select_from(events)
_WAITING = walk_over((_IN_ORG, text(INBOX)), (_E.uid,), _SIZED)
_FAILED = walk_over((_IN_ORG, text(FAILED)), (_E.uid,), _SIZED)
_EVENTS = EVENT_AS_IT_STANDS.where(_E.id.in_(bindparam("keys", expanding=True)))


def inbox(org_id: UUID, status: EventStatus, cursor: str | None, limit: int) -> Transaction[Page[EventView]]:
    """First which events and how long their payloads are, then no more of them than a page may hold."""
    walk, after = _FAILED if status is EventStatus.FAILED else _WAITING, _reached(cursor) or _FIRST
    found = yield from stretch(walk, (after,), (_LAST,), limit, {"org": org_id}, filtered=False)
    rows, onward = gathered(walk, [found], min(limit, fitting((row[0] for row in found.rows), INBOX_BYTES_MAX)))
    keys = [row[1] for row in rows]
    retrying = yield from retrying_of(keys)
    views: list[EventView] = []
    for part in parts(keys):
        views += [view_from(org_id, row, retrying[row[-4]]) for row in (yield execute(_EVENTS, keys=part))]
    return Page(tuple(sorted(views, key=lambda view: view.event.event_id)), _cursor(onward))


# -- counting ----------------------------------------------------------------------------------------------


def _counted(*within: Condition) -> Statement:
    """How many there are in the wanted time, up to `most`, and how many of them are wanted."""
    after, until = (bindparam(edge, type_=_E.uid.type) for edge in ("after", "until"))
    needed = (_E.event_type, _E.status, _E.deleted_at)
    span = (_IN_ORG, *within, _E.uid >= after, _E.uid < until)
    entries = select(*needed).where(*span).order_by(_E.uid).limit(bindparam("most")).subquery()
    wanted = and_(
        or_(_STATUS.is_(None), entries.c.status == _STATUS),
        of_type(entries.c.event_type),
        entries.c.deleted_at.is_(None),
    )
    return select(func.count(), func.count(case((wanted, 1)))).select_from(entries)


_COUNT, _COUNT_FAILED = _counted(), _counted(text(FAILED))


def count_events(org_id: UUID, wanted: EventFilter, limit: int) -> Transaction[Count]:
    """Whatever their order: of more than `limit` it is a floor either way."""
    statement = _COUNT_FAILED if wanted.status is EventStatus.FAILED else _COUNT
    (until,), (after,) = _span(msgspec.structs.replace(wanted, oldest_first=False), None)
    values = {"org": org_id, "status": wanted.status, **values_of(wanted.event_type)}
    rows = yield execute(statement, after=after, until=until, most=limit + 1, **values)
    return count_up_to(limit, *rows[0])


_WAITING_COUNT = counted_over((_IN_ORG, text(INBOX)), _E.uid)
_FAILED_COUNT = counted_over((_IN_ORG, text(FAILED)), _E.uid)


def count_inbox(org_id: UUID, status: EventStatus, limit: int) -> Transaction[Count]:
    statement = _FAILED_COUNT if status is EventStatus.FAILED else _WAITING_COUNT
    rows = yield execute(statement, org=org_id, most=limit + 1)
    return count_up_to(limit, rows[0][0])
