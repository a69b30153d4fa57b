"""Walking an index: from a place on, past what does not match, until a page is full or enough has been looked at.

A walk is two statements over one index. The first finds the horizon, the place of the last entry that may be looked
at, from the index alone. The second reads what matches up to there, in the order of the index. So neither a filter
that matches nothing nor a planner that guesses wrong makes a call read more than EXAMINED_MAX rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from heapq import merge
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Select,
    String,
    Subquery,
    TextClause,
    and_,
    bindparam,
    case,
    func,
    or_,
    select,
    tuple_,
)
from sqlalchemy.sql.base import ReadOnlyColumnCollection

from doorstep.model.listing import Count, Page
from doorstep.stores import cursor as cursors
from doorstep.stores.limits import EXAMINED_MAX
from doorstep.stores.sql.queries.transaction import Row, Rows, Transaction, execute
from doorstep.stores.sql.schema import UID, deliveries, endpoints, events, orgs
from doorstep.stores.text import check_storable

T = TypeVar("T")
Column = ColumnElement[Any]
Condition = ColumnElement[bool] | TextClause
Statement = Select[*tuple[Any, ...]]
Place = tuple[Any, ...]
"""Where an entry stands in the order of its list: the values that the list is sorted by."""

ORG = select(orgs.c.id).where(orgs.c.uid == bindparam("org")).scalar_subquery()
"""The organization's key. Not a join: only behind a constant do both databases take the index's order for the list's."""


class Walk(NamedTuple):
    """The two statements of a list. The place of a row is in its last columns."""

    horizon: Statement
    matches: Statement
    width: int
    """How many columns make a place."""
    newest_first: bool


class Stretch(NamedTuple):
    """What was found on a walk, and the place of the last entry that was looked at; None at the end of the list."""

    rows: Rows
    end: Place | None


def walk_over(
    within: Sequence[Condition],
    place: Sequence[Column],
    found: Statement,
    matching: Sequence[Condition] = (),
    *,
    newest_first: bool = False,
) -> Walk:
    """A walk over the entries `within` an index sorted by `place`, to `found`, the columns of those `matching`."""
    ahead = _between(place, newest_first)
    order = [column.desc() if newest_first else column for column in place]
    horizon = select(*place).where(*within, *ahead).order_by(*order).limit(1).offset(EXAMINED_MAX - 1)
    matches = found.add_columns(*place).where(*within, *ahead, *matching).order_by(*order).limit(bindparam("most"))
    return Walk(horizon, matches, len(place), newest_first)


def stretch(
    walk: Walk, after: Place, until: Place, limit: int, values: Mapping[str, object], *, filtered: bool = True
) -> Transaction[Stretch]:
    """Up to `limit` rows after a place, and one more to tell that there is more. Without a filter every entry is
    a match, and no horizon is needed."""
    end: Place | None = None
    if filtered:
        horizon = yield execute(walk.horizon, **_bounds(after, until), **values)
        end = tuple(horizon[0]) if horizon else None
    rows = yield execute(walk.matches, **_bounds(after, end or until), most=limit + 1, **values)
    return Stretch(rows, _place(rows[-1], walk) if len(rows) > limit else end)


def page_of(walk: Walk, stretches: Sequence[Stretch], limit: int, make: Callable[[Row], T]) -> Page[T]:
    """One page of stretches that are sorted alike, only as far as all of them have been looked at."""
    rows, onward = gathered(walk, stretches, limit)
    return Page(tuple(make(row) for row in rows), None if onward is None else cursors.write(*map(int, onward)))


def gathered(walk: Walk, stretches: Sequence[Stretch], limit: int) -> tuple[list[Row], Place | None]:
    """The rows of one page, and where the next one goes on."""
    rows = list(merge(*(one.rows for one in stretches), key=lambda row: _place(row, walk), reverse=walk.newest_first))
    ends = [one.end for one in stretches if one.end is not None]
    end = None if not ends else max(ends) if walk.newest_first else min(ends)
    if end is not None:
        rows = [row for row in rows if (_place(row, walk) >= end if walk.newest_first else _place(row, walk) <= end)]
    return rows[:limit], _place(rows[limit - 1], walk) if len(rows) > limit else end


def _place(row: Row, walk: Walk) -> Place:
    return tuple(row[-walk.width :])


def _between(place: Sequence[Column], newest_first: bool) -> list[ColumnElement[bool]]:
    after, until = (_values(edge, place) for edge in ("after", "until"))
    here = tuple_(*place) if len(place) > 1 else place[0]
    return [here < after, here >= until] if newest_first else [here > after, here <= until]


def _values(edge: str, place: Sequence[Column]) -> Column:
    """An edge as a value to compare with; of the same types as the columns, which PostgreSQL wants to know."""
    binds = [bindparam(f"{edge}_{n}", type_=column.type) for n, column in enumerate(place)]
    return tuple_(*binds) if len(binds) > 1 else binds[0]


def _bounds(after: Place, until: Place) -> dict[str, object]:
    edges = (("after", after), ("until", until))
    return {f"{edge}_{n}": value for edge, place in edges for n, value in enumerate(place)}


# -- counting ----------------------------------------------------------------------------------------------


def counted_over(within: Sequence[Condition], entry: Column) -> Statement:
    """How many entries there are within an index, up to `most`."""
    entries = select(entry).where(*within).limit(bindparam("most")).subquery()
    return select(func.count()).select_from(entries)


def count_up_to(limit: int, examined: int, matched: int | None = None) -> Count:
    """The count after looking at `examined` entries, one more than the limit if there are so many."""
    found = examined if matched is None else matched
    return Count(min(found, limit), exact=examined <= limit)


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
