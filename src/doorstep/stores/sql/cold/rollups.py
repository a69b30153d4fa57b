"""Roll-ups: what is kept of the ticks, and the figures that both add up to."""

from __future__ import annotations

from collections.abc import Sequence
from operator import add
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    BindParameter,
    ColumnElement,
    CompoundSelect,
    Select,
    bindparam,
    cast,
    delete,
    func,
    select,
    text,
    union_all,
)

from doorstep.clock import Instant
from doorstep.model.rollup import FIGURES, Figures, Point, Span, figures_of
from doorstep.stores.ranges import Part, widened
from doorstep.stores.sql.cold.moves import parts
from doorstep.stores.sql.cold.rows import IN_ORG
from doorstep.stores.sql.cold.script import Row, Script, ask, ask_postgres, each
from doorstep.stores.sql.schema import endpoints, orgs, rollups, ticks
from doorstep.stores.tally import EVERY, OF_EVENTS

_T, _R = ticks.c, rollups.c

# -- folding -----------------------------------------------------------------------------------------------

_ENDED = (
    select(_T.org_id, _T.endpoint_id, _T.minute, _T.shard, *(_T[name] for name in FIGURES))
    .where(_T.minute < bindparam("before"))
    .order_by(_T.org_id, _T.endpoint_id, _T.minute, _T.shard)
    .limit(bindparam("most"))
    .with_for_update(skip_locked=True)
)
_REMOVE_TICK = delete(ticks).where(
    _T.org_id == bindparam("org"),
    _T.endpoint_id == bindparam("endpoint"),
    _T.minute == bindparam("at_minute"),
    _T.shard == bindparam("of_shard"),
)
_KEPT = text(
    f"INSERT INTO doorstep_rollups (org_id, endpoint_id, span, at, {', '.join(FIGURES)})"
    f" VALUES (:org, :endpoint, :of_span, :begins_at, {', '.join(f':{name}' for name in FIGURES)})"
    " ON CONFLICT (org_id, endpoint_id, span, at) DO UPDATE SET "
    + ", ".join(f"{name} = doorstep_rollups.{name} + excluded.{name}" for name in FIGURES)
)
_OLD = (
    select(_R.org_id, _R.endpoint_id, _R.at)
    .where(_R.span == bindparam("of_span"), _R.at < bindparam("before"))
    .order_by(_R.at, _R.org_id, _R.endpoint_id)
    .limit(bindparam("most"))
    .with_for_update(skip_locked=True)
)
_DROP = delete(rollups).where(
    _R.org_id == bindparam("org"),
    _R.endpoint_id == bindparam("endpoint"),
    _R.span == bindparam("of_span"),
    _R.at == bindparam("begins_at"),
)


def fold(now: Instant, limit: int, minutes_before: Instant, hours_before: Instant) -> Script[int]:
    ended = yield ask(_ENDED, before=Span.MINUTE.start(now), most=limit)
    yield each(_REMOVE_TICK, [dict(zip(("org", "endpoint", "at_minute", "of_shard"), row)) for row in ended])
    yield each(_KEPT, [_kept(key, sums) for key, sums in sorted(_sums(ended).items())])
    most = len(ended)
    for span, before in ((Span.MINUTE, minutes_before), (Span.HOUR, hours_before), (Span.DAY, hours_before)):
        old = yield ask(_OLD, of_span=span, before=before, most=limit)
        yield each(_DROP, [{"org": org, "endpoint": one, "of_span": span, "begins_at": at} for org, one, at in old])
        most = max(most, len(old))
    return most


_Key = tuple[int, int, Span, Instant]


def _sums(ended: Sequence[Row]) -> dict[_Key, list[int]]:
    """What the ticks add to each roll-up."""
    sums: dict[_Key, list[int]] = {}
    for org, endpoint, minute, _, *figures in ended:
        for owner in {(org, endpoint), (org, OF_EVENTS), (EVERY, EVERY)}:
            for span in Span:
                key = (*owner, span, span.start(minute))
                sums[key] = list(map(add, sums[key], figures)) if key in sums else figures
    return sums


