"""Pages and counts at a bounded cost: an index is scanned from a position until the page is full or EXAMINED_MAX
entries have been examined.

A scan consists of two statements on one index. The first uses only the index to find the horizon, which is the position
of the last entry that may be examined. The second reads the matching rows up to the horizon, in the order of the index.
So a call never reads more than EXAMINED_MAX rows, even if no entry matches the filter or the planner chooses a bad
plan.
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
from doorstep.stores.limits import EXAMINED_MAX, check_storable, write_cursor
from doorstep.stores.sql.queries.transaction import Row, Rows, Transaction, execute
from doorstep.stores.sql.schema import UID, deliveries, endpoints, events, orgs

T = TypeVar("T")
Column = ColumnElement[Any]
Condition = ColumnElement[bool] | TextClause
Statement = Select[*tuple[Any, ...]]
Position = tuple[Any, ...]
"""The sort values of one entry of a list."""

ORG = select(orgs.c.id).where(orgs.c.uid == bindparam("org")).scalar_subquery()
"""The organization's key. This is a subquery rather than a join, because both databases use the sort order of an index
only if its first column is compared with a constant."""


class IndexScan(NamedTuple):
    """The two statements that read a list. The last `width` columns of a row are its position."""

    horizon: Statement
    matches: Statement
    width: int
    """The number of columns of a position."""
    newest_first: bool


class Slice(NamedTuple):
    """The rows that a scan found, and the position of the last entry that it examined, or None if it reached the end of
    the list."""

    rows: Rows
    end: Position | None


def index_scan(
    within: Sequence[Condition],
    position: Sequence[Column],
    found: Statement,
    matching: Sequence[Condition] = (),
    *,
    newest_first: bool = False,
) -> IndexScan:
    """A scan of the index entries that meet the conditions `within`, in the order of the columns `position`. It runs
    the query `found` for those entries that also meet the conditions `matching`."""
    ahead = between(position, newest_first)
    order = [column.desc() if newest_first else column for column in position]
    horizon = select(*position).where(*within, *ahead).order_by(*order).limit(1).offset(EXAMINED_MAX - 1)
    matches = found.add_columns(*position).where(*within, *ahead, *matching).order_by(*order).limit(bindparam("limit"))
    return IndexScan(horizon, matches, len(position), newest_first)


def read_slice(
    scan: IndexScan,
    after: Position,
    until: Position,
    limit: int,
    values: Mapping[str, object],
    *,
    filtered: bool = True,
) -> Transaction[Slice]:
    """Up to `limit` rows after a position, plus one more if the list continues. If `filtered` is False, every entry
    matches, so `limit` alone bounds the scan and the horizon is not queried."""
    end: Position | None = None
    if filtered:
        horizon = yield execute(scan.horizon, **bounds(after, until), **values)
        end = tuple(horizon[0]) if horizon else None
    rows = yield execute(scan.matches, **bounds(after, end or until), limit=limit + 1, **values)
    return Slice(rows, _position(rows[-1], scan) if len(rows) > limit else end)


def page_of(scan: IndexScan, slices: Sequence[Slice], limit: int, make: Callable[[Row], T]) -> Page[T]:
    """One page, merged from slices with the same sort order. It ends at the last position that all slices have
    reached."""
    rows, end = merge_slices(scan, slices, limit)
    return Page(tuple(make(row) for row in rows), cursor_of(end))


def cursor_of(end: Position | None) -> str | None:
    return None if end is None else write_cursor(*map(int, end))


def merge_slices(scan: IndexScan, slices: Sequence[Slice], limit: int) -> tuple[list[Row], Position | None]:
    """The rows of one page, and the position after which the next page begins, or None if this is the last page."""
    rows = list(merge(*(one.rows for one in slices), key=lambda row: _position(row, scan), reverse=scan.newest_first))
    ends = [one.end for one in slices if one.end is not None]
    end = None if not ends else max(ends) if scan.newest_first else min(ends)
    if end is not None:
        rows = [
            row for row in rows if (_position(row, scan) >= end if scan.newest_first else _position(row, scan) <= end)
        ]
    return rows[:limit], _position(rows[limit - 1], scan) if len(rows) > limit else end


def _position(row: Row, scan: IndexScan) -> Position:
    return tuple(row[-scan.width :])


def between(position: Sequence[Column], newest_first: bool) -> list[ColumnElement[bool]]:
    """The conditions that an entry is between the parameters made by `bounds`."""
    after, until = (_values(edge, position) for edge in ("after", "until"))
    here = tuple_(*position) if len(position) > 1 else position[0]
    return [here < after, here >= until] if newest_first else [here > after, here <= until]


def _values(edge: str, position: Sequence[Column]) -> Column:
    """The parameters for one bound (`after` or `until`). PostgreSQL requires them to have the types of the columns."""
    binds = [bindparam(f"{edge}_{n}", type_=column.type) for n, column in enumerate(position)]
    return tuple_(*binds) if len(binds) > 1 else binds[0]


def bounds(after: Position, until: Position) -> dict[str, object]:
    edges = (("after", after), ("until", until))
    return {f"{edge}_{n}": value for edge, position in edges for n, value in enumerate(position)}


def unindexed(column: Column) -> Column:
    """The column as an expression that no index contains. Otherwise the databases would read a long index in order,
    rather than sort or filter a few rows."""
    return func.coalesce(column, column)


# -- counting ----------------------------------------------------------------------------------------------


def entry_count(within: Sequence[Condition], entry: Column) -> Statement:
    """A statement that counts the index entries selected by the conditions `within`, up to `limit`."""
    entries = select(entry).where(*within).limit(bindparam("limit")).subquery()
    return select(func.count()).select_from(entries)


def count_up_to(limit: int, examined: int, matched: int | None = None) -> Count:
    """The count that results from `examined` entries, of which `matched` (default: all) match. If `examined` is greater
    than `limit`, there are more entries and the count is a lower bound."""
    found = examined if matched is None else matched
    return Count(min(found, limit), exact=examined <= limit)


Columns = ReadOnlyColumnCollection[str, Any]
"""The columns of deliveries, from their table or from a subquery."""

Matching = Callable[[Columns], ColumnElement[bool]]
"""A filter of deliveries."""

_D = deliveries.c


def has_type(column: Column) -> ColumnElement[bool]:
    """The condition that an event type has the requested name or prefix."""
    name = bindparam("type_name", type_=String())
    prefix = func.substr(column, 1, bindparam("type_length"))
    return and_(or_(name.is_(None), column == name), prefix == bindparam("type_prefix"))


_ENDPOINT = bindparam("endpoint", type_=UID)
ENDPOINT_KEY = select(endpoints.c.id).where(endpoints.c.uid == _ENDPOINT).scalar_subquery()
"""The key of the endpoint to filter by. This is a subquery rather than a join for the same reason as ORG."""


def has_endpoint(delivery: Columns) -> ColumnElement[bool]:
    return or_(_ENDPOINT.is_(None), delivery.endpoint_id == ENDPOINT_KEY)


def values_of(event_type: str | None, endpoint_id: UUID | None = None) -> dict[str, object]:
    """The parameters of `has_type` and `has_endpoint`. An event type is a name, or a prefix followed by `*`."""
    check_storable("event_type", event_type)
    pattern = "*" if event_type is None else event_type
    is_name = not pattern.endswith("*")
    prefix = "" if is_name else pattern[:-1]
    return {
        "type_name": pattern if is_name else None,
        "type_length": len(prefix),
        "type_prefix": prefix,
        "endpoint": endpoint_id,
    }


def match_count(within: Sequence[Condition], matching: Matching) -> Statement:
    """A statement that counts the deliveries selected by the conditions `within`, up to `limit`, and those of them that
    match the filter."""
    entries = _entries(within)
    matches = and_(matching(entries.c), has_type(events.c.event_type))
    return (
        select(func.count(), func.count(case((matches, 1))))
        .select_from(entries)
        .join(events, events.c.id == entries.c.event_id)
    )


def count_per_endpoint(within: Sequence[Condition], matching: Matching | None = None) -> Statement:
    """A statement that counts matching deliveries, with one row per endpoint. Without a filter, it does not read
    events."""
    entries = _entries(within)
    found = select(endpoints.c.uid, func.count()).select_from(entries)
    if matching is not None:
        matches = and_(matching(entries.c), has_type(events.c.event_type))
        found = found.join(events, events.c.id == entries.c.event_id).where(matches)
    return found.join(endpoints, endpoints.c.id == entries.c.endpoint_id).group_by(endpoints.c.uid)


def _entries(within: Sequence[Condition]) -> Subquery:
    needed = (_D.event_id, _D.endpoint_id, _D.state, _D.first_failed_at)
    return select(*needed).where(*within).limit(bindparam("limit")).subquery()
