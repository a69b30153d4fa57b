"""Ticks of the hot verbs. Accept and claim write theirs inside their own statement, settle in one more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.claim import Settlement, StatusChange
from doorstep.model.rollup import FIGURES, MINUTE, Span
from doorstep.stores.sql.postgres.connections import Connection
from doorstep.stores.sql.postgres.directory import Address
from doorstep.stores.sql.queries.aggregation import GENERATIONS, SHARD, tick_text
from doorstep.stores.tally import OF_EVENTS, Tally

_TICKS_A_SHARD = 512
_ticks = count()


def generation() -> int:
    """Which of its shards a connection is to use now: another one every so many ticks.

    PostgreSQL keeps every version of a row that some open snapshot may still need, and walks over all of them to find the
    newest. With one shard, a transaction that ticks took 0.5 ms, and 0.9 after 5,000 ticks beside a snapshot left open;
    with several it stays at 0.5 (measured).
    """
    return next(_ticks) // _TICKS_A_SHARD % GENERATIONS


def accepted(now: str, generation: str, events: str, deliveries: str) -> str:
    """Counts new rows, given as tables with `org_id` and, of deliveries, `endpoint_id`; the rest are expressions."""
    return tick_text(
        f"""SELECT org_id, endpoint_id, {_minute(now)}, {_shard(generation)}, events, events, deliveries, deliveries FROM (
            SELECT org_id, {OF_EVENTS} AS endpoint_id, count(*) AS events, 0 AS deliveries FROM {events} GROUP BY org_id
            UNION ALL
            SELECT org_id, endpoint_id, 0, count(*) FROM {deliveries} GROUP BY org_id, endpoint_id
        ) AS new""",
        ("created", "now_received", "deliveries", "now_open"),
    )


def picked_up(now: str, generation: str, events: str) -> str:
    """Counts events that were received and are queued, given as a table with `org_id`."""
    return tick_text(
        f"SELECT org_id, {OF_EVENTS}, {_minute(now)}, {_shard(generation)}, -count(*), count(*) FROM {events}"
        " GROUP BY org_id",
        ("now_received", "now_queued"),
    )


def _minute(now: str) -> str:
    return f"{now}::bigint - {now}::bigint % {MINUTE}"


def _shard(generation: str) -> str:
    return f"{SHARD} + {generation}::int"


_COLUMNS = ", ".join(f"${place}::bigint[]" for place in range(3, 5 + len(FIGURES)))
ADD = tick_text(
    f"SELECT org_id, endpoint_id, $1::bigint, {_shard('$2')}, {', '.join(f'coalesce({name}, 0)' for name in FIGURES)}"
    f" FROM unnest({_COLUMNS}) AS t(org_id, endpoint_id, {', '.join(FIGURES)})"
)
"""A figure that is 0 everywhere comes as no array at all: `unnest` fills it up with NULLs."""


async def tick(connection: Connection, tally: Tally, at: Instant) -> None:
    """Count what this transaction does, under the minute of `at`."""
    if tally.rows:
        orgs, endpoints = map(list, zip(*tally.rows, strict=True))
        figures = [_column(tally, name) for name in FIGURES]
        await connection.execute(ADD, Span.MINUTE.start(at), generation(), orgs, endpoints, *figures)


def _column(tally: Tally, name: str) -> list[int]:
    column = [figures.get(name, 0) for figures in tally.rows.values()]
    return column if any(column) else []


def settled(
    addresses: Mapping[UUID, Address],
    good: Sequence[Settlement],
    late: Sequence[Settlement],
    changes: Sequence[StatusChange],
    now: Instant,
) -> Tally:
    """What results of claims add up to; `addresses` are those of their endpoints."""
    owners = {endpoint_id: (one.org_key, one.key) for endpoint_id, one in addresses.items()}
    orgs = {one.org_id: one.org_key for one in addresses.values()}
    tally = Tally()
    tally.settled(((owners[one.claim.endpoint_id], one) for one in good), now)
    for settlement in late:
        tally.add(owners[settlement.claim.endpoint_id], "late")
    tally.statuses((orgs[change.org_id], change) for change in changes)
    return tally
