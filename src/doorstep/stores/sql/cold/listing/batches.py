"""Batches, the newest first.

Batch deliveries have an index of their own, by state: whatever else there is, and however much, is not looked at. The
states that a status stands for are walked one by one, and put together in the order of their ids.
"""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import bindparam, literal_column, select

from doorstep.model.batch import BatchFilter
from doorstep.model.delivery import Delivery
from doorstep.model.listing import Page
from doorstep.stores import cursor as cursors
from doorstep.stores.sql.cold.listing.filters import of_type, values_of
from doorstep.stores.sql.cold.listing.walking import ORG, Condition, Stretch, gathered, stretch, walk_over
from doorstep.stores.sql.cold.rows import DELIVERY, delivery_from
from doorstep.stores.sql.cold.script import Script
from doorstep.stores.sql.schema import deliveries, events

_D = deliveries.c
_FIRST, _LAST = UUID(int=0), UUID(int=cursors.ID_MAX)
_IS_BATCH: tuple[Condition, ...] = (literal_column("doorstep_deliveries.batch"), _D.deleted_at.is_(None))
"""In the words of BATCHES: only so do both databases see that the index has all of them."""
_IN_STATE = _D.state == select(bindparam("state", type_=_D.state.type)).scalar_subquery()
"""Hidden from the planner: one that saw `in_progress` went through everything in progress, which has an index too."""
_MATCHING = (of_type(events.c.event_type), events.c.deleted_at.is_(None))
_WALK = walk_over((_D.org_id == ORG, *_IS_BATCH, _IN_STATE), (_D.uid,), DELIVERY, _MATCHING, newest_first=True)


def list_batches(org_id: UUID, wanted: BatchFilter, cursor: str | None, limit: int) -> Script[Page[Delivery]]:
    place = cursors.read(cursor, cursors.ID_MAX)
    after = (_LAST if place is None else UUID(int=place[0]),)
    values = {"org": org_id, **values_of(wanted.event_type)}
    found: list[Stretch] = []
    for state in sorted(wanted.states):
        found.append((yield from stretch(_WALK, after, (_FIRST,), limit, values | {"state": state.value})))
    rows, onward = gathered(_WALK, found, limit)
    return Page(tuple(map(delivery_from, rows)), None if onward is None else cursors.write(onward[0].int))
