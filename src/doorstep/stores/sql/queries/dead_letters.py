"""Dead letters, newest first.

Archived dead letters are in two ranges of the index: one for dead letters that the cleaner has archived, and one for
old dead letters that it has not archived yet. Both ranges are scanned, and the results are merged in the order of
`settled_at`, the time at which a delivery became a dead letter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from msgspec.structs import replace
from sqlalchemy import (
    CTE,
    BigInteger,
    ColumnElement,
    ScalarSelect,
    Select,
    bindparam,
    func,
    literal,
    literal_column,
    null,
    or_,
    select,
)

from doorstep.clock import Instant
from doorstep.model.delivery import Delivery, DeliveryState
from doorstep.model.listing import CauseGroup, CauseGroups, Count, DeadLetterFilter, Page
from doorstep.model.rollup import HOUR
from doorstep.stores.limits import (
    COUNT_MAX,
    DEAD_LETTERS_COUNTED_MAX,
    GROUP_DEPTH,
    GROUPS_COUNTED_MAX,
    GROUPS_TYPED_MAX,
    KEY_MAX,
    read_cursor,
    read_instant_cursor,
    write_cursor,
)
from doorstep.stores.sql.queries.paging import (
    ENDPOINT_KEY,
    ORG,
    Column,
    Columns,
    Condition,
    IndexScan,
    Slice,
    Statement,
    count_per_endpoint,
    count_up_to,
    entry_count,
    has_endpoint,
    has_type,
    index_scan,
    match_count,
    page_of,
    read_slice,
    values_of,
)
from doorstep.stores.sql.queries.rows import DELIVERY, delivery_from
from doorstep.stores.sql.queries.transaction import KEYS, LIMIT, Row, Transaction, execute, execute_in_parts
from doorstep.stores.sql.schema import INSTANT, deliveries, endpoints, events

_D = deliveries.c
_NO_ID = UUID(int=0)


# -- ranges of the index -----------------------------------------------------------------------------------


class Range(NamedTuple):
    """Dead letters that are in one state and have a `settled_at` from `low` (inclusive) to `high` (exclusive)."""

    state: DeliveryState
    low: Instant
    high: Instant


def ranges_of(query: DeadLetterFilter) -> list[Range]:
    """The ranges of the index that contain the matching dead letters."""
    low = max(query.died_from or 0, 0)
    high = KEY_MAX if query.died_before is None else max(query.died_before, 0)
    if not query.archived:
        return [Range(DeliveryState.DEAD, max(low, query.archived_before), high)]
    old = Range(DeliveryState.DEAD, low, min(high, query.archived_before))
    return [Range(DeliveryState.ARCHIVED, low, high), old]


def cause_of(query: DeadLetterFilter) -> int | None:
    """The cause to filter by. If the requested number does not fit in the column, this is -1, which matches nothing."""
    return query.cause if query.cause is None or 0 <= query.cause <= KEY_MAX else -1


def dead_in(state: DeliveryState, letter: Columns = _D) -> tuple[Condition, ...]:
    """The conditions for an organization's dead letters in one state. They contain the condition DEAD of the partial
    indexes word for word, because a database uses a partial index only if it recognizes its condition in the query.
    These conditions suffice for the index by cause; the other two indexes also need the extra terms of DEAD_BY_TIME and
    DEAD_BY_ENDPOINT."""
    dead, archived = (letter.state == literal_column(f"'{one}'") for one in ("dead", "archived"))
    in_state = dead if state is DeliveryState.DEAD else archived
    return letter.org_id == ORG, or_(dead, archived), letter.deleted_at.is_(None), in_state


# -- list and counts ---------------------------------------------------------------------------------------

_STATES = (DeliveryState.DEAD, DeliveryState.ARCHIVED)
_OF_CAUSE = _D.cause == bindparam("cause")
_OF_ENDPOINT = (_D.endpoint_id > literal_column("0"), _D.endpoint_id == ENDPOINT_KEY)
_LOW, _HIGH = bindparam("low", type_=INSTANT), bindparam("high", type_=INSTANT)
_DIED = (_D.settled_at >= _LOW, _D.settled_at < _HIGH)


class _Statements(NamedTuple):
    """The SQL statements that read dead letters in one state."""

    scan: IndexScan
    count_all: Statement
    count_matching: Statement
    by_endpoint: Statement
    matching_by_endpoint: Statement


def _statements(state: DeliveryState, *more: Condition) -> _Statements:
    within = (*dead_in(state), *more)
    matching = (has_endpoint(_D), has_type(events.c.event_type))
    return _Statements(
        index_scan(within, (_D.settled_at, _D.uid), DELIVERY, matching, newest_first=True),
        entry_count((*within, *_DIED), _D.uid),
        match_count((*within, *_DIED), has_endpoint),
        count_per_endpoint((*within, *_DIED)),
        count_per_endpoint((*within, *_DIED), has_endpoint),
    )


_ALL = {state: _statements(state, _D.due_at.is_(None)) for state in _STATES}
_OF_ONE_ENDPOINT = {state: _statements(state, *_OF_ENDPOINT) for state in _STATES}
_OF_ONE_CAUSE = {state: _statements(state, _OF_CAUSE) for state in _STATES}


def dead_letters(org_id: UUID, query: DeadLetterFilter, cursor: str | None, limit: int) -> Transaction[Page[Delivery]]:
    reached = read_instant_cursor(cursor)
    values, filtered, statements = _values(org_id, query), _is_filtered(query), _statements_for(query)
    found: list[Slice] = []
    for state, low, high in ranges_of(query):
        begin, end = (high, _NO_ID), (low, _NO_ID)
        scan, after = statements[state].scan, min(begin, reached or begin)
        found.append((yield from read_slice(scan, after, end, limit, values, filtered=filtered)))
    return page_of(statements[DeliveryState.DEAD].scan, found, limit, delivery_from)


def count_dead_letters(org_id: UUID, query: DeadLetterFilter, limit: int) -> Transaction[Count]:
    examined = matched = 0
    for state, low, high in ranges_of(query):
        statements = _statements_for(query)[state]
        statement = statements.count_matching if _is_filtered(query) else statements.count_all
        rows = yield execute(statement, low=low, high=high, limit=limit + 1 - examined, **_values(org_id, query))
        examined += rows[0][0]
        matched += rows[0][-1]
    return count_up_to(limit, examined, matched)


def dead_letters_by_endpoint(org_id: UUID, query: DeadLetterFilter, limit: int) -> Transaction[dict[UUID, int]]:
    found: Counter[UUID] = Counter()
    for state, low, high in ranges_of(query):
        statements = _statements_for(query)[state]
        statement = statements.matching_by_endpoint if _is_filtered(query) else statements.by_endpoint
        found += Counter(dict((yield execute(statement, low=low, high=high, limit=limit, **_values(org_id, query)))))
    return dict(found)


def _statements_for(query: DeadLetterFilter) -> dict[DeliveryState, _Statements]:
    if query.cause is not None:
        return _OF_ONE_CAUSE
    return _ALL if query.endpoint_id is None else _OF_ONE_ENDPOINT


def _is_filtered(query: DeadLetterFilter) -> bool:
    """Whether rows must be filtered after the index lookup. (With a cause and an endpoint, nothing matches unless the
    cause belongs to that endpoint.)"""
    return query.event_type is not None or (query.endpoint_id is not None and query.cause is not None)


def _values(org_id: UUID, query: DeadLetterFilter) -> dict[str, object]:
    return {"org": org_id, "cause": cause_of(query), **values_of(query.event_type, query.endpoint_id)}


_HOPS_MIN = 250
"""The minimum number of causes examined for one page. It is large because, with a filter by endpoint, only a few of
the examined causes may match."""


def cause_groups(org_id: UUID, grouped: CauseGroups, cursor: str | None, limit: int) -> Transaction[Page[CauseGroup]]:
    query = grouped.filter
    values, hops = _cause_values(org_id, query, cursor), max(limit + 1, _HOPS_MIN)
    causes, end = yield from _causes(query, hops, values)
    chosen = sorted(causes)[:limit]
    next_cause = chosen[-1] if len(causes) > limit else end
    groups = yield from _groups_of(chosen, query, values | {"hops": hops})
    newest_first = sorted(groups.values(), key=lambda group: (group.last_died_at, group.cause), reverse=True)
    return Page(tuple(newest_first), None if next_cause is None else write_cursor(next_cause))


def _cause_values(org_id: UUID, query: DeadLetterFilter, cursor: str | None) -> dict[str, object]:
    (after,) = read_cursor(cursor, KEY_MAX) or (-1,)
    cause, last = cause_of(query), KEY_MAX
    if cause is not None:
        after, last = max(after, cause - 1), cause
    return {"org": org_id, "after": after, "last": last, **values_of(query.event_type, query.endpoint_id)}


def _causes(query: DeadLetterFilter, hops: int, values: dict[str, object]) -> Transaction[tuple[set[int], int | None]]:
    """The next causes with dead letters in the filtered time range, and the last examined cause (None if there are no
    more causes)."""
    causes: set[int] = set()
    ends: list[int] = []
    for where in ranges_of(query):
        rows = yield execute(_CAUSES[where.state], hops=hops, low=where.low, high=where.high, **values)
        any_endpoint = query.endpoint_id is None
        causes |= {
            cause
            for cause, endpoint, filtered in rows
            if endpoint is not None and (any_endpoint or endpoint == filtered)
        }
        if len(rows) == hops:
            ends.append(max(row[0] for row in rows))
    end = min(ends, default=None)
    return {cause for cause in causes if end is None or cause <= end}, end


def _groups_of(
    chosen: Sequence[int], query: DeadLetterFilter, values: dict[str, object]
) -> Transaction[dict[int, CauseGroup]]:
    """The group of each cause. If a cause has dead letters in both ranges, they form one group."""
    groups: dict[int, CauseGroup] = {}
    if not chosen:
        return groups
    typed = query.event_type is not None
    statements = _GROUPS_OF_TYPE if typed else _GROUPS
    depth_max, total_max = (GROUP_DEPTH, GROUPS_TYPED_MAX) if typed else (COUNT_MAX, GROUPS_COUNTED_MAX)
    depth = min(depth_max, total_max // len(chosen))
    for where in ranges_of(query):
        bounds = {"low": where.low, "high": where.high, "depth": depth, "beyond": depth + 1, "causes": chosen}
        rows = [row for row in (yield execute(statements[where.state], **values, **bounds)) if row[1] is not None]
        found = yield from execute_in_parts(_NEWEST, "keys", [row[1] for row in rows])
        newest = {row[0]: row for row in found}
        for group in (_group(row, newest[row[1]], depth) for row in rows):
            groups[group.cause] = _merged(groups.get(group.cause), group)
    return groups


def _merged(one: CauseGroup | None, other: CauseGroup) -> CauseGroup:
    """Merge the groups of one cause from the two ranges: dead letters that the cleaner has archived, and those that it
    has not archived yet."""
    if one is None:
        return other
    total = one.count.value + other.count.value
    return replace(
        max(one, other, key=lambda group: group.last_died_at),
        count=Count(min(total, COUNT_MAX), exact=one.count.exact and other.count.exact and total <= COUNT_MAX),
        first_died_at=min(one.first_died_at, other.first_died_at),
    )


# -- causes ------------------------------------------------------------------------------------------------


def _hops(state: DeliveryState) -> CTE:
    """The next causes that are greater than `after` and at most `last`, up to `hops` of them."""
    first = _next_cause(state, bindparam("after", type_=BigInteger()))
    hop = select(first.label("cause"), literal(1).label("n")).cte("hop", recursive=True)
    more = (hop.c.cause.is_not(None), hop.c.n < bindparam("hops"))
    return hop.union_all(select(_next_cause(state, hop.c.cause), hop.c.n + 1).where(*more))


def _next_cause(state: DeliveryState, after: Column) -> ScalarSelect[Any]:
    letter = deliveries.alias("next").c
    within = (*dead_in(state, letter), letter.cause > after, letter.cause <= bindparam("last", type_=BigInteger()))
    return select(letter.cause).where(*within).order_by(letter.cause).limit(1).scalar_subquery()


def _died_of(cause: Column, state: DeliveryState, letter: Columns) -> tuple[Condition, ...]:
    return (*dead_in(state, letter), letter.cause == cause, letter.settled_at >= _LOW, letter.settled_at < _HIGH)


def _causes_in(state: DeliveryState) -> Statement:
    """One row per cause: the cause, its endpoint (NULL if it has no dead letters in the filtered time range), and the
    endpoint to filter by."""
    hop = _hops(state)
    letter = deliveries.alias("letter").c
    within = _died_of(hop.c.cause, state, letter)
    endpoint = select(letter.endpoint_id).where(*within).order_by(letter.settled_at.desc()).limit(1)
    return select(hop.c.cause, endpoint.scalar_subquery(), ENDPOINT_KEY).where(hop.c.cause.is_not(None))


# -- groups ------------------------------------------------------------------------------------------------


def _groups(state: DeliveryState) -> Statement:
    """One row per cause: the cause, the key of its newest dead letter, the `settled_at` of its oldest dead letter,
    NULL, and the number of its dead letters, up to `beyond`."""
    hop = _hops(state)
    letter = deliveries.alias("letter").c
    within = _died_of(hop.c.cause, state, letter)
    newest = select(letter.id).where(*within).order_by(letter.settled_at.desc(), letter.uid.desc()).limit(1)
    oldest = select(letter.settled_at).where(*within).order_by(letter.settled_at).limit(1)
    columns = (newest.scalar_subquery(), oldest.scalar_subquery(), null(), _examined(hop, within, letter))
    return select(hop.c.cause, *columns).where(hop.c.cause.in_(_CHOSEN))


def _groups_of_type(state: DeliveryState) -> Statement:
    """Like `_groups`, but only for dead letters of one event type, searched among the newest `depth` dead letters of
    each cause. The fourth column is the number of matches."""
    hop = _hops(state)
    letter = deliveries.alias("letter").c
    within = _died_of(hop.c.cause, state, letter)
    order = (letter.settled_at.desc(), letter.uid.desc())
    seen = select(letter.id, letter.uid, letter.settled_at, letter.event_id).where(*within).order_by(*order)
    newest_ones = seen.limit(bindparam("depth")).correlate(hop).subquery("seen").c

    def among(column: ColumnElement[Any]) -> Select[Any]:
        joined = select(column).join(events, events.c.id == newest_ones.event_id)
        return joined.where(has_type(events.c.event_type))

    newest = among(newest_ones.id).order_by(newest_ones.settled_at.desc(), newest_ones.uid.desc()).limit(1)
    oldest, count = among(func.min(newest_ones.settled_at)), among(func.count(newest_ones.id))
    columns = (newest.scalar_subquery(), oldest.scalar_subquery(), count.scalar_subquery())
    return select(hop.c.cause, *columns, _examined(hop, within, letter)).where(hop.c.cause.in_(_CHOSEN))


def _examined(hop: CTE, within: Iterable[Condition], letter: Columns) -> ScalarSelect[int]:
    entries = select(letter.uid).where(*within).limit(bindparam("beyond")).correlate(hop).subquery()
    return select(func.count()).select_from(entries).scalar_subquery()


_CHOSEN = bindparam("causes", expanding=True, type_=BigInteger())
_CAUSES = {state: _causes_in(state) for state in _STATES}
_GROUPS = {state: _groups(state) for state in _STATES}
_GROUPS_OF_TYPE = {state: _groups_of_type(state) for state in _STATES}
_NEWEST = (
    select(_D.id, _D.uid, _D.settled_at, endpoints.c.uid, _D.code, _D.reason)
    .join(endpoints, endpoints.c.id == _D.endpoint_id)
    .where(_D.id.in_(KEYS))
)
"""The newest dead letter of a group supplies the group's code and reason."""


