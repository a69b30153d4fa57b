"""Deleting an event: it leaves every list, and what its sender gave is erased; its log stays."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import bindparam, case, delete, func, null, select, update

from doorstep.clock import Instant
from doorstep.errors import Conflict, NotFound
from doorstep.model.claim import Moved
from doorstep.model.delivery import DEAD_STATES, DeliveryState
from doorstep.model.event import EventStatus
from doorstep.stores import notes
from doorstep.stores.sql.queries.actions import CANCEL, DELETE
from doorstep.stores.sql.queries.aggregation import tick
from doorstep.stores.sql.queries.audit import write_line
from doorstep.stores.sql.queries.moves import MOVER, Mover, move, update_statuses
from doorstep.stores.sql.queries.ordering import turns_of, unblock_after
from doorstep.stores.sql.queries.orgs import org_key
from doorstep.stores.sql.queries.rows import EVENT_KEY, IN_ORG
from doorstep.stores.sql.queries.transaction import Transaction, execute, execute_on_postgres
from doorstep.stores.sql.schema import deliveries, events, orgs, payloads
from doorstep.stores.tally import Tally

_ITS_DELIVERIES = MOVER.where(deliveries.c.event_id == EVENT_KEY, deliveries.c.deleted_at.is_(None))
_ITS_TURNS = turns_of(_ITS_DELIVERIES)
_LOCK_DELIVERIES = _ITS_DELIVERIES.order_by(deliveries.c.id).with_for_update(of=deliveries)
_EVENT = (
    select(events.c.id)
    .join(orgs, orgs.c.id == events.c.org_id)
    .where(IN_ORG, events.c.uid == bindparam("event"), events.c.deleted_at.is_(None))
    .with_for_update(of=events)
)
_AT = bindparam("at", type_=events.c.deleted_at.type)
_ERASE = (
    update(events)
    .where(events.c.id == bindparam("key"))
    .values(
        deleted_at=_AT,
        ended_at=case((events.c.delivery_count == 0, func.coalesce(events.c.ended_at, _AT)), else_=events.c.ended_at),
        payload=b"",
        metadata=b"{}",
    )
    .returning(events.c.org_id, events.c.status)
)
_ERASE_LONG = delete(payloads).where(payloads.c.event_id == bindparam("key"))
_ERASE_EDITED = (
    update(deliveries)
    .where(deliveries.c.event_id == bindparam("key"), deliveries.c.payload.is_not(None))
    .values(payload=null())
)


def delete_event(org_id: UUID, event_id: UUID, actor: str, now: Instant, reason: str = "") -> Transaction[Moved]:
    """Deliveries are locked before their event, as everywhere: two that delete it at once wait for each other here,
    and the second then finds it gone."""
    org = yield from org_key(org_id)
    yield execute_on_postgres(_ITS_TURNS, org=org_id, event=event_id)
    movers = [Mover.of(row) for row in (yield execute(_LOCK_DELIVERIES, org=org_id, event=event_id))]
    found = yield execute(_EVENT, org=org_id, event=event_id)
    if not found:
        raise NotFound(f"no event {event_id}")
    if any(mover.state is DeliveryState.IN_PROGRESS for mover in movers):
        raise Conflict(notes.in_progress(event_id))
    waiting = [mover for mover in movers if mover.state is DeliveryState.PENDING]
    letters = [mover for mover in movers if mover.state in DEAD_STATES]
    yield from move(waiting, CANCEL, now, notes.deleted(actor), at=now)
    yield from move(letters, DELETE, now, "", at=now)
    changes = yield from update_statuses([(mover, DeliveryState.CANCELLED) for mover in waiting], now)
    yield from _erase(found[0][0], now)
    yield from write_line(org, notes.deletion(org_id, event_id, actor, now, len(waiting), len(letters), reason))
    yield from unblock_after(waiting, now)
    return Moved(tuple(mover.to(DeliveryState.CANCELLED) for mover in waiting), tuple(changes))


def _erase(key: int, now: Instant) -> Transaction[None]:
    tally = Tally()
    for org, status in (yield execute(_ERASE, key=key, at=now)):
        tally.status(org, EventStatus(status), None)
    yield from tick(tally, now)
    yield execute(_ERASE_LONG, key=key)
    yield execute(_ERASE_EDITED, key=key)
