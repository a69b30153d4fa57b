"""Walking an index: from a place on, past what does not match, until a page is full or enough has been looked at.

A walk is two statements over one index. The first finds the horizon, the place of the last entry that may be looked
at, from the index alone. The second reads what matches up to there, in the order of the index. So neither a filter
that matches nothing nor a planner that guesses wrong makes a call read more than EXAMINED_MAX rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from heapq import merge
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import ColumnElement, Select, TextClause, bindparam, func, select, tuple_

from doorstep.model.listing import Count, Page
from doorstep.stores import cursor as cursors
from doorstep.stores.bounds import EXAMINED_MAX
from doorstep.stores.sql.cold.script import Row, Rows, Script, ask
from doorstep.stores.sql.schema import orgs

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
) -> Script[Stretch]:
    """Up to `limit` rows after a place, and one more to tell that there is more. Without a filter every entry is
    a match, and no horizon is needed."""
    end: Place | None = None
    if filtered:
        horizon = yield ask(walk.horizon, **_bounds(after, until), **values)
        end = tuple(horizon[0]) if horizon else None
    rows = yield ask(walk.matches, **_bounds(after, end or until), most=limit + 1, **values)
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
