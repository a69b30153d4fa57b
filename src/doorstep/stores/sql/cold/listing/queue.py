"""The retry queue: what failed and will be tried again, or is being tried again, the next to be tried first."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import ColumnElement, String, and_, bindparam, or_

from doorstep.model.delivery import Delivery, DeliveryState
from doorstep.model.listing import Count, Page, Queue
from doorstep.stores import cursor as cursors
from doorstep.stores.sql.cold.listing.filters import (
    Columns,
    counted_by_endpoint,
    counted_matches,
    of_endpoint,
    of_type,
    values_of,
)
from doorstep.stores.sql.cold.listing.walking import (
    ORG,
    count_up_to,
    counted_over,
    page_of,
    stretch,
    walk_over,
)
from doorstep.stores.sql.cold.rows import DELIVERY, delivery_from
from doorstep.stores.sql.cold.script import Script, ask
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


def retry_queue(org_id: UUID, wanted: Queue, cursor: str | None, limit: int) -> Script[Page[Delivery]]:
    after = cursors.read_instant(cursor) or _FIRST
    values = _values(org_id, wanted)
    found = yield from stretch(_QUEUE, after, _LAST, limit, values, filtered=wanted != Queue())
    return page_of(_QUEUE, [found], limit, delivery_from)


def count_retry_queue(org_id: UUID, wanted: Queue, limit: int) -> Script[Count]:
    statement = _COUNT if wanted == Queue() else _COUNT_WANTED
    rows = yield ask(statement, most=limit + 1, **_values(org_id, wanted))
    return count_up_to(limit, *rows[0])


def retry_queue_by_endpoint(org_id: UUID, wanted: Queue, limit: int) -> Script[dict[UUID, int]]:
    statement = _BY_ENDPOINT if wanted == Queue() else _WANTED_BY_ENDPOINT
    return dict((yield ask(statement, most=limit, **_values(org_id, wanted))))


def _values(org_id: UUID, wanted: Queue) -> dict[str, object]:
    filters = values_of(wanted.event_type, wanted.endpoint_id)
    return {"org": org_id, "state": _STATES[wanted.waiting], "failed_before": wanted.failed_before, **filters}
