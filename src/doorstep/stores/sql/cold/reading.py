"""Reading: what the rows say, never changing them. Another organization's rows are not found."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import and_, bindparam, case, func, select

from doorstep.errors import NotFound
from doorstep.model.attempt import Attempt
from doorstep.model.delivery import Delivery, DeliveryState, HistoryLine
from doorstep.model.event import EventStatus, EventView
from doorstep.stores import notes
from doorstep.stores.sql.cold.rows import (
    ATTEMPT,
    DELIVERY,
    EVENT,
    HISTORY,
    IN_ORG,
    attempt_from,
    delivery_from,
    event_from,
    history_from,
)
from doorstep.stores.sql.cold.script import Script, ask
from doorstep.stores.sql.schema import attempts as attempt_rows
from doorstep.stores.sql.schema import deliveries as delivery_rows
from doorstep.stores.sql.schema import events, orgs
from doorstep.stores.sql.schema import history as history_rows

_D = delivery_rows.c

_EVENT = EVENT.add_columns(events.c.id, events.c.status, events.c.delivery_count, events.c.ended_at).where(
    IN_ORG, events.c.uid == bindparam("event")
)
_FIGURES = select(
    func.coalesce(func.max(_D.retry_attempts), 0),
    func.max(case((_D.attempt > 1, _D.last_attempt_at))),
    func.min(case((and_(_D.state == DeliveryState.PENDING.value, _D.attempt > 0), _D.due_at))),
).where(_D.event_id == bindparam("event_key"))
_DELIVERIES = DELIVERY.where(IN_ORG, events.c.uid == bindparam("event")).order_by(_D.id)
_DELIVERY = DELIVERY.where(IN_ORG, _D.uid == bindparam("delivery"))
_DELIVERY_KEY = (
    select(_D.id, _D.created_at).join(orgs, orgs.c.id == _D.org_id).where(IN_ORG, _D.uid == bindparam("delivery"))
)
_ATTEMPTS = ATTEMPT.where(attempt_rows.c.delivery_id == bindparam("key")).order_by(
    attempt_rows.c.number, attempt_rows.c.move, attempt_rows.c.late
)
_HISTORY = HISTORY.where(history_rows.c.delivery_id == bindparam("key")).order_by(history_rows.c.move)
_TALLY = select(_D.state, func.count()).group_by(_D.state)


def event(org_id: UUID, event_id: UUID) -> Script[EventView]:
    rows = yield ask(_EVENT, org=org_id, event=event_id)
    if not rows:
        raise NotFound(f"no event {event_id}")
    key, status, deliveries, ended_at = rows[0][-4:]
    figures = yield ask(_FIGURES, event_key=key)
    retry_attempts, last_retry_at, next_retry_at = figures[0]
    return EventView(
        event=event_from(org_id, rows[0]),
        status=EventStatus(status),
        deliveries=deliveries,
        retry_attempts=retry_attempts,
        last_retry_at=last_retry_at,
        failed_at=ended_at if status == EventStatus.FAILED else None,
        next_retry_at=next_retry_at,
    )


def deliveries(org_id: UUID, event_id: UUID) -> Script[list[Delivery]]:
    rows = yield ask(_DELIVERIES, org=org_id, event=event_id)
    return [delivery_from(row) for row in rows]


def delivery(org_id: UUID, delivery_id: UUID) -> Script[Delivery]:
    rows = yield ask(_DELIVERY, org=org_id, delivery=delivery_id)
    if not rows:
        raise NotFound(f"no delivery {delivery_id}")
    return delivery_from(rows[0])


def attempts(org_id: UUID, delivery_id: UUID) -> Script[list[Attempt]]:
    key, _ = yield from _delivery_key(org_id, delivery_id)
    rows = yield ask(_ATTEMPTS, key=key)
    return [attempt_from(delivery_id, row) for row in rows]


def history(org_id: UUID, delivery_id: UUID) -> Script[list[HistoryLine]]:
    key, created_at = yield from _delivery_key(org_id, delivery_id)
    rows = yield ask(_HISTORY, key=key)
    accepted = HistoryLine(created_at, None, DeliveryState.PENDING, 0, notes.ACCEPTED)
    return [accepted, *map(history_from, rows)]


def tally() -> Script[dict[DeliveryState, int]]:
    rows = yield ask(_TALLY)
    return dict.fromkeys(DeliveryState, 0) | {DeliveryState(state): count for state, count in rows}


def _delivery_key(org_id: UUID, delivery_id: UUID) -> Script[tuple[int, int]]:
    rows = yield ask(_DELIVERY_KEY, org=org_id, delivery=delivery_id)
    if not rows:
        raise NotFound(f"no delivery {delivery_id}")
    return rows[0][0], rows[0][1]
