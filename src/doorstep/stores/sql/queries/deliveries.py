"""Deliveries by id, the retry queue (sorted by next attempt) and batches (newest first)."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import ColumnElement, String, and_, bindparam, func, literal_column, or_, select

from doorstep.errors import NotFound
from doorstep.model.attempt import Attempt
from doorstep.model.batch import BatchFilter
from doorstep.model.delivery import Delivery, DeliveryPayload, DeliveryState, HistoryEntry
from doorstep.model.listing import Count, DeliveryAttempts, DeliveryHistory, EventDeliveries, Page, RetryQueueFilter
from doorstep.stores import notes
from doorstep.stores.limits import ID_MAX, KEY_MAX, read_cursor, read_instant_cursor
from doorstep.stores.sql.queries.paging import (
    ORG,
    Columns,
    Condition,
    Slice,
    count_per_endpoint,
    count_up_to,
    entry_count,
    has_endpoint,
    has_type,
    index_scan,
    match_count,
    page_of,
    read_slice,
    values_of,
)
from doorstep.stores.sql.queries.rows import (
    ATTEMPT,
    DELIVERY,
    EVENT_KEY,
    HISTORY,
    IN_ORG,
    PAYLOAD,
    attempt_from,
    delivery_from,
    history_from,
)
from doorstep.stores.sql.queries.transaction import UIDS, Row, Transaction, execute, execute_in_parts, execute_one
from doorstep.stores.sql.schema import INSTANT, attempts, deliveries, events, history, orgs

_D = deliveries.c

_OF_EVENT = DELIVERY.where(_D.event_id == EVENT_KEY).order_by(_D.id)
_THESE = DELIVERY.where(_D.org_id == ORG, _D.uid.in_(UIDS))
_PAYLOADS = (
    select(_D.uid, func.coalesce(_D.payload, PAYLOAD), events.c.deleted_at)
    .select_from(deliveries)
    .join(events, events.c.id == _D.event_id)
    .where(_D.org_id == ORG, _D.uid.in_(UIDS))
)
_DELIVERY_KEY = (
    select(_D.id, _D.created_at).join(orgs, orgs.c.id == _D.org_id).where(IN_ORG, _D.uid == bindparam("delivery"))
)
_ATTEMPTS = ATTEMPT.where(attempts.c.delivery_id == bindparam("key")).order_by(
    attempts.c.number, attempts.c.move, attempts.c.late
)
_HISTORY = HISTORY.where(history.c.delivery_id == bindparam("key")).order_by(history.c.move)


def deliveries_of(org_id: UUID, query: EventDeliveries) -> Transaction[list[Delivery]]:
    return [delivery_from(row) for row in (yield execute(_OF_EVENT, org=org_id, event=query.event_id))]


def delivery(org_id: UUID, delivery_id: UUID) -> Transaction[Delivery]:
    row = yield from execute_one(_missing(delivery_id), _THESE, org=org_id, uids=[delivery_id])
    return delivery_from(row)


def get_deliveries(org_id: UUID, delivery_ids: Sequence[UUID]) -> Transaction[list[Delivery]]:
    return [delivery_from(row) for row in (yield from execute_in_parts(_THESE, "uids", delivery_ids, org=org_id))]


def attempts_of(org_id: UUID, query: DeliveryAttempts) -> Transaction[list[Attempt]]:
    key, _ = yield from _delivery_key(org_id, query.delivery_id)
    return [attempt_from(query.delivery_id, row) for row in (yield execute(_ATTEMPTS, key=key))]


def history_of(org_id: UUID, query: DeliveryHistory) -> Transaction[list[HistoryEntry]]:
    key, created_at = yield from _delivery_key(org_id, query.delivery_id)
    accepted = HistoryEntry(created_at, None, DeliveryState.PENDING, 0, notes.ACCEPTED)
    return [accepted, *map(history_from, (yield execute(_HISTORY, key=key)))]


def payload(org_id: UUID, delivery_id: UUID) -> Transaction[DeliveryPayload]:
    _, found, deleted_at = yield from execute_one(_missing(delivery_id), _PAYLOADS, org=org_id, uids=[delivery_id])
    if deleted_at is not None:
        raise NotFound(f"no payload for delivery {delivery_id}: its event was deleted")
    return DeliveryPayload(delivery_id, bytes(found))


def get_payloads(org_id: UUID, delivery_ids: Sequence[UUID]) -> Transaction[list[DeliveryPayload]]:
    rows = yield from execute_in_parts(_PAYLOADS, "uids", delivery_ids, org=org_id)
    return [DeliveryPayload(uid, bytes(found)) for uid, found, deleted_at in rows if deleted_at is None]


def _delivery_key(org_id: UUID, delivery_id: UUID) -> Transaction[Row]:
    return (yield from execute_one(_missing(delivery_id), _DELIVERY_KEY, org=org_id, delivery=delivery_id))


def _missing(delivery_id: UUID) -> str:
    return f"no delivery {delivery_id}"


# -- the retry queue ---------------------------------------------------------------------------------------

_FIRST, _LAST = (-1, UUID(int=0)), (KEY_MAX, UUID(int=ID_MAX))
_STATES = {None: None, True: DeliveryState.PENDING, False: DeliveryState.IN_PROGRESS}


def _matches(delivery: Columns) -> ColumnElement[bool]:
    state, before = bindparam("state", type_=String()), bindparam("failed_before", type_=INSTANT)
    return and_(
        or_(state.is_(None), delivery.state == state),
        or_(before.is_(None), delivery.first_failed_at < before),
        has_endpoint(delivery),
    )


_WITHIN = (_D.org_id == ORG, _D.first_failed_at.is_not(None), _D.due_at.is_not(None))  # exactly the condition RETRYING
_QUEUE = index_scan(_WITHIN, (_D.due_at, _D.uid), DELIVERY, (_matches(_D), has_type(events.c.event_type)))
_COUNT = entry_count(_WITHIN, _D.uid)
_COUNT_MATCHING = match_count(_WITHIN, _matches)
_BY_ENDPOINT = count_per_endpoint(_WITHIN)
_MATCHING_BY_ENDPOINT = count_per_endpoint(_WITHIN, _matches)


def retry_queue(org_id: UUID, query: RetryQueueFilter, cursor: str | None, limit: int) -> Transaction[Page[Delivery]]:
    after = read_instant_cursor(cursor) or _FIRST
    values = _values(org_id, query)
    found = yield from read_slice(_QUEUE, after, _LAST, limit, values, filtered=query != RetryQueueFilter())
    return page_of(_QUEUE, [found], limit, delivery_from)


def count_retry_queue(org_id: UUID, query: RetryQueueFilter, limit: int) -> Transaction[Count]:
    statement = _COUNT if query == RetryQueueFilter() else _COUNT_MATCHING
    rows = yield execute(statement, limit=limit + 1, **_values(org_id, query))
    return count_up_to(limit, *rows[0])


def retry_queue_by_endpoint(org_id: UUID, query: RetryQueueFilter, limit: int) -> Transaction[dict[UUID, int]]:
    statement = _BY_ENDPOINT if query == RetryQueueFilter() else _MATCHING_BY_ENDPOINT
    return dict((yield execute(statement, limit=limit, **_values(org_id, query))))


def _values(org_id: UUID, query: RetryQueueFilter) -> dict[str, object]:
    filters = values_of(query.event_type, query.endpoint_id)
    return {"org": org_id, "state": _STATES[query.waiting], "failed_before": query.failed_before, **filters}


# -- batches -----------------------------------------------------------------------------------------------

_FIRST_BATCH, _LAST_BATCH = UUID(int=0), UUID(int=ID_MAX)
_IS_BATCH: tuple[Condition, ...] = (literal_column("doorstep_deliveries.batch"), _D.deleted_at.is_(None))
"""This must be exactly the same condition as BATCHES, because otherwise the databases do not use the partial index."""
_IN_STATE = _D.state == select(bindparam("state", type_=_D.state.type)).scalar_subquery()
"""The subquery hides the value from the planner. If the planner saw `in_progress`, it would scan the index of all
deliveries in progress instead."""
_MATCHING = (has_type(events.c.event_type), events.c.deleted_at.is_(None))
_BATCHES = index_scan((_D.org_id == ORG, *_IS_BATCH, _IN_STATE), (_D.uid,), DELIVERY, _MATCHING, newest_first=True)


def list_batches(org_id: UUID, query: BatchFilter, cursor: str | None, limit: int) -> Transaction[Page[Delivery]]:
    position = read_cursor(cursor, ID_MAX)
    after = (_LAST_BATCH if position is None else UUID(int=position[0]),)
    values = {"org": org_id, **values_of(query.event_type)}
    found: list[Slice] = []
    for state in sorted(query.states):
        found.append((yield from read_slice(_BATCHES, after, (_FIRST_BATCH,), limit, values | {"state": state.value})))
    return page_of(_BATCHES, found, limit, delivery_from)
