"""Figures: counters, the roll-ups into which they are aggregated, and sums and series of both."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from operator import add, sub
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    CompoundSelect,
    Select,
    Table,
    and_,
    bindparam,
    cast,
    delete,
    exists,
    func,
    literal_column,
    or_,
    select,
    text,
    tuple_,
    union_all,
)

from doorstep.clock import Instant
from doorstep.model.alert import OPERATIONS_ORG
from doorstep.model.listing import BusiestEndpoints, FailingEndpoints
from doorstep.model.rollup import FIGURES, Figures, Point, Span
from doorstep.stores.sql.queries.rows import IN_ORG
from doorstep.stores.sql.queries.transaction import (
    KEYS,
    LIMIT,
    UIDS,
    Row,
    Transaction,
    execute,
    execute_each,
    execute_in_parts,
    execute_on_postgres,
    execute_on_sqlite,
)
from doorstep.stores.sql.schema import ENDPOINT_TOTALS, LIVING, counters, endpoints, orgs, rollups
from doorstep.stores.store import EndpointKey
from doorstep.stores.tally import EVERY, OF_EVENTS, Part, Tally, rollup_parts

_T, _R, _E = counters.c, rollups.c, endpoints.c

COUNTER_KEY = "org_id, endpoint_id, minute, shard"
GENERATIONS = 64
"""The number of counter shards of each PostgreSQL connection; see postgres/counters.py."""
SHARD = f"pg_backend_pid() * {GENERATIONS}"


def counters_sql(source: str, figures: Sequence[str] = FIGURES) -> str:
    """SQL that adds the rows of `source` to the counters. The columns of `source` are those of the key, followed by
    `figures`."""
    added = ", ".join(f"{name} = doorstep_counters.{name} + excluded.{name}" for name in figures)
    columns = f"{COUNTER_KEY}, {', '.join(figures)}"
    return f"INSERT INTO doorstep_counters ({columns}) {source} ON CONFLICT ({COUNTER_KEY}) DO UPDATE SET {added}"


_VALUES = f"VALUES (:org, :endpoint, :at_minute, {{shard}}, {', '.join(f':{name}' for name in FIGURES)})"
_ADD_COUNTERS = {
    "sqlite": text(counters_sql(_VALUES.format(shard="0"))),
    "postgresql": text(counters_sql(_VALUES.format(shard=SHARD))),
}


def add_counters(tally: Tally, at: Instant) -> Transaction[None]:
    """Add the tally of this transaction to the counters of the minute that contains `at`."""
    minute = Span.MINUTE.start(at)
    rows = [
        {"org": org, "endpoint": endpoint, "at_minute": minute, **_ZEROS, **figures}
        for (org, endpoint), figures in tally.rows.items()
    ]
    for dialect, statement in _ADD_COUNTERS.items():
        yield execute_each(statement, rows, dialect)


_ZEROS = dict.fromkeys(FIGURES, 0)


def aggregate(now: Instant, limit: int, minutes_before: Instant, hours_before: Instant) -> Transaction[int]:
    ended = {"before": Span.MINUTE.start(now), "limit": limit}
    moved = yield execute_on_postgres(_MOVE, **ended)
    yield execute_on_sqlite(_ADD_TO_ROLLUPS, **ended)
    moved = [*moved, *(yield execute_on_sqlite(_REMOVE, **ended))]
    largest = len(moved)
    for span, before in ((Span.MINUTE, minutes_before), (Span.HOUR, hours_before), (Span.DAY, hours_before)):
        largest = max(largest, len((yield execute(_DROP, of_span=span, before=before, limit=limit))))
    return largest


def _rollup_sql(source: str) -> str:
    """SQL that adds counters to the roll-ups of their endpoint, of its organization and of all organizations, for every
    span.

    The shards of each minute are added up first, which leaves far fewer rows. Rows are written in the order of their
    key, so that two processes that aggregate at the same time do not deadlock.
    """
    sums = ", ".join(f"sum({name}) AS {name}" for name in FIGURES)
    added = ", ".join(f"{name} = doorstep_rollups.{name} + excluded.{name}" for name in FIGURES)
    return f"""
    INSERT INTO doorstep_rollups (org_id, endpoint_id, span, at, {", ".join(FIGURES)})
    WITH minutes AS (
        SELECT org_id, endpoint_id, minute, {sums} FROM {source} GROUP BY org_id, endpoint_id, minute
    ), of_orgs AS (
        SELECT org_id, {OF_EVENTS} AS endpoint_id, minute, {sums} FROM minutes GROUP BY org_id, minute
    ), of_all AS (
        SELECT {EVERY} AS org_id, {EVERY} AS endpoint_id, minute, {sums} FROM of_orgs GROUP BY minute
    ), owners AS (
        SELECT * FROM minutes WHERE endpoint_id <> {OF_EVENTS}
        UNION ALL SELECT * FROM of_orgs UNION ALL SELECT * FROM of_all
    ), spans (span, length) AS (VALUES {", ".join(f"('{span}', {span.length})" for span in Span)})
    SELECT org_id, endpoint_id, span, minute - minute % length AS at, {sums}
    FROM owners CROSS JOIN spans WHERE true GROUP BY org_id, endpoint_id, span, minute - minute % length
    ORDER BY org_id, endpoint_id, span, at
    ON CONFLICT (org_id, endpoint_id, span, at) DO UPDATE SET {added}"""


_ENDED = f"FROM doorstep_counters WHERE minute < :before ORDER BY {COUNTER_KEY} LIMIT :limit"

# SQLite has only one writer, so both of these statements see the same counters.
_ADD_TO_ROLLUPS = text(_rollup_sql(f"(SELECT * {_ENDED})"))
_REMOVE = text(
    f"DELETE FROM doorstep_counters WHERE ({COUNTER_KEY}) IN (SELECT {COUNTER_KEY} {_ENDED}) RETURNING minute"
)
_MOVE = text(f"""
    WITH ended AS MATERIALIZED (SELECT ctid {_ENDED} FOR UPDATE SKIP LOCKED), moved AS (
        DELETE FROM doorstep_counters WHERE ctid = ANY (ARRAY(SELECT ctid FROM ended)) RETURNING *
    ), kept AS ({_rollup_sql("moved")})
    SELECT minute FROM moved""")
"""Moves counters into roll-ups. Counters that another transaction is updating are left for the next call.

