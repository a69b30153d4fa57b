"""Dead letters, the newest death first.

What is archived is in two parts of the index: letters that the cleaner has archived, and old ones that it has not
come by yet. Both are walked, and put together in the order of their deaths.
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
from doorstep.model.listing import CauseGroup, Count, DeadLetterFilter, Page
from doorstep.model.rollup import HOUR
from doorstep.stores import cursor as cursors
from doorstep.stores.limits import COUNT_MAX, DEATHS_COUNTED_MAX, GROUP_DEPTH, GROUPS_COUNTED_MAX, GROUPS_TYPED_MAX
from doorstep.stores.sql.queries.moves import parts
from doorstep.stores.sql.queries.paging import (
    ENDPOINT_KEY,
    ORG,
    Column,
    Columns,
    Condition,
    Statement,
    Stretch,
    Walk,
    count_up_to,
    counted_by_endpoint,
    counted_matches,
    counted_over,
    of_endpoint,
    of_type,
    page_of,
    stretch,
    values_of,
    walk_over,
)
from doorstep.stores.sql.queries.rows import DELIVERY, delivery_from
from doorstep.stores.sql.queries.transaction import Row, Transaction, execute
from doorstep.stores.sql.schema import INSTANT, deliveries, endpoints, events

_D = deliveries.c
_NOBODY = UUID(int=0)


# -- what an index holds of them ---------------------------------------------------------------------------


class Range(NamedTuple):
    """Letters in one state that died from `low` on, before `high`."""

    state: DeliveryState
    low: Instant
    high: Instant


def ranges_of(wanted: DeadLetterFilter) -> list[Range]:
    """Where the wanted letters are to be found."""
    low = max(wanted.died_from or 0, 0)
    high = cursors.KEY_MAX if wanted.died_before is None else max(wanted.died_before, 0)
    if not wanted.archived:
        return [Range(DeliveryState.DEAD, max(low, wanted.archived_before), high)]
    old = Range(DeliveryState.DEAD, low, min(high, wanted.archived_before))
    return [Range(DeliveryState.ARCHIVED, low, high), old]


def cause_of(wanted: DeadLetterFilter) -> int | None:
    """The wanted cause, if there is one; -1, which is nobody's, for a number that no column holds."""
    return wanted.cause if wanted.cause is None or 0 <= wanted.cause <= cursors.KEY_MAX else -1


def dead_in(state: DeliveryState, letter: Columns = _D) -> tuple[Condition, ...]:
    """An organization's letters in one state, in the words of DEAD: a database uses a partial index only where it sees
    that its condition holds. With these the index by cause; the others need the words of DEAD_BY_TIME, of
    DEAD_BY_ENDPOINT."""
    dead, archived = (letter.state == literal_column(f"'{one}'") for one in ("dead", "archived"))
    this = dead if state is DeliveryState.DEAD else archived
    return letter.org_id == ORG, or_(dead, archived), letter.deleted_at.is_(None), this


# -- the list, and how long it is --------------------------------------------------------------------------

_STATES = (DeliveryState.DEAD, DeliveryState.ARCHIVED)
_OF_CAUSE = _D.cause == bindparam("cause")
_OF_ENDPOINT = (_D.endpoint_id > literal_column("0"), _D.endpoint_id == ENDPOINT_KEY)
_DIED = (_D.settled_at >= bindparam("low", type_=INSTANT), _D.settled_at < bindparam("high", type_=INSTANT))


class _Statements(NamedTuple):
    """About the letters in one state."""

    walk: Walk
    count_all: Statement
    count_wanted: Statement
    by_endpoint: Statement
    wanted_by_endpoint: Statement


def _statements(state: DeliveryState, *more: Condition) -> _Statements:
    within = (*dead_in(state), *more)
    wanted = (of_endpoint(_D), of_type(events.c.event_type))
    return _Statements(
        walk_over(within, (_D.settled_at, _D.uid), DELIVERY, wanted, newest_first=True),
        counted_over((*within, *_DIED), _D.uid),
        counted_matches((*within, *_DIED), of_endpoint),
        counted_by_endpoint((*within, *_DIED)),
        counted_by_endpoint((*within, *_DIED), of_endpoint),
    )


