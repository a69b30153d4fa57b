"""Folding: ticks of minutes that have ended become roll-ups, and roll-ups that were kept long enough are dropped.

The database adds them up by itself: one statement for thousands of ticks.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import bindparam, delete, select, text, tuple_

from doorstep.clock import Instant
from doorstep.model.rollup import FIGURES, Span
from doorstep.stores.sql.queries.transaction import (
    Transaction,
    execute,
    execute_each,
    execute_on_postgres,
    execute_on_sqlite,
)
from doorstep.stores.sql.schema import rollups
from doorstep.stores.tally import EVERY, OF_EVENTS, Tally

TICK_KEY = "org_id, endpoint_id, minute, shard"
GENERATIONS = 64
"""How many shards a connection to PostgreSQL has; see postgres/counters.py."""
SHARD = f"pg_backend_pid() * {GENERATIONS}"


def tick_text(source: str, figures: Sequence[str] = FIGURES) -> str:
    """Add to the ticks what `source` gives: the columns of their key, and these figures."""
    added = ", ".join(f"{name} = doorstep_ticks.{name} + excluded.{name}" for name in figures)
    return f"INSERT INTO doorstep_ticks ({TICK_KEY}, {', '.join(figures)}) {source} ON CONFLICT ({TICK_KEY}) DO UPDATE SET {added}"


_VALUES = f"VALUES (:org, :endpoint, :at_minute, {{shard}}, {', '.join(f':{name}' for name in FIGURES)})"
_TICK = {
    "sqlite": text(tick_text(_VALUES.format(shard="0"))),
    "postgresql": text(tick_text(_VALUES.format(shard=SHARD))),
}


def tick(tally: Tally, at: Instant) -> Transaction[None]:
    """Count what the transaction of this script does, under the minute of `at`."""
    minute = Span.MINUTE.start(at)
    rows = [
        {"org": org, "endpoint": endpoint, "at_minute": minute, **_NOTHING, **figures}
        for (org, endpoint), figures in tally.rows.items()
    ]
    for dialect, statement in _TICK.items():
        yield execute_each(statement, rows, dialect)


_NOTHING = dict.fromkeys(FIGURES, 0)


def aggregate(now: Instant, limit: int, minutes_before: Instant, hours_before: Instant) -> Transaction[int]:
    ended = {"before": Span.MINUTE.start(now), "most": limit}
    moved = yield execute_on_postgres(_MOVE, **ended)
    yield execute_on_sqlite(_KEEP, **ended)
    moved = [*moved, *(yield execute_on_sqlite(_REMOVE, **ended))]
    most = len(moved)
    for span, before in ((Span.MINUTE, minutes_before), (Span.HOUR, hours_before), (Span.DAY, hours_before)):
        most = max(most, len((yield execute(_DROP, of_span=span, before=before, most=limit))))
    return most


def _kept(ticks: str) -> str:
    """Adds ticks to the roll-ups: to those of the endpoint, of its organization and of everything, each over every span.

    Step by step, and the shards first: of all that is added up the ticks are by far the most. In the order of the key,
    so that two who fold at once do not lock each other's rows crosswise.
    """
    sums = ", ".join(f"sum({name}) AS {name}" for name in FIGURES)
    added = ", ".join(f"{name} = doorstep_rollups.{name} + excluded.{name}" for name in FIGURES)
    return f"""
    INSERT INTO doorstep_rollups (org_id, endpoint_id, span, at, {", ".join(FIGURES)})
    WITH minutes AS (
        SELECT org_id, endpoint_id, minute, {sums} FROM {ticks} GROUP BY org_id, endpoint_id, minute
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


_ENDED = f"FROM doorstep_ticks WHERE minute < :before ORDER BY {TICK_KEY} LIMIT :most"

# SQLite has one writer: what is counted is what is removed after it.
_KEEP = text(_kept(f"(SELECT * {_ENDED})"))
_REMOVE = text(f"DELETE FROM doorstep_ticks WHERE ({TICK_KEY}) IN (SELECT {TICK_KEY} {_ENDED}) RETURNING minute")
_MOVE = text(f"""
    WITH ended AS MATERIALIZED (SELECT ctid {_ENDED} FOR UPDATE SKIP LOCKED), moved AS (
        DELETE FROM doorstep_ticks WHERE ctid = ANY (ARRAY(SELECT ctid FROM ended)) RETURNING *
    ), kept AS ({_kept("moved")})
    SELECT minute FROM moved""")
"""What somebody is adding to just now is left for the next time.

Those that have ended are found first, and once. In the condition itself PostgreSQL may look for them once for every row,
each time finding those that it has not removed yet, without bounds; and by their key it may compare each with all."""

_R = rollups.c
_ROLLUP_KEY = (_R.org_id, _R.endpoint_id, _R.span, _R.at)
_OUTDATED = (
    select(*_ROLLUP_KEY)
    .where(_R.span == bindparam("of_span"), _R.at < bindparam("before"))
    .order_by(_R.at, _R.org_id, _R.endpoint_id)
    .limit(bindparam("most"))
    .with_for_update(skip_locked=True)
    .cte("outdated")
)
_DROP = delete(rollups).where(tuple_(*_ROLLUP_KEY).in_(select(_OUTDATED))).returning(_R.at)
