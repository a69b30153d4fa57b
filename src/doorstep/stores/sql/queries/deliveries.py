"""Reading: what the rows say, never changing them. Another organization's rows are not found."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import bindparam, func, select

from doorstep.errors import NotFound
from doorstep.model.attempt import Attempt
from doorstep.model.delivery import Delivery, DeliveryState, HistoryLine
from doorstep.model.event import EventView
from doorstep.model.outbox import view_of_posting
from doorstep.stores import notes
from doorstep.stores.sql.queries.moves import parts
from doorstep.stores.sql.queries.outbox import shown_of
from doorstep.stores.sql.queries.paging import ORG
from doorstep.stores.sql.queries.rows import (
    ATTEMPT,
    DELIVERY,
    EVENT_AS_IT_STANDS,
    EVENT_KEY,
    HISTORY,
    IN_ORG,
    PAYLOAD,
    attempt_from,
    delivery_from,
    history_from,
    retrying_of,
    view_from,
)
from doorstep.stores.sql.queries.transaction import Transaction, execute
from doorstep.stores.sql.schema import attempts as attempt_rows
from doorstep.stores.sql.schema import deliveries as delivery_rows
from doorstep.stores.sql.schema import events, orgs
from doorstep.stores.sql.schema import history as history_rows

_D = delivery_rows.c

_EVENT = EVENT_AS_IT_STANDS.join(orgs, orgs.c.id == events.c.org_id).where(
    IN_ORG, events.c.uid == bindparam("event"), events.c.deleted_at.is_(None)
)
_DELIVERIES = DELIVERY.where(_D.event_id == EVENT_KEY).order_by(_D.id)
_DELIVERY = DELIVERY.where(IN_ORG, _D.uid == bindparam("delivery"))
_PAYLOAD = (
    select(func.coalesce(_D.payload, PAYLOAD), events.c.deleted_at)
    .select_from(delivery_rows)
    .join(events, events.c.id == _D.event_id)
    .join(orgs, orgs.c.id == _D.org_id)
    .where(IN_ORG, _D.uid == bindparam("delivery"))
)
_NAMED = _D.uid.in_(bindparam("uids", expanding=True))
_THESE = DELIVERY.where(_D.org_id == ORG, _NAMED)
_PAYLOADS = (
    select(_D.uid, func.coalesce(_D.payload, PAYLOAD))
    .select_from(delivery_rows)
    .join(events, events.c.id == _D.event_id)
    .where(_D.org_id == ORG, _NAMED, events.c.deleted_at.is_(None))
)
_DELIVERY_KEY = (
    select(_D.id, _D.created_at).join(orgs, orgs.c.id == _D.org_id).where(IN_ORG, _D.uid == bindparam("delivery"))
)
_ATTEMPTS = ATTEMPT.where(attempt_rows.c.delivery_id == bindparam("key")).order_by(
    attempt_rows.c.number, attempt_rows.c.move, attempt_rows.c.late
)
_HISTORY = HISTORY.where(history_rows.c.delivery_id == bindparam("key")).order_by(history_rows.c.move)
_TALLY = select(_D.state, func.count()).group_by(_D.state)


def event(org_id: UUID, event_id: UUID) -> Transaction[EventView]:
    rows = yield execute(_EVENT, org=org_id, event=event_id)
    if not rows:
        return (yield from _posted_event(org_id, event_id))
    key = rows[0][-4]
    retrying = yield from retrying_of([key])
    return view_from(org_id, rows[0], retrying[key])


def _posted_event(org_id: UUID, event_id: UUID) -> Transaction[EventView]:
    for posting in (yield from shown_of(org_id, [event_id])):
        return view_of_posting(posting)
    raise NotFound(f"no event {event_id}")


def deliveries(org_id: UUID, event_id: UUID) -> Transaction[list[Delivery]]:
    rows = yield execute(_DELIVERIES, org=org_id, event=event_id)
    return [delivery_from(row) for row in rows]


def delivery(org_id: UUID, delivery_id: UUID) -> Transaction[Delivery]:
    rows = yield execute(_DELIVERY, org=org_id, delivery=delivery_id)
    if not rows:
        raise NotFound(f"no delivery {delivery_id}")
    return delivery_from(rows[0])


def these_deliveries(org_id: UUID, delivery_ids: Sequence[UUID]) -> Transaction[list[Delivery]]:
    found: list[Delivery] = []
    for part in parts(list(dict.fromkeys(delivery_ids))):
        found += map(delivery_from, (yield execute(_THESE, org=org_id, uids=part)))
    return found


def attempts(org_id: UUID, delivery_id: UUID) -> Transaction[list[Attempt]]:
    key, _ = yield from _delivery_key(org_id, delivery_id)
    rows = yield execute(_ATTEMPTS, key=key)
    return [attempt_from(delivery_id, row) for row in rows]


def history(org_id: UUID, delivery_id: UUID) -> Transaction[list[HistoryLine]]:
    key, created_at = yield from _delivery_key(org_id, delivery_id)
    rows = yield execute(_HISTORY, key=key)
    accepted = HistoryLine(created_at, None, DeliveryState.PENDING, 0, notes.ACCEPTED)
    return [accepted, *map(history_from, rows)]


def payload(org_id: UUID, delivery_id: UUID) -> Transaction[bytes]:
    rows = yield execute(_PAYLOAD, org=org_id, delivery=delivery_id)
    if not rows:
        raise NotFound(f"no delivery {delivery_id}")
    found, deleted_at = rows[0]
    if deleted_at is not None:
        raise NotFound(notes.no_payload(delivery_id))
    return bytes(found)


def payloads(org_id: UUID, delivery_ids: Sequence[UUID]) -> Transaction[dict[UUID, bytes]]:
    found: dict[UUID, bytes] = {}
    for part in parts(list(dict.fromkeys(delivery_ids))):
        found |= {delivery_id: bytes(given) for delivery_id, given in (yield execute(_PAYLOADS, org=org_id, uids=part))}
    return found


def tally() -> Transaction[dict[DeliveryState, int]]:
    rows = yield execute(_TALLY)
    return dict.fromkeys(DeliveryState, 0) | {DeliveryState(state): count for state, count in rows}


def _delivery_key(org_id: UUID, delivery_id: UUID) -> Transaction[tuple[int, int]]:
    rows = yield execute(_DELIVERY_KEY, org=org_id, delivery=delivery_id)
    if not rows:
        raise NotFound(f"no delivery {delivery_id}")
    return rows[0][0], rows[0][1]
