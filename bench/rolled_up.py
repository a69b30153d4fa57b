"""Gives a database a past of thirty days, spread over all endpoints, with the roll-ups that it would have left behind."""

from __future__ import annotations

from bench.databases import Database
from bench.past import add_finished
from doorstep.clock import DAY, Instant
from doorstep.model.rollup import HOUR, MINUTE

DAYS = 30
_MINUTES_KEPT: Instant = 2 * DAY


def add_month(database: Database, count: int, now: Instant) -> None:
    """`count` events, delivered at regular intervals over the last thirty days, to all endpoints in turn."""
    spacing = DAYS * DAY // count
    first = 1 + database.ask("SELECT coalesce(max(id), 0) FROM doorstep_deliveries")[0][0]
    add_finished(
        database,
        count,
        f"{now - DAYS * DAY} + (i - {first}) * CAST({spacing} AS BIGINT)",
        "(SELECT min(id) FROM doorstep_endpoints) + i % (SELECT count(*) FROM doorstep_endpoints)",
    )
    database.run(
        *_roll_up("minute", MINUTE, now - _MINUTES_KEPT),
        *_roll_up("hour", HOUR, 0),
        *_roll_up("day", DAY, 0),
        *_roll_up("ever", 0, 0),
    )
    if database.store == "postgres":
        database.run("VACUUM ANALYZE")


def _roll_up(span: str, step: Instant, since: Instant) -> list[str]:
    """The rows of each endpoint, of each organization, and of everything."""
    at = f"settled_at - settled_at % {step}" if step else "0"
    return [
        _ROLL_UP.format(owner=owner, span=span, at=at, since=since, own=own)
        for owner, own in (("org_id, endpoint_id", 0), ("org_id, 0", 1), ("0, 0", 1))
    ]


_ROLL_UP = """
INSERT INTO doorstep_rollups (org_id, endpoint_id, span, at, created, delivered, now_delivered, deliveries, succeeded,
    retries_0, ttd_0)
SELECT {owner}, '{span}', {at}, {own} * count(*), {own} * count(*), {own} * count(*), count(*), count(*), count(*), count(*)
FROM doorstep_deliveries WHERE settled_at >= {since} GROUP BY 1, 2, 4
"""
