"""Figures: what ticks and the roll-ups made of them add up to."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    BindParameter,
    ColumnElement,
    CompoundSelect,
    Select,
    and_,
    bindparam,
    cast,
    func,
    select,
    text,
    union_all,
)

from doorstep.clock import Instant
from doorstep.model.channel import OPERATIONS_ORG
from doorstep.model.rollup import FIGURES, TREND, Figures, Point, Span, figures_of
from doorstep.stores.ranges import Part, widened
from doorstep.stores.sql.cold.moves import parts
from doorstep.stores.sql.cold.rows import IN_ORG
from doorstep.stores.sql.cold.script import Script, ask, ask_postgres
from doorstep.stores.sql.schema import endpoints, orgs, rollups, ticks
from doorstep.stores.tally import EVERY

_T, _R, _E = ticks.c, rollups.c, endpoints.c

_ORG, _ENDPOINT = bindparam("org", type_=BigInteger()), bindparam("endpoint", type_=BigInteger())
_KEYS: BindParameter[list[int]] = bindparam("keys", expanding=True)
_SPAN: BindParameter[str] = bindparam("of_span")
_SINCE, _UNTIL = bindparam("since", type_=BigInteger()), bindparam("until", type_=BigInteger())
_BEGINS_AT = (_T.minute - _T.minute % bindparam("step", type_=BigInteger())).label("at")


def _added_up(
    by: Sequence[str],
    kept: Select[*tuple[Any, ...]],
    lately: Select[*tuple[Any, ...]],
    figures: Sequence[str] = FIGURES,
) -> Select[*tuple[Any, ...]]:
    """The sums of roll-ups and ticks together, for each value of these columns."""
    both = union_all(
        kept.add_columns(*(_R[name] for name in figures)).where(_R.span == _SPAN, _R.at >= _SINCE, _R.at < _UNTIL),
        lately.add_columns(*(_T[name] for name in figures)).where(_BEGINS_AT >= _SINCE, _BEGINS_AT < _UNTIL),
    ).subquery("both")
    sums = (cast(func.sum(both.c[name]), BigInteger) for name in figures)
    columns = [both.c[name] for name in by]
    return select(*columns, *sums).group_by(*columns).order_by(*columns)


def _side_by_side(*lately: ColumnElement[bool]) -> CompoundSelect[*tuple[Any, ...]]:
    """The roll-ups of one owner, and after them the sums of those ticks. A roll-up is one row a step: to have the database
    add them up as well made a day of minutes twice as dear."""
    kept = select(_R.at, *(_R[name] for name in FIGURES)).where(
        _R.org_id == _ORG, _R.endpoint_id == _ENDPOINT, _R.span == _SPAN, _R.at >= _SINCE, _R.at < _UNTIL
    )
    sums = (cast(func.sum(_T[name]), BigInteger) for name in FIGURES)
    added = select(_BEGINS_AT, *sums).where(_BEGINS_AT >= _SINCE, _BEGINS_AT < _UNTIL, *lately)
    return union_all(kept, added.group_by(_BEGINS_AT))


_OF_ALL = _side_by_side()
_OF_ORG = _side_by_side(_T.org_id == _ORG)
_OF_ENDPOINT = _side_by_side(_T.org_id == _ORG, _T.endpoint_id == _ENDPOINT)
_OF_EACH = _added_up(
    ["endpoint_id"],
    select(_R.endpoint_id).where(_R.org_id == _ORG, _R.endpoint_id.in_(_KEYS)),
    select(_T.endpoint_id).where(_T.org_id == _ORG, _T.endpoint_id.in_(_KEYS)),
)
_OF_EACH_ANYWHERE = _added_up(
    ["endpoint_id"],
    select(_R.endpoint_id)
    .join(endpoints, and_(_E.id == _R.endpoint_id, _E.org_id == _R.org_id))
    .where(_E.id.in_(_KEYS)),
    select(_T.endpoint_id)
    .join(endpoints, and_(_E.id == _T.endpoint_id, _E.org_id == _T.org_id))
    .where(_E.id.in_(_KEYS)),
)
"""By way of the endpoints, who know their organizations: the keys of both tables begin with those."""
_STEPS_OF_EACH = _added_up(
    ["endpoint_id", "at"],
    select(_R.endpoint_id, _R.at).where(_R.org_id == _ORG, _R.endpoint_id.in_(_KEYS)),
    select(_T.endpoint_id, _BEGINS_AT).where(_T.org_id == _ORG, _T.endpoint_id.in_(_KEYS)),
    TREND,
)
_ORG_KEY = select(orgs.c.id).where(IN_ORG)
_KEYS_ANYWHERE = select(_E.uid, _E.id).where(_E.uid.in_(bindparam("uids", expanding=True)))
_ENDPOINT_KEYS = _KEYS_ANYWHERE.join(orgs, orgs.c.id == _E.org_id).where(IN_ORG)
_PLAN_ANEW = text("SET LOCAL plan_cache_mode = force_custom_plan")
"""A plan for any list of endpoints does not look for these, but through all that the organization has."""
_EVER: Part = (Span.EVER, 0, 1)


def totals(org_id: UUID | None) -> Script[Figures]:
    whole = yield from _sum(org_id, [_EVER])
    return whole if org_id is not None else whole - (yield from _sum(OPERATIONS_ORG, [_EVER]))


def _sum(org_id: UUID | None, ranges: Sequence[Part]) -> Script[Figures]:
    total = Figures()
    for one in ranges:
        total = reduce(add, (point.figures for point in (yield from series(org_id, None, *one))), total)
    return total


def series(
    org_id: UUID | None, endpoint_id: UUID | None, span: Span, since: Instant, until: Instant
) -> Script[list[Point]]:
    statement, org, endpoint = _OF_ALL, EVERY, EVERY
    if org_id is not None:
        statement, org = _OF_ORG, (yield from _key_of(org_id))
    if org_id is not None and endpoint_id is not None:
        keys = yield from _keys_of(org_id, [endpoint_id])
        statement, endpoint = _OF_ENDPOINT, keys.get(endpoint_id, _NOBODY)
    points: dict[Instant, Figures] = {}
    for at, *values in (yield ask(statement, org=org, endpoint=endpoint, **_asked(span, since, until))):
        points[at] = points[at] + figures_of(values) if at in points else figures_of(values)
    return [Point(at, points[at]) for at in sorted(points)]


def figures(org_id: UUID, endpoint_ids: Sequence[UUID], since: Instant, until: Instant) -> Script[dict[UUID, Figures]]:
    return (yield from _of_each(org_id, endpoint_ids, widened(since, until)))


def shares(
    org_id: UUID, endpoint_ids: Sequence[UUID], since: Instant, until: Instant
) -> Script[tuple[Figures, dict[UUID, Figures]]]:
    ranges = widened(since, until)
    return (yield from _sum(org_id, ranges)), (yield from _of_each(org_id, endpoint_ids, ranges))


def levels(org_id: UUID | None, endpoint_ids: Sequence[UUID]) -> Script[dict[UUID, Figures]]:
    return (yield from _of_each(org_id, endpoint_ids, [_EVER]))


def trends(
    org_id: UUID, endpoint_ids: Sequence[UUID], span: Span, since: Instant, until: Instant
) -> Script[dict[UUID, list[Point]]]:
    org = yield from _key_of(org_id)
    keys = yield from _keys_of(org_id, endpoint_ids)
    yield ask_postgres(_PLAN_ANEW)
    points: dict[int, list[Point]] = {key: [] for key in keys.values()}
    for part in parts(list(keys.values())):
        for key, at, *values in (yield ask(_STEPS_OF_EACH, org=org, keys=part, **_asked(span, since, until))):
            points[key].append(Point(at, Figures(**dict(zip(TREND, values, strict=True)))))
    return {one: points[keys[one]] if one in keys else [] for one in endpoint_ids}


def _of_each(org_id: UUID | None, endpoint_ids: Sequence[UUID], ranges: Sequence[Part]) -> Script[dict[UUID, Figures]]:
    statement, org = _OF_EACH_ANYWHERE, EVERY
    if org_id is not None:
        statement, org = _OF_EACH, (yield from _key_of(org_id))
    keys = yield from _keys_of(org_id, endpoint_ids)
    yield ask_postgres(_PLAN_ANEW)
    sums: dict[int, Figures] = {}
    for part in parts(list(keys.values())):
        for one in ranges:
            for key, *values in (yield ask(statement, org=org, keys=part, **_asked(*one))):
                sums[key] = sums.get(key, Figures()) + figures_of(values)
    return {one: sums.get(keys.get(one, _NOBODY), Figures()) for one in endpoint_ids}


_NOBODY = -1
"""The key of what does not exist."""


def _key_of(org_id: UUID) -> Script[int]:
    rows = yield ask(_ORG_KEY, org=org_id)
    return rows[0][0] if rows else _NOBODY


def _keys_of(org_id: UUID | None, endpoint_ids: Sequence[UUID]) -> Script[dict[UUID, int]]:
    keys: dict[UUID, int] = {}
    for part in parts(list(dict.fromkeys(endpoint_ids))):
        known = _KEYS_ANYWHERE if org_id is None else _ENDPOINT_KEYS
        keys |= dict((yield ask(known, org=org_id, uids=part)))
    return keys


def _asked(span: Span, since: Instant, until: Instant) -> dict[str, object]:
    return {"of_span": span, "step": span.length, "since": since, "until": until}
