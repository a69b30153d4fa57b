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
from doorstep.stores import cursor as cursors
from doorstep.stores import notes
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
    merge_slices,
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
from doorstep.stores.sql.queries.transaction import Transaction, execute, parts
from doorstep.stores.sql.schema import INSTANT, attempts, deliveries, events, history, orgs

_D = deliveries.c

_DELIVERIES = DELIVERY.where(_D.event_id == EVENT_KEY).order_by(_D.id)
_DELIVERY = DELIVERY.where(IN_ORG, _D.uid == bindparam("delivery"))
_PAYLOAD = (
    select(func.coalesce(_D.payload, PAYLOAD), events.c.deleted_at)
    .select_from(deliveries)
    .join(events, events.c.id == _D.event_id)
    .join(orgs, orgs.c.id == _D.org_id)
    .where(IN_ORG, _D.uid == bindparam("delivery"))
)
_NAMED = _D.uid.in_(bindparam("uids", expanding=True))
_THESE = DELIVERY.where(_D.org_id == ORG, _NAMED)
_PAYLOADS = (
    select(_D.uid, func.coalesce(_D.payload, PAYLOAD))
    .select_from(deliveries)
    .join(events, events.c.id == _D.event_id)
    .where(_D.org_id == ORG, _NAMED, events.c.deleted_at.is_(None))
)
_DELIVERY_KEY = (
    select(_D.id, _D.created_at).join(orgs, orgs.c.id == _D.org_id).where(IN_ORG, _D.uid == bindparam("delivery"))
)
_ATTEMPTS = ATTEMPT.where(attempts.c.delivery_id == bindparam("key")).order_by(
    attempts.c.number, attempts.c.move, attempts.c.late
)
_HISTORY = HISTORY.where(history.c.delivery_id == bindparam("key")).order_by(history.c.move)


def deliveries_of(org_id: UUID, query: EventDeliveries) -> Transaction[list[Delivery]]:
    rows = yield execute(_DELIVERIES, org=org_id, event=query.event_id)
    return [delivery_from(row) for row in rows]


def delivery(org_id: UUID, delivery_id: UUID) -> Transaction[Delivery]:
    rows = yield execute(_DELIVERY, org=org_id, delivery=delivery_id)
    if not rows:
        raise NotFound(f"no delivery {delivery_id}")
    return delivery_from(rows[0])


def get_deliveries(org_id: UUID, delivery_ids: Sequence[UUID]) -> Transaction[list[Delivery]]:
    found: list[Delivery] = []
    for part in parts(list(dict.fromkeys(delivery_ids))):
        found += map(delivery_from, (yield execute(_THESE, org=org_id, uids=part)))
    return found


def attempts_of(org_id: UUID, query: DeliveryAttempts) -> Transaction[list[Attempt]]:
    key, _ = yield from _delivery_key(org_id, query.delivery_id)
    rows = yield execute(_ATTEMPTS, key=key)
    return [attempt_from(query.delivery_id, row) for row in rows]


def history_of(org_id: UUID, query: DeliveryHistory) -> Transaction[list[HistoryEntry]]:
    key, created_at = yield from _delivery_key(org_id, query.delivery_id)
    rows = yield execute(_HISTORY, key=key)
    accepted = HistoryEntry(created_at, None, DeliveryState.PENDING, 0, notes.ACCEPTED)
    return [accepted, *map(history_from, rows)]


def payload(org_id: UUID, delivery_id: UUID) -> Transaction[DeliveryPayload]:
    rows = yield execute(_PAYLOAD, org=org_id, delivery=delivery_id)
    if not rows:
        raise NotFound(f"no delivery {delivery_id}")
    found, deleted_at = rows[0]
    if deleted_at is not None:
        raise NotFound(notes.no_payload(delivery_id))
    return DeliveryPayload(delivery_id, bytes(found))


def get_payloads(org_id: UUID, delivery_ids: Sequence[UUID]) -> Transaction[list[DeliveryPayload]]:
    found: list[DeliveryPayload] = []
    for part in parts(list(dict.fromkeys(delivery_ids))):
        rows = yield execute(_PAYLOADS, org=org_id, uids=part)
        found += [DeliveryPayload(delivery_id, bytes(payload)) for delivery_id, payload in rows]
    return found


def _delivery_key(org_id: UUID, delivery_id: UUID) -> Transaction[tuple[int, int]]:
    rows = yield execute(_DELIVERY_KEY, org=org_id, delivery=delivery_id)
    if not rows:
        raise NotFound(f"no delivery {delivery_id}")
    return rows[0][0], rows[0][1]


_FIRST, _LAST = (-1, UUID(int=0)), (cursors.KEY_MAX, UUID(int=cursors.ID_MAX))
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
    after = cursors.read_instant(cursor) or _FIRST
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


_FIRST_BATCH, _LAST_BATCH = UUID(int=0), UUID(int=cursors.ID_MAX)
_IS_BATCH: tuple[Condition, ...] = (literal_column("doorstep_deliveries.batch"), _D.deleted_at.is_(None))
"""Exactly the condition BATCHES: otherwise the databases do not use the partial index."""
_IN_STATE = _D.state == select(bindparam("state", type_=_D.state.type)).scalar_subquery()
"""The subquery hides the value from the planner. If the planner saw `in_progress`, it would scan the index of all
deliveries in progress instead."""
_MATCHING = (has_type(events.c.event_type), events.c.deleted_at.is_(None))
_BATCHES = index_scan((_D.org_id == ORG, *_IS_BATCH, _IN_STATE), (_D.uid,), DELIVERY, _MATCHING, newest_first=True)


def list_batches(org_id: UUID, query: BatchFilter, cursor: str | None, limit: int) -> Transaction[Page[Delivery]]:
    position = cursors.read(cursor, cursors.ID_MAX)
    after = (_LAST_BATCH if position is None else UUID(int=position[0]),)
    values = {"org": org_id, **values_of(query.event_type)}
    found: list[Slice] = []
    for state in sorted(query.states):
        found.append((yield from read_slice(_BATCHES, after, (_FIRST_BATCH,), limit, values | {"state": state.value})))
    rows, end = merge_slices(_BATCHES, found, limit)
    return Page(tuple(map(delivery_from, rows)), None if end is None else cursors.write(end[0].int))
