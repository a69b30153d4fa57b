"""Figures: sums and series over counters and roll-ups; the busiest and the failing endpoints."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, reduce
from operator import add
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    BindParameter,
    ColumnElement,
    CompoundSelect,
    Select,
    Table,
    and_,
    bindparam,
    cast,
    exists,
    func,
    literal_column,
    or_,
    select,
    text,
    union_all,
)

from doorstep.clock import Instant
from doorstep.model.alert import OPERATIONS_ORG
from doorstep.model.rollup import FIGURES, TREND, Figures, Point, Span
from doorstep.stores.ranges import Part, widened
from doorstep.stores.sql.queries.moves import parts
from doorstep.stores.sql.queries.rows import IN_ORG
from doorstep.stores.sql.queries.transaction import Transaction, execute, execute_on_postgres
from doorstep.stores.sql.schema import BUSY, LIVING, endpoints, orgs, rollups, ticks
from doorstep.stores.tally import EVERY

_T, _R, _E = ticks.c, rollups.c, endpoints.c

_ORG, _ENDPOINT = bindparam("org", type_=BigInteger()), bindparam("endpoint", type_=BigInteger())
_KEYS: BindParameter[list[int]] = bindparam("keys", expanding=True)
_SPAN: BindParameter[str] = bindparam("of_span")
_SINCE, _UNTIL = bindparam("since", type_=BigInteger()), bindparam("until", type_=BigInteger())
_BEGINS_AT = (_T.minute - _T.minute % bindparam("step", type_=BigInteger())).label("at")


_Answer = CompoundSelect[*tuple[Any, ...]]
"""Of roll-ups, and after them of ticks; whoever asked adds the two up. SQLite would sort all rows for that: 29 days of 50
endpoints took it 4.2 ms, against 1.5."""
_KEPT = (_R.span == _SPAN, _R.at >= _SINCE, _R.at < _UNTIL)
_LATELY = (_BEGINS_AT >= _SINCE, _BEGINS_AT < _UNTIL)


def _sums(found: Select[*tuple[Any, ...]], table: Table, names: Sequence[str]) -> Select[*tuple[Any, ...]]:
    """Those of the rows that are alike in what is selected."""
    figures = (cast(func.sum(table.c[name]), BigInteger) for name in names)
    return found.add_columns(*figures).group_by(*found.selected_columns)


def _step_by_step(*lately: ColumnElement[bool]) -> _Answer:
    """The roll-ups of one owner, which are one row a step, and the sums of these ticks."""
    kept = select(_R.at, *(_R[name] for name in FIGURES)).where(_R.org_id == _ORG, _R.endpoint_id == _ENDPOINT, *_KEPT)
    return union_all(kept, _sums(select(_BEGINS_AT).where(*lately, *_LATELY), ticks, FIGURES))


_OF_ALL = _step_by_step()
_OF_ORG = _step_by_step(_T.org_id == _ORG)
_OF_ENDPOINT = _step_by_step(_T.org_id == _ORG, _T.endpoint_id == _ENDPOINT)
_STEPS_OF_EACH = union_all(
    select(_R.endpoint_id, _R.at, *(_R[name] for name in TREND)).where(
        _R.org_id == _ORG, _R.endpoint_id.in_(_KEYS), *_KEPT
    ),
    _sums(
        select(_T.endpoint_id, _BEGINS_AT).where(_T.org_id == _ORG, _T.endpoint_id.in_(_KEYS), *_LATELY), ticks, TREND
    ),
)


@cache
def _of_each(names: tuple[str, ...]) -> _Answer:
    """A statement for each choice of figures, of which the program has a handful."""
    kept = select(_R.endpoint_id).where(_R.org_id == _ORG, _R.endpoint_id.in_(_KEYS), *_KEPT)
    lately = select(_T.endpoint_id).where(_T.org_id == _ORG, _T.endpoint_id.in_(_KEYS), *_LATELY)
    return union_all(_sums(kept, rollups, names), _sums(lately, ticks, names))


@cache
def _of_each_anywhere(names: tuple[str, ...]) -> _Answer:
    """By way of the endpoints, who know their organizations: the keys of both tables begin with those."""
    kept = select(_R.endpoint_id).join(endpoints, and_(_E.id == _R.endpoint_id, _E.org_id == _R.org_id))
    lately = select(_T.endpoint_id).join(endpoints, and_(_E.id == _T.endpoint_id, _E.org_id == _T.org_id))
    named = _E.id.in_(_KEYS)
    return union_all(
        _sums(kept.where(named, *_KEPT), rollups, names), _sums(lately.where(named, *_LATELY), ticks, names)
    )


_ORG_KEY = select(orgs.c.id).where(IN_ORG)
_KEYS_ANYWHERE = select(_E.uid, _E.id).where(_E.uid.in_(bindparam("uids", expanding=True)))
_ENDPOINT_KEYS = _KEYS_ANYWHERE.join(orgs, orgs.c.id == _E.org_id).where(IN_ORG)
_PLAN_ANEW = text("SET LOCAL plan_cache_mode = force_custom_plan")
"""A plan for any list of endpoints does not look for these, but through all that the organization has."""
_EVER: Part = (Span.EVER, 0, 1)


def totals(org_id: UUID | None) -> Transaction[Figures]:
    whole = yield from _sum(org_id, [_EVER])
    return whole if org_id is not None else whole - (yield from _sum(OPERATIONS_ORG, [_EVER]))


def _sum(org_id: UUID | None, ranges: Sequence[Part]) -> Transaction[Figures]:
    total = Figures()
    for one in ranges:
        total = reduce(add, (point.figures for point in (yield from series(org_id, None, *one))), total)
    return total


def series(
    org_id: UUID | None, endpoint_id: UUID | None, span: Span, since: Instant, until: Instant
) -> Transaction[list[Point]]:
    statement, org, endpoint = _OF_ALL, EVERY, EVERY
    if org_id is not None:
        statement, org = _OF_ORG, (yield from _key_of(org_id))
    if org_id is not None and endpoint_id is not None:
        keys = yield from _keys_of(org_id, [endpoint_id])
        statement, endpoint = _OF_ENDPOINT, keys.get(endpoint_id, _NOBODY)
    steps: dict[Instant, tuple[int, ...]] = {}
    for row in (yield execute(statement, org=org, endpoint=endpoint, **_asked(span, since, until))):
        _add(steps, row[0], row[1:])
    return [Point(at, steps[at]) for at in sorted(steps)]


def figures(
    org_id: UUID, endpoint_ids: Sequence[UUID], since: Instant, until: Instant, names: tuple[str, ...]
) -> Transaction[dict[UUID, Figures]]:
    return (yield from _sums_of_each(org_id, endpoint_ids, widened(since, until), names))


def shares(
    org_id: UUID, endpoint_ids: Sequence[UUID], since: Instant, until: Instant
) -> Transaction[tuple[Figures, dict[UUID, Figures]]]:
    ranges = widened(since, until)
    return (yield from _sum(org_id, ranges)), (yield from _sums_of_each(org_id, endpoint_ids, ranges, FIGURES))


def levels(
    org_id: UUID | None, endpoint_ids: Sequence[UUID], names: tuple[str, ...]
) -> Transaction[dict[UUID, Figures]]:
    return (yield from _sums_of_each(org_id, endpoint_ids, [_EVER], names))


def trends(
    org_id: UUID, endpoint_ids: Sequence[UUID], span: Span, since: Instant, until: Instant
) -> Transaction[dict[UUID, list[Point]]]:
    org = yield from _key_of(org_id)
    keys = yield from _keys_of(org_id, endpoint_ids)
    yield execute_on_postgres(_PLAN_ANEW)
    steps: dict[int, dict[Instant, tuple[int, ...]]] = {key: {} for key in keys.values()}
    for part in parts(list(keys.values())):
        for row in (yield execute(_STEPS_OF_EACH, org=org, keys=part, **_asked(span, since, until))):
            _add(steps[row[0]], row[1], row[2:])
    points = {key: [Point.of(at, _named(TREND, own[at])) for at in sorted(own)] for key, own in steps.items()}
    return {one: points[keys[one]] if one in keys else [] for one in endpoint_ids}


def _sums_of_each(
    org_id: UUID | None, endpoint_ids: Sequence[UUID], ranges: Sequence[Part], names: tuple[str, ...]
) -> Transaction[dict[UUID, Figures]]:
    statement, org = _of_each_anywhere(names), EVERY
    if org_id is not None:
        statement, org = _of_each(names), (yield from _key_of(org_id))
    keys = yield from _keys_of(org_id, endpoint_ids)
    yield execute_on_postgres(_PLAN_ANEW)
    sums: dict[int, tuple[int, ...]] = {}
    for part in parts(list(keys.values())):
        for one in ranges:
            for row in (yield execute(statement, org=org, keys=part, **_asked(*one))):
                _add(sums, row[0], row[1:])
    found = {key: _named(names, values) for key, values in sums.items()}
    return {one: found.get(keys.get(one, _NOBODY), Figures()) for one in endpoint_ids}


def _add(sums: dict[int, tuple[int, ...]], key: int, values: tuple[int, ...]) -> None:
    sums[key] = tuple(map(add, sums[key], values)) if key in sums else values


def _named(names: Sequence[str], values: Sequence[int]) -> Figures:
    return Figures(**dict(zip(names, values, strict=True)))


_NOBODY = -1
"""The key of what does not exist."""


def _key_of(org_id: UUID) -> Transaction[int]:
    rows = yield execute(_ORG_KEY, org=org_id)
    return rows[0][0] if rows else _NOBODY


def _keys_of(org_id: UUID | None, endpoint_ids: Sequence[UUID]) -> Transaction[dict[UUID, int]]:
    keys: dict[UUID, int] = {}
    for part in parts(list(dict.fromkeys(endpoint_ids))):
        known = _KEYS_ANYWHERE if org_id is None else _ENDPOINT_KEYS
        keys |= dict((yield execute(known, org=org_id, uids=part)))
    return keys


def _asked(span: Span, since: Instant, until: Instant) -> dict[str, object]:
    return {"of_span": span, "step": span.length, "since": since, "until": until}


_MOST: BindParameter[int] = bindparam("most")


def _told_apart(rows: Select[*tuple[Any, ...]]) -> Select[*tuple[Any, ...]]:
    """Those of endpoints that live; channels have lists of their own."""
    return rows.where(
        text(f"doorstep_endpoints.{LIVING}"),
        _E.org_id.not_in(select(orgs.c.id).where(orgs.c.uid == bindparam("reserved"))),
    )


_BUSIEST_KEPT = (
    _told_apart(select(_R.endpoint_id, _R.deliveries).join(endpoints, _E.id == _R.endpoint_id).where(text(BUSY)))
    .order_by(_R.deliveries.desc())
    .limit(_MOST)
    .subquery("kept")
)
_BUSIEST_LATELY = select(_T.endpoint_id, _T.deliveries).where(_T.deliveries > 0)
_BOTH = union_all(select(_BUSIEST_KEPT), _BUSIEST_LATELY).subquery("both")
_MADE = func.sum(_BOTH.c.deliveries)
_BUSIEST = (
    _told_apart(select(_E.uid).join(_BOTH, _BOTH.c.endpoint_id == _E.id))
    .group_by(_E.id, _E.uid)
    .having(_MADE > 0)
    .order_by(_MADE.desc(), _E.uid)
    .limit(_MOST)
)


def busiest(limit: int) -> Transaction[list[UUID]]:
    return [row[0] for row in (yield execute(_BUSIEST, most=limit, reserved=OPERATIONS_ORG))]


_DYING_SINCE = bindparam("since", type_=BigInteger())


def _hours_of(endpoint: ColumnElement[int]) -> tuple[ColumnElement[bool], ...]:
    """At most one row for each of the hours."""
    return (_R.endpoint_id == endpoint, _R.span == literal_column("'hour'"), _R.at >= _DYING_SINCE, _R.died > 0)


_DYING_LATELY = (_T.minute >= _DYING_SINCE, _T.died > 0)
"""What was not folded yet."""
_ORG_DIES = or_(
    exists().where(_R.org_id == orgs.c.id, *_hours_of(literal_column(str(EVERY)))),
    exists().where(_T.org_id == orgs.c.id, *_DYING_LATELY),
)
"""Only their endpoints are looked at: most organizations have none, and are passed over with a few rows each."""
_ENDPOINT_DIES = or_(
    exists().where(_R.org_id == _E.org_id, *_hours_of(_E.id)),
    exists().where(_T.org_id == _E.org_id, _T.endpoint_id == _E.id, *_DYING_LATELY),
)
_DYING = select(orgs.c.uid, _E.uid).join(endpoints, _E.org_id == orgs.c.id).where(_ORG_DIES, _ENDPOINT_DIES)


def dying_endpoints(since: Instant) -> Transaction[list[tuple[UUID, UUID]]]:
    return [(org_id, endpoint_id) for org_id, endpoint_id in (yield execute(_DYING, since=since))]