_ALL = {state: _statements(state, _D.due_at.is_(None)) for state in _STATES}
_OF_ONE_ENDPOINT = {state: _statements(state, *_OF_ENDPOINT) for state in _STATES}
_OF_ONE_CAUSE = {state: _statements(state, _OF_CAUSE) for state in _STATES}


def dead_letters(org_id: UUID, wanted: DeadLetterFilter, cursor: str | None, limit: int) -> Transaction[Page[Delivery]]:
    reached = cursors.read_instant(cursor)
    values, filtered, statements = _values(org_id, wanted), _is_filtered(wanted), _statements_for(wanted)
    found: list[Stretch] = []
    for state, low, high in ranges_of(wanted):
        begin, end = (high, _NOBODY), (low, _NOBODY)
        walk, after = statements[state].walk, min(begin, reached or begin)
        found.append((yield from stretch(walk, after, end, limit, values, filtered=filtered)))
    return page_of(statements[DeliveryState.DEAD].walk, found, limit, delivery_from)


def count_dead_letters(org_id: UUID, wanted: DeadLetterFilter, limit: int) -> Transaction[Count]:
    examined = matched = 0
    for state, low, high in ranges_of(wanted):
        about = _statements_for(wanted)[state]
        statement, most = about.count_wanted if _is_filtered(wanted) else about.count_all, limit + 1 - examined
        rows = yield execute(statement, low=low, high=high, most=most, **_values(org_id, wanted))
        examined += rows[0][0]
        matched += rows[0][-1]
    return count_up_to(limit, examined, matched)


def dead_letters_by_endpoint(org_id: UUID, wanted: DeadLetterFilter, limit: int) -> Transaction[dict[UUID, int]]:
    found: Counter[UUID] = Counter()
    for state, low, high in ranges_of(wanted):
        about = _statements_for(wanted)[state]
        statement = about.wanted_by_endpoint if _is_filtered(wanted) else about.by_endpoint
        found += Counter(dict((yield execute(statement, low=low, high=high, most=limit, **_values(org_id, wanted)))))
    return dict(found)


def _statements_for(wanted: DeadLetterFilter) -> dict[DeliveryState, _Statements]:
    if wanted.cause is not None:
        return _OF_ONE_CAUSE
    return _ALL if wanted.endpoint_id is None else _OF_ONE_ENDPOINT


def _is_filtered(wanted: DeadLetterFilter) -> bool:
    """Whether more is asked than the index knows. (A cause is one endpoint's; another one's letters are filtered out.)"""
    return wanted.event_type is not None or (wanted.endpoint_id is not None and wanted.cause is not None)


def _values(org_id: UUID, wanted: DeadLetterFilter) -> dict[str, object]:
    return {"org": org_id, "cause": cause_of(wanted), **values_of(wanted.event_type, wanted.endpoint_id)}


_HOPS_MIN = 250
"""Causes that a page is looked for in, at least: an endpoint's own may be few among many."""


def cause_groups(
    org_id: UUID, wanted: DeadLetterFilter, cursor: str | None, limit: int
) -> Transaction[Page[CauseGroup]]:
    values, hops = _cause_values(org_id, wanted, cursor), max(limit + 1, _HOPS_MIN)
    causes, end = yield from _causes(wanted, hops, values)
    chosen = sorted(causes)[:limit]
    onward = chosen[-1] if len(causes) > limit else end
    groups = yield from _groups_of(chosen, wanted, values | {"hops": hops})
    newest_first = sorted(groups.values(), key=lambda group: (group.last_died_at, group.cause), reverse=True)
    return Page(tuple(newest_first), None if onward is None else cursors.write(onward))


def _cause_values(org_id: UUID, wanted: DeadLetterFilter, cursor: str | None) -> dict[str, object]:
    (after,) = cursors.read(cursor, cursors.KEY_MAX) or (-1,)
    filters = values_of(wanted.event_type, wanted.endpoint_id)
    cause = cause_of(wanted)
    if cause is None:
        return {"org": org_id, "after": after, "last": cursors.KEY_MAX, **filters}
    return {"org": org_id, "after": max(after, cause - 1), "last": cause, **filters}


