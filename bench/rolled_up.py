"""Fills a database with thirty days of history over all endpoints, including its roll-ups."""

from __future__ import annotations

from bench.databases import Database
from bench.past import add_dead, add_finished, add_retries
from doorstep.clock import DAY, Instant
from doorstep.model.rollup import HOUR, MINUTE

DAYS = 30
_MINUTES_KEPT: Instant = 2 * DAY
_LETTERS_KEPT: Instant = 6 * DAY
"""Older dead letters would be archived during the measurement."""
_ANY_ENDPOINT = "(SELECT min(id) FROM doorstep_endpoints) + i % (SELECT count(*) FROM doorstep_endpoints)"


def add_month(database: Database, count: int, now: Instant) -> None:
    """Add `count` events, distributed over all endpoints. 96 % were delivered at regular intervals over the last thirty
    days, 2 % became dead letters over the last six days, and 2 % have just failed and wait hours for their retry."""
    few = count // 50
    spread_finished(database, count - 2 * few, now)
    spread_dead(database, few, now)
    add_waiting(database, few, now)
    roll_up(database, now)


def spread_finished(database: Database, count: int, now: Instant) -> None:
    add_finished(database, count, _spread(database, count, now, DAYS * DAY), _ANY_ENDPOINT)


def spread_dead(database: Database, count: int, now: Instant, endpoint: str = _ANY_ENDPOINT, cause: str = "1") -> None:
    add_dead(database, count, _spread(database, count, now, _LETTERS_KEPT), endpoint, cause)


def add_waiting(database: Database, count: int, now: Instant) -> None:
    add_retries(database, count, now + 6 * HOUR, 1, failed_at=now)


def roll_up(database: Database, now: Instant) -> None:
    """Add the roll-ups of the existing deliveries."""
    database.run(
        *_roll_up("minute", MINUTE, now - _MINUTES_KEPT),
        *_roll_up("hour", HOUR, 0),
        *_roll_up("day", DAY, 0),
        *_roll_up("ever", 0, 0),
    )
    if database.store == "postgres":
        database.run("VACUUM ANALYZE")


def _spread(database: Database, count: int, now: Instant, over: Instant) -> str:
    """The instants of the rows, as an expression of their ids."""
    first = 1 + database.ask("SELECT coalesce(max(id), 0) FROM doorstep_deliveries")[0][0]
    return f"{now - over} + (i - {first}) * CAST({over // count} AS BIGINT)"


def _roll_up(span: str, step: Instant, since: Instant) -> list[str]:
    """The statements for the roll-up rows of each endpoint, of each organization, and of the whole store."""
    at = f"at - at % {step}" if step else "0"
    return [
        _ROLL_UP.format(owner=owner, span=span, at=at, since=since, own=own)
        for owner, own in (("org_id, endpoint_id", 0), ("org_id, 0", 1), ("0, 0", 1))
    ]


_ROLL_UP = """
INSERT INTO doorstep_rollups (org_id, endpoint_id, span, at, created, delivered, failed, now_queued, now_delivered,
    now_failed, deliveries, succeeded, retried, died, dead, now_open, now_dead, retries_0, ttd_0,
    response_4, response_us)
SELECT {owner}, '{span}', {at}, {own} * count(*), {own} * sum(good), {own} * sum(lost), {own} * sum(waits),
    {own} * sum(good), {own} * sum(lost), count(*), sum(good), sum(waits), sum(lost), sum(lost), sum(waits), sum(lost),
    sum(good) + sum(lost), sum(good), count(*), 80000 * count(*)
FROM (
    SELECT org_id, endpoint_id, coalesce(settled_at, created_at) AS at,
        CASE state WHEN 'delivered' THEN 1 ELSE 0 END AS good, CASE state WHEN 'dead' THEN 1 ELSE 0 END AS lost,
        CASE state WHEN 'pending' THEN 1 ELSE 0 END AS waits
    FROM doorstep_deliveries
) AS past WHERE at >= {since} GROUP BY 1, 2, 4
"""
