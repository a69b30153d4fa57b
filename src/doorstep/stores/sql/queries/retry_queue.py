"""The retry queue, next attempt first; and batches, newest first."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import ColumnElement, String, and_, bindparam, literal_column, or_, select

from doorstep.model.batch import BatchFilter
from doorstep.model.delivery import Delivery, DeliveryState
from doorstep.model.listing import Count, Page, RetryQueueFilter
from doorstep.stores import cursor as cursors
from doorstep.stores.sql.queries.paging import (
    ORG,
    Columns,
    Condition,
    Stretch,
    count_up_to,
    counted_by_endpoint,
    counted_matches,
    counted_over,
    gathered,
    of_endpoint,
    of_type,
    page_of,
    stretch,
    values_of,
    walk_over,
)
from doorstep.stores.sql.queries.rows import DELIVERY, delivery_from
from doorstep.stores.sql.queries.transaction import Transaction, execute
from doorstep.stores.sql.schema import INSTANT, deliveries, events

_D = deliveries.c
_FIRST, _LAST = (-1, UUID(int=0)), (cursors.KEY_MAX, UUID(int=cursors.ID_MAX))
_STATES = {None: None, True: DeliveryState.PENDING, False: DeliveryState.IN_PROGRESS}


def _wanted(delivery: Columns) -> ColumnElement[bool]:
    state, before = bindparam("state", type_=String()), bindparam("failed_before", type_=INSTANT)
    return and_(
        or_(state.is_(None), delivery.state == state),
        or_(before.is_(None), delivery.first_failed_at < before),
        of_endpoint(delivery),
    )


_WITHIN = (_D.org_id == ORG, _D.first_failed_at.is_not(None), _D.due_at.is_not(None))  # the words of RETRYING
_QUEUE = walk_over(_WITHIN, (_D.due_at, _D.uid), DELIVERY, (_wanted(_D), of_type(events.c.event_type)))
_COUNT = counted_over(_WITHIN, _D.uid)
_COUNT_WANTED = counted_matches(_WITHIN, _wanted)
_BY_ENDPOINT = counted_by_endpoint(_WITHIN)
_WANTED_BY_ENDPOINT = counted_by_endpoint(_WITHIN, _wanted)


def retry_queue(org_id: UUID, wanted: RetryQueueFilter, cursor: str | None, limit: int) -> Transaction[Page[Delivery]]:
    after = cursors.read_instant(cursor) or _FIRST
    values = _values(org_id, wanted)
    found = yield from stretch(_QUEUE, after, _LAST, limit, values, filtered=wanted != RetryQueueFilter())
    return page_of(_QUEUE, [found], limit, delivery_from)


def count_retry_queue(org_id: UUID, wanted: RetryQueueFilter, limit: int) -> Transaction[Count]:
    statement = _COUNT if wanted == RetryQueueFilter() else _COUNT_WANTED
    rows = yield execute(statement, most=limit + 1, **_values(org_id, wanted))
    return count_up_to(limit, *rows[0])


def retry_queue_by_endpoint(org_id: UUID, wanted: RetryQueueFilter, limit: int) -> Transaction[dict[UUID, int]]:
    statement = _BY_ENDPOINT if wanted == RetryQueueFilter() else _WANTED_BY_ENDPOINT
    return dict((yield execute(statement, most=limit, **_values(org_id, wanted))))


def _values(org_id: UUID, wanted: RetryQueueFilter) -> dict[str, object]:
    filters = values_of(wanted.event_type, wanted.endpoint_id)
    return {"org": org_id, "state": _STATES[wanted.waiting], "failed_before": wanted.failed_before, **filters}


_FIRST_BATCH, _LAST_BATCH = UUID(int=0), UUID(int=cursors.ID_MAX)
_IS_BATCH: tuple[Condition, ...] = (literal_column("doorstep_deliveries.batch"), _D.deleted_at.is_(None))
"""In the words of BATCHES: only so do both databases see that the index has all of them."""
_IN_STATE = _D.state == select(bindparam("state", type_=_D.state.type)).scalar_subquery()
"""Hidden from the planner: one that saw `in_progress` went through everything in progress, which has an index too."""
_MATCHING = (of_type(events.c.event_type), events.c.deleted_at.is_(None))
_WALK = walk_over((_D.org_id == ORG, *_IS_BATCH, _IN_STATE), (_D.uid,), DELIVERY, _MATCHING, newest_first=True)


def list_batches(org_id: UUID, wanted: BatchFilter, cursor: str | None, limit: int) -> Transaction[Page[Delivery]]:
    place = cursors.read(cursor, cursors.ID_MAX)
    after = (_LAST_BATCH if place is None else UUID(int=place[0]),)
    values = {"org": org_id, **values_of(wanted.event_type)}
    found: list[Stretch] = []
    for state in sorted(wanted.states):
        found.append((yield from stretch(_WALK, after, (_FIRST_BATCH,), limit, values | {"state": state.value})))
    rows, onward = gathered(_WALK, found, limit)
    return Page(tuple(map(delivery_from, rows)), None if onward is None else cursors.write(onward[0].int))