def _causes(wanted: DeadLetterFilter, hops: int, values: dict[str, object]) -> Transaction[tuple[set[int], int | None]]:
    """The next causes that letters died of in the wanted time, and the last one looked at if there may be more."""
    causes: set[int] = set()
    ends: list[int] = []
    for where in ranges_of(wanted):
        rows = yield execute(_CAUSES[where.state], hops=hops, low=where.low, high=where.high, **values)
        everyones = wanted.endpoint_id is None
        causes |= {
            cause for cause, endpoint, asked in rows if endpoint is not None and (everyones or endpoint == asked)
        }
        if len(rows) == hops:
            ends.append(max(row[0] for row in rows))
    end = min(ends, default=None)
    return {cause for cause in causes if end is None or cause <= end}, end


def _groups_of(
    chosen: Sequence[int], wanted: DeadLetterFilter, values: dict[str, object]
) -> Transaction[dict[int, CauseGroup]]:
    """What died of each cause; of one that is in two ranges the letters are taken together."""
    groups: dict[int, CauseGroup] = {}
    if not chosen:
        return groups
    typed = wanted.event_type is not None
    statements = _GROUPS_OF_TYPE if typed else _GROUPS
    most, together = (GROUP_DEPTH, GROUPS_TYPED_MAX) if typed else (COUNT_MAX, GROUPS_COUNTED_MAX)
    depth = min(most, together // len(chosen))
    for where in ranges_of(wanted):
        asked = values | {"low": where.low, "high": where.high, "depth": depth, "beyond": depth + 1, "causes": chosen}
        rows = [row for row in (yield execute(statements[where.state], **asked)) if row[1] is not None]
        newest = yield from _newest([row[1] for row in rows])
        for group in (_group(row, newest[row[1]], depth) for row in rows):
            groups[group.cause] = _together(groups.get(group.cause), group)
    return groups


def _together(one: CauseGroup | None, other: CauseGroup) -> CauseGroup:
    """The letters of one cause that the cleaner has archived, and those that it has not."""
    if one is None:
        return other
    total = one.count.value + other.count.value
    return replace(
        max(one, other, key=lambda group: group.last_died_at),
        count=Count(min(total, COUNT_MAX), exact=one.count.exact and other.count.exact and total <= COUNT_MAX),
        first_died_at=min(one.first_died_at, other.first_died_at),
    )


# -- from cause to cause -----------------------------------------------------------------------------------


def _hops(state: DeliveryState) -> CTE:
    """The next causes after `after` up to `last`, at most `hops` of them."""
    first = _next_cause(state, bindparam("after", type_=BigInteger()))
    hop = select(first.label("cause"), literal(1).label("n")).cte("hop", recursive=True)
    more = (hop.c.cause.is_not(None), hop.c.n < bindparam("hops"))
    return hop.union_all(select(_next_cause(state, hop.c.cause), hop.c.n + 1).where(*more))


def _next_cause(state: DeliveryState, after: Column) -> ScalarSelect[Any]:
    letter = deliveries.alias("next").c
    within = (*dead_in(state, letter), letter.cause > after, letter.cause <= bindparam("last", type_=BigInteger()))
    return select(letter.cause).where(*within).order_by(letter.cause).limit(1).scalar_subquery()


def _died_of(cause: Column, state: DeliveryState, letter: Columns) -> tuple[Condition, ...]:
    low, high = (bindparam(edge, type_=BigInteger()) for edge in ("low", "high"))
    return (*dead_in(state, letter), letter.cause == cause, letter.settled_at >= low, letter.settled_at < high)


def _causes_in(state: DeliveryState) -> Statement:
    """Each cause with its endpoint, NULL if nothing died of it in the wanted time, beside the wanted endpoint."""
    hop = _hops(state)
    letter = deliveries.alias("letter").c
    within = _died_of(hop.c.cause, state, letter)
    endpoint = select(letter.endpoint_id).where(*within).order_by(letter.settled_at.desc()).limit(1)
    asked = select(endpoints.c.id).where(endpoints.c.uid == bindparam("endpoint")).scalar_subquery()
    return select(hop.c.cause, endpoint.scalar_subquery(), asked).where(hop.c.cause.is_not(None))


# -- what died of them -------------------------------------------------------------------------------------


def _groups(state: DeliveryState) -> Statement:
    """A line for each cause: its newest letter, when the oldest died, NULL, and how many there are up to `beyond`."""
    hop = _hops(state)
    letter = deliveries.alias("letter").c
    within = _died_of(hop.c.cause, state, letter)
    newest = select(letter.id).where(*within).order_by(letter.settled_at.desc(), letter.uid.desc()).limit(1)
    oldest = select(letter.settled_at).where(*within).order_by(letter.settled_at).limit(1)
    columns = (newest.scalar_subquery(), oldest.scalar_subquery(), null(), _examined(hop, within, letter))
    return select(hop.c.cause, *columns).where(hop.c.cause.in_(_CHOSEN))


def _groups_of_type(state: DeliveryState) -> Statement:
    """The same for letters of one event type, among the newest `depth` of each cause; the third is how many."""
    hop = _hops(state)
    letter = deliveries.alias("letter").c
    within = _died_of(hop.c.cause, state, letter)
    order = (letter.settled_at.desc(), letter.uid.desc())
    seen = select(letter.id, letter.uid, letter.settled_at, letter.event_id).where(*within).order_by(*order)
    newest_ones = seen.limit(bindparam("depth")).correlate(hop).subquery("seen").c

    def among(column: ColumnElement[Any]) -> Select[Any]:
        joined = select(column).join(events, events.c.id == newest_ones.event_id)
        return joined.where(of_type(events.c.event_type))

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
    select(deliveries.c.id, deliveries.c.uid, deliveries.c.settled_at, endpoints.c.uid)
    .add_columns(deliveries.c.code, deliveries.c.reason)
    .join(endpoints, endpoints.c.id == deliveries.c.endpoint_id)
    .where(deliveries.c.id.in_(bindparam("keys", expanding=True)))
)