def _group(row: Row, newest: Row, depth: int) -> CauseGroup:
    cause, _, first_died_at, matched, examined = row
    _, delivery_id, last_died_at, endpoint_id, code, reason = newest
    return CauseGroup(
        cause=cause,
        endpoint_id=endpoint_id,
        code=code or "",
        reason=reason or "",
        count=count_up_to(depth, examined, matched),
        first_died_at=first_died_at,
        last_died_at=last_died_at,
        sample_id=delivery_id,
    )


def dead_letters_by_hour(
    org_id: UUID, causes: Sequence[int], since: Instant, hours: int
) -> Transaction[dict[int, tuple[int, ...]]]:
    limit = DEAD_LETTERS_COUNTED_MAX // max(1, len(causes) * hours)
    found: dict[int, tuple[int, ...]] = {}
    for cause in causes:
        rows = yield execute(_HOURLY, org=org_id, cause=cause, since=since, hours=hours, limit=limit)
        found[cause] = tuple(row[1] for row in rows)
    return found


def _hourly() -> Statement:
    """One row per hour: its number, and how many deliveries became dead letters in it, up to `limit`."""
    first = select(literal(0, BigInteger()).label("number")).cte("hour", recursive=True)
    hour = first.union_all(
        select(first.c.number + 1).where(first.c.number + 1 < bindparam("hours", type_=BigInteger()))
    )
    begin = bindparam("since", type_=BigInteger()) + hour.c.number * literal(HOUR, BigInteger())
    letter = deliveries.alias("letter").c
    died = (letter.settled_at >= begin, letter.settled_at < begin + literal(HOUR, BigInteger()))
    within = (*dead_in(DeliveryState.DEAD, letter), letter.cause == bindparam("cause", type_=BigInteger()), *died)
    entries = select(letter.uid).where(*within).limit(LIMIT).correlate(hour).subquery()
    counted = select(func.count()).select_from(entries).scalar_subquery()
    return select(hour.c.number, counted).order_by(hour.c.number)


_HOURLY = _hourly()
