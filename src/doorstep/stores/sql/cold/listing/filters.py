"""Filters: conditions that stand in every statement of a list, and let everything through where nothing was asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, String, Subquery, and_, bindparam, case, func, or_, select
from sqlalchemy.sql.base import ReadOnlyColumnCollection

from doorstep.stores.sql.cold.listing.walking import Column, Condition, Statement
from doorstep.stores.sql.schema import UID, deliveries, endpoints, events
from doorstep.stores.text import check_storable

Columns = ReadOnlyColumnCollection[str, Any]
"""The columns of a delivery, in its table or in a part of it."""

Matching = Callable[[Columns], ColumnElement[bool]]
"""What is wanted of a delivery."""

_D = deliveries.c


def of_type(column: Column) -> ColumnElement[bool]:
    """The wanted event type, by its name or by how it begins."""
    name = bindparam("type_name", type_=String())
    beginning = func.substr(column, 1, bindparam("type_length"))
    return and_(or_(name.is_(None), column == name), beginning == bindparam("type_beginning"))


_ENDPOINT = bindparam("endpoint", type_=UID)
ENDPOINT_KEY = select(endpoints.c.id).where(endpoints.c.uid == _ENDPOINT).scalar_subquery()
"""The wanted endpoint's key; no join, like walking.ORG."""


def of_endpoint(delivery: Columns) -> ColumnElement[bool]:
    return or_(_ENDPOINT.is_(None), delivery.endpoint_id == ENDPOINT_KEY)


def values_of(event_type: str | None, endpoint_id: UUID | None = None) -> dict[str, object]:
    """The values for both. An event type is a name, or a pattern whose final `*` stands for any rest."""
    check_storable("event_type", event_type)
    pattern = "*" if event_type is None else event_type
    is_name = not pattern.endswith("*")
    beginning = "" if is_name else pattern[:-1]
    return {
        "type_name": pattern if is_name else None,
        "type_length": len(beginning),
        "type_beginning": beginning,
        "endpoint": endpoint_id,
    }


def counted_matches(within: Sequence[Condition], matching: Matching) -> Statement:
    """How many deliveries there are within an index, up to `most`, and how many of them are wanted."""
    entries = _entries(within)
    wanted = and_(matching(entries.c), of_type(events.c.event_type))
    return (
        select(func.count(), func.count(case((wanted, 1))))
        .select_from(entries)
        .join(events, events.c.id == entries.c.event_id)
    )


def counted_by_endpoint(within: Sequence[Condition], matching: Matching | None = None) -> Statement:
    """The same, one line for each endpoint; events are not looked at where nothing is asked that they know."""
    entries = _entries(within)
    found = select(endpoints.c.uid, func.count()).select_from(entries)
    if matching is not None:
        wanted = and_(matching(entries.c), of_type(events.c.event_type))
        found = found.join(events, events.c.id == entries.c.event_id).where(wanted)
    return found.join(endpoints, endpoints.c.id == entries.c.endpoint_id).group_by(endpoints.c.uid)


def _entries(within: Sequence[Condition]) -> Subquery:
    needed = (_D.event_id, _D.endpoint_id, _D.state, _D.first_failed_at)
    return select(*needed).where(*within).limit(bindparam("most")).subquery()