def _newest(keys: Sequence[int]) -> Transaction[dict[int, Row]]:
    """The letters that their groups are described by."""
    rows: dict[int, Row] = {}
    for part in parts(keys):
        rows |= {row[0]: tuple(row) for row in (yield execute(_NEWEST, keys=part))}
    return rows


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


def deaths_by_hour(
    org_id: UUID, causes: Sequence[int], since: Instant, hours: int
) -> Transaction[dict[int, tuple[int, ...]]]:
    most = DEATHS_COUNTED_MAX // max(1, len(causes) * hours)
    found: dict[int, tuple[int, ...]] = {}
    for cause in causes:
        rows = yield execute(_HOURLY, org=org_id, cause=cause, since=since, hours=hours, most=most)
        found[cause] = tuple(row[1] for row in rows)
    return found


def _hourly() -> Statement:
    """A line for each hour: its number, and how many died in it, up to `most`."""
    first = select(literal(0, BigInteger()).label("number")).cte("hour", recursive=True)
    hour = first.union_all(
        select(first.c.number + 1).where(first.c.number + 1 < bindparam("hours", type_=BigInteger()))
    )
    begin = bindparam("since", type_=BigInteger()) + hour.c.number * literal(HOUR, BigInteger())
    letter = deliveries.alias("letter").c
    died = (letter.settled_at >= begin, letter.settled_at < begin + literal(HOUR, BigInteger()))
    within = (*dead_in(DeliveryState.DEAD, letter), letter.cause == bindparam("cause", type_=BigInteger()), *died)
    entries = select(letter.uid).where(*within).limit(bindparam("most")).correlate(hour).subquery()
    counted = select(func.count()).select_from(entries).scalar_subquery()
    return select(hour.c.number, counted).order_by(hour.c.number)


_HOURLY = _hourly()