The counters to move are selected first, in a materialized CTE. If they were selected in the condition of the DELETE,
PostgreSQL might repeat the selection for each row, select other rows each time and exceed the limit. If they were
joined by key, it might compare every row with every other row."""

_ROLLUP_KEY = (_R.org_id, _R.endpoint_id, _R.span, _R.at)
_OUTDATED = (
    select(*_ROLLUP_KEY)
    .where(_R.span == bindparam("of_span"), _R.at < bindparam("before"))
    .order_by(_R.at, _R.org_id, _R.endpoint_id)
    .limit(LIMIT)
    .with_for_update(skip_locked=True)
    .cte("outdated")
)
_DROP = delete(rollups).where(tuple_(*_ROLLUP_KEY).in_(select(_OUTDATED))).returning(_R.at)

# -- sums and series ---------------------------------------------------------------------------------------

_ORG = bindparam("org", type_=BigInteger())
_SINCE, _UNTIL = bindparam("since", type_=BigInteger()), bindparam("until", type_=BigInteger())
_BEGINS_AT = (_T.minute - _T.minute % bindparam("step", type_=BigInteger())).label("at")

_Query = CompoundSelect[*tuple[Any, ...]]
"""A query that returns rows of roll-ups, then rows of counters. The caller adds them up, because SQLite would have to
sort all rows to do so. For 50 endpoints and 29 days, adding them up in SQLite took 4.2 ms instead of 1.5 ms."""
_KEPT = (_R.span == bindparam("of_span"), _R.at >= _SINCE, _R.at < _UNTIL)
_LATELY = (_BEGINS_AT >= _SINCE, _BEGINS_AT < _UNTIL)

# Each statement selects only the requested figures. The statements are cached, because the program uses only a few
# combinations of figures.


@cache
def _steps_of_whole_org(names: tuple[str, ...], anywhere: bool) -> _Query:
    """The roll-ups of one organization (or of all organizations together if `anywhere` is true), with one row per time
    step, and the sums of the counters that have not been aggregated yet."""
    kept = select(_R.at, *(_R[name] for name in names)).where(_R.org_id == _ORG, _R.endpoint_id == EVERY, *_KEPT)
    lately = select(_BEGINS_AT).where(*_LATELY)
    return union_all(kept, _sums(lately if anywhere else lately.where(_T.org_id == _ORG), counters, names))


@cache
def _steps_of_endpoints(names: tuple[str, ...], anywhere: bool) -> _Query:
    kept, lately = _of_endpoints(anywhere)
    rows = kept.add_columns(_R.at, *(_R[name] for name in names))
    return union_all(rows, _sums(lately.add_columns(_BEGINS_AT), counters, names))


@cache
def _sums_of_endpoints(names: tuple[str, ...], anywhere: bool) -> _Query:
    kept, lately = _of_endpoints(anywhere)
    return union_all(_sums(kept, rollups, names), _sums(lately, counters, names))


def _of_endpoints(anywhere: bool) -> tuple[Select[*tuple[Any, ...]], Select[*tuple[Any, ...]]]:
    """The roll-ups and counters of endpoints in one organization, or in any organization if `anywhere` is true. In the
    latter case the endpoints are joined to obtain their organizations, because the keys of both tables begin with the
    organization."""
    kept, lately = select(_R.endpoint_id), select(_T.endpoint_id)
    if anywhere:
        kept = kept.join(endpoints, and_(_E.id == _R.endpoint_id, _E.org_id == _R.org_id)).where(_E.id.in_(KEYS))
        lately = lately.join(endpoints, and_(_E.id == _T.endpoint_id, _E.org_id == _T.org_id)).where(_E.id.in_(KEYS))
    else:
        kept = kept.where(_R.org_id == _ORG, _R.endpoint_id.in_(KEYS))
        lately = lately.where(_T.org_id == _ORG, _T.endpoint_id.in_(KEYS))
    return kept.where(*_KEPT), lately.where(*_LATELY)


def _sums(found: Select[*tuple[Any, ...]], table: Table, names: Sequence[str]) -> Select[*tuple[Any, ...]]:
    """Sums of the figures, grouped by the selected columns."""
    figures = (cast(func.sum(table.c[name]), BigInteger) for name in names)
    return found.add_columns(*figures).group_by(*found.selected_columns)


_ORG_KEY = select(orgs.c.id).where(IN_ORG)
_KEYS_ANYWHERE = select(_E.uid, _E.id).where(_E.uid.in_(UIDS))
_ENDPOINT_KEYS = _KEYS_ANYWHERE.join(orgs, orgs.c.id == _E.org_id).where(IN_ORG)
_CUSTOM_PLAN = text("SET LOCAL plan_cache_mode = force_custom_plan")
"""Prevents PostgreSQL from using a generic plan. Such a plan has to fit any list of endpoints, so it reads all rows of
the organization instead of looking up the endpoints."""
_EVER: Part = (Span.EVER, 0, 1)
_Steps = dict[Instant, tuple[int, ...]]


def figures(
    org_id: UUID | None,
    endpoint_ids: Sequence[EndpointKey],
    since: Instant | None,
    until: Instant | None,
    names: tuple[str, ...],
) -> Transaction[dict[EndpointKey, Figures]]:
    ranges = [_EVER] if since is None or until is None else rollup_parts(since, until)
    found: dict[UUID | None, Figures] = {}
    if None in endpoint_ids:
        found[None] = yield from _sum_of_whole(org_id, ranges, names)
    if own := [one for one in endpoint_ids if one is not None]:
        found |= yield from _sum_of_each(org_id, own, ranges, names)
    return {one: found[one] for one in endpoint_ids}


def _sum_of_whole(org_id: UUID | None, ranges: Sequence[Part], names: tuple[str, ...]) -> Transaction[Figures]:
    total = (0,) * len(names)
    for part in ranges:
        for values in (yield from _steps_of_whole(org_id, part, names)).values():
            total = tuple(map(add, total, values))
    return _named(names, total)


def _sum_of_each(
    org_id: UUID | None, endpoint_ids: Sequence[UUID], ranges: Sequence[Part], names: tuple[str, ...]
) -> Transaction[dict[UUID | None, Figures]]:
    keys, rows = yield from _read_each(_sums_of_endpoints(names, org_id is None), org_id, endpoint_ids, ranges)
    sums: dict[int, tuple[int, ...]] = {}
    for row in rows:
        _add(sums, row[0], row[1:])
    found = {key: _named(names, values) for key, values in sums.items()}
    return {one: found.get(keys.get(one, _NO_KEY), Figures()) for one in endpoint_ids}


def series(
    org_id: UUID | None,
    endpoint_ids: Sequence[EndpointKey],
    span: Span,
    since: Instant,
    until: Instant,
    names: tuple[str, ...],
) -> Transaction[dict[EndpointKey, list[Point]]]:
    steps: dict[UUID | None, _Steps] = {}
    if None in endpoint_ids:
        steps[None] = yield from _steps_of_whole(org_id, (span, since, until), names)
    if own := [one for one in endpoint_ids if one is not None]:
        steps |= yield from _steps_of_each(org_id, own, (span, since, until), names)
    return {one: _points(steps[one], names) for one in endpoint_ids}


def _steps_of_whole(org_id: UUID | None, part: Part, names: tuple[str, ...]) -> Transaction[_Steps]:
    org = yield from _key_of(org_id)
    steps: _Steps = {}
    for row in (yield execute(_steps_of_whole_org(names, org_id is None), org=org, **_bounds(*part))):
        _add(steps, row[0], row[1:])
    if org_id is None:
        for at, values in (yield from _steps_of_whole(OPERATIONS_ORG, part, names)).items():
            # The roll-up of all organizations may have been dropped earlier than that of the reserved organization.
            rest = tuple(map(sub, steps.pop(at, values), values))
            if any(rest):
                steps[at] = rest
    return steps


def _steps_of_each(
    org_id: UUID | None, endpoint_ids: Sequence[UUID], part: Part, names: tuple[str, ...]
) -> Transaction[dict[UUID | None, _Steps]]:
    keys, rows = yield from _read_each(_steps_of_endpoints(names, org_id is None), org_id, endpoint_ids, [part])
    steps: dict[int, _Steps] = {key: {} for key in keys.values()}
    for row in rows:
        _add(steps[row[0]], row[1], row[2:])
    return {one: steps[keys[one]] if one in keys else {} for one in endpoint_ids}


def _read_each(
    statement: _Query, org_id: UUID | None, endpoint_ids: Sequence[UUID], ranges: Sequence[Part]
) -> Transaction[tuple[dict[UUID, int], list[Row]]]:
    """The keys of these endpoints, and the rows that the statement returns for them."""
    org = yield from _key_of(org_id)
    known = _KEYS_ANYWHERE if org_id is None else _ENDPOINT_KEYS
    keys: dict[UUID, int] = dict((yield from execute_in_parts(known, "uids", endpoint_ids, org=org_id)))
    yield execute_on_postgres(_CUSTOM_PLAN)
    rows: list[Row] = []
    for part in ranges:
        rows += yield from execute_in_parts(statement, "keys", keys.values(), org=org, **_bounds(*part))
    return keys, rows


def _points(steps: _Steps, names: tuple[str, ...]) -> list[Point]:
    """Build the points. If all figures were requested, their values need no conversion, which saves time: a day has
    1,440 points."""
    if names == FIGURES:
        return [Point(at, steps[at]) for at in sorted(steps)]
    return [Point.of(at, _named(names, steps[at])) for at in sorted(steps)]


def _add(sums: dict[int, tuple[int, ...]], key: int, values: tuple[int, ...]) -> None:
    sums[key] = tuple(map(add, sums[key], values)) if key in sums else values


def _named(names: Sequence[str], values: Sequence[int]) -> Figures:
    return Figures(**dict(zip(names, values, strict=True)))


_NO_KEY = -1
"""A key that no row has."""


def _key_of(org_id: UUID | None) -> Transaction[int]:
    if org_id is None:
        return EVERY
    rows = yield execute(_ORG_KEY, org=org_id)
    return rows[0][0] if rows else _NO_KEY


def _bounds(span: Span, since: Instant, until: Instant) -> dict[str, object]:
    return {"of_span": span, "step": span.length, "since": since, "until": until}


# -- the busiest and the failing endpoints -----------------------------------------------------------------


def _live_only(rows: Select[*tuple[Any, ...]]) -> Select[*tuple[Any, ...]]:
    """Restrict a query to endpoints that are not deleted and do not belong to channels, which have their own lists."""
    return rows.where(
        text(f"doorstep_endpoints.{LIVING}"),
        _E.org_id.not_in(select(orgs.c.id).where(orgs.c.uid == bindparam("reserved"))),
    )


_BUSIEST_KEPT = (
    _live_only(
        select(_R.endpoint_id, _R.deliveries).join(endpoints, _E.id == _R.endpoint_id).where(text(ENDPOINT_TOTALS))
    )
    .order_by(_R.deliveries.desc())
    .limit(LIMIT)
    .subquery("kept")
)
_BUSIEST_LATELY = select(_T.endpoint_id, _T.deliveries).where(_T.deliveries > 0)
_BOTH = union_all(select(_BUSIEST_KEPT), _BUSIEST_LATELY).subquery("both")
_MADE = func.sum(_BOTH.c.deliveries)
_BUSIEST = (
    _live_only(select(_E.uid).join(_BOTH, _BOTH.c.endpoint_id == _E.id))
    .group_by(_E.id, _E.uid)
    .having(_MADE > 0)
    .order_by(_MADE.desc(), _E.uid)
    .limit(LIMIT)
)


def busiest(_: UUID | None, query: BusiestEndpoints) -> Transaction[list[UUID]]:
    return [row[0] for row in (yield execute(_BUSIEST, limit=query.limit, reserved=OPERATIONS_ORG))]


def _hours_of(endpoint: ColumnElement[int]) -> tuple[ColumnElement[bool], ...]:
    """The conditions that select the hourly roll-ups of an endpoint in which attempts failed permanently. There is at
    most one row per hour."""
    return (_R.endpoint_id == endpoint, _R.span == literal_column("'hour'"), _R.at >= _SINCE, _R.died > 0)


_DIED_LATELY = (_T.minute >= _SINCE, _T.died > 0)
"""The same condition for counters that have not been aggregated yet."""
_ORG_HAS_FAILURES = or_(
    exists().where(_R.org_id == orgs.c.id, *_hours_of(literal_column(str(EVERY)))),
    exists().where(_T.org_id == orgs.c.id, *_DIED_LATELY),
)
"""This condition is checked before those for single endpoints. Most organizations have no such failures and are skipped
after reading a few rows."""
_ENDPOINT_HAS_FAILURES = or_(
    exists().where(_R.org_id == _E.org_id, *_hours_of(_E.id)),
    exists().where(_T.org_id == _E.org_id, _T.endpoint_id == _E.id, *_DIED_LATELY),
)
_FAILING = (
    select(orgs.c.uid, _E.uid).join(endpoints, _E.org_id == orgs.c.id).where(_ORG_HAS_FAILURES, _ENDPOINT_HAS_FAILURES)
)


def failing_endpoints(_: UUID | None, query: FailingEndpoints) -> Transaction[list[tuple[UUID, UUID]]]:
    return [(org_id, endpoint_id) for org_id, endpoint_id in (yield execute(_FAILING, since=query.since))]