def _kept(key: _Key, sums: Sequence[int]) -> dict[str, object]:
    org, endpoint, span, at = key
    owner = {"org": org, "endpoint": endpoint, "of_span": span, "begins_at": at}
    return {**owner, **dict(zip(FIGURES, sums, strict=True))}


# -- reading -----------------------------------------------------------------------------------------------

_ORG, _ENDPOINT = bindparam("org", type_=BigInteger()), bindparam("endpoint", type_=BigInteger())
_KEYS: BindParameter[list[int]] = bindparam("keys", expanding=True)
_SPAN: BindParameter[str] = bindparam("of_span")
_SINCE, _UNTIL = bindparam("since", type_=BigInteger()), bindparam("until", type_=BigInteger())
_BEGINS_AT = (_T.minute - _T.minute % bindparam("step", type_=BigInteger())).label("at")


def _added_up(by: str, kept: Select[*tuple[Any, ...]], lately: Select[*tuple[Any, ...]]) -> Select[*tuple[Any, ...]]:
    """The sums of roll-ups and ticks together, for each value of one of their columns."""
    both = union_all(
        kept.add_columns(*(_R[name] for name in FIGURES)).where(_R.span == _SPAN, _R.at >= _SINCE, _R.at < _UNTIL),
        lately.add_columns(*(_T[name] for name in FIGURES)).where(_BEGINS_AT >= _SINCE, _BEGINS_AT < _UNTIL),
    ).subquery("both")
    sums = (cast(func.sum(both.c[name]), BigInteger) for name in FIGURES)
    return select(both.c[by], *sums).group_by(both.c[by]).order_by(both.c[by])


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
    "endpoint_id",
    select(_R.endpoint_id).where(_R.org_id == _ORG, _R.endpoint_id.in_(_KEYS)),
    select(_T.endpoint_id).where(_T.org_id == _ORG, _T.endpoint_id.in_(_KEYS)),
)
_ORG_KEY = select(orgs.c.id).where(IN_ORG)
_ENDPOINT_KEYS = (
    select(endpoints.c.uid, endpoints.c.id)
    .join(orgs, orgs.c.id == endpoints.c.org_id)
    .where(IN_ORG, endpoints.c.uid.in_(bindparam("uids", expanding=True)))
)
_PLAN_ANEW = text("SET LOCAL plan_cache_mode = force_custom_plan")
"""A plan for any list of endpoints does not look for these, but through all that the organization has."""
_EVER: Part = (Span.EVER, 0, 1)


def totals(org_id: UUID | None) -> Script[Figures]:
    points = yield from series(org_id, None, *_EVER)
    return points[0].figures if points else Figures()


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


def levels(org_id: UUID, endpoint_ids: Sequence[UUID]) -> Script[dict[UUID, Figures]]:
    return (yield from _of_each(org_id, endpoint_ids, [_EVER]))


def _of_each(org_id: UUID, endpoint_ids: Sequence[UUID], ranges: Sequence[Part]) -> Script[dict[UUID, Figures]]:
    org = yield from _key_of(org_id)
    keys = yield from _keys_of(org_id, endpoint_ids)
    yield ask_postgres(_PLAN_ANEW)
    sums: dict[int, Figures] = {}
    for part in parts(list(keys.values())):
        for one in ranges:
            for key, *values in (yield ask(_OF_EACH, org=org, keys=part, **_asked(*one))):
                sums[key] = sums.get(key, Figures()) + figures_of(values)
    return {one: sums.get(keys.get(one, _NOBODY), Figures()) for one in endpoint_ids}


_NOBODY = -1
"""The key of what does not exist."""


def _key_of(org_id: UUID) -> Script[int]:
    rows = yield ask(_ORG_KEY, org=org_id)
    return rows[0][0] if rows else _NOBODY


def _keys_of(org_id: UUID, endpoint_ids: Sequence[UUID]) -> Script[dict[UUID, int]]:
    keys: dict[UUID, int] = {}
    for part in parts(list(dict.fromkeys(endpoint_ids))):
        keys |= dict((yield ask(_ENDPOINT_KEYS, org=org_id, uids=part)))
    return keys


def _asked(span: Span, since: Instant, until: Instant) -> dict[str, object]:
    return {"of_span": span, "step": span.length, "since": since, "until": until}
