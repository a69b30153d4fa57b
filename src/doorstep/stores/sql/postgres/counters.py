"""The counters that `accept`, `claim` and `settle` update: the first two in their main statement, `settle` in a separate
statement."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count

from doorstep.clock import Instant
from doorstep.model.rollup import FIGURES, MINUTE, Span
from doorstep.stores.sql.postgres.connections import Connection
from doorstep.stores.sql.queries.figures import GENERATIONS, SHARD, counters_sql
from doorstep.stores.tally import OF_EVENTS, Tally

_WRITES_PER_SHARD = 512
_writes = count()


def generation() -> int:
    """The number of the shard that the connections of this process use now. It changes after every 512 writes of this
    process.

    PostgreSQL keeps every version of a row that an open snapshot may still need, and reads all of them to find the
    newest. With a single shard, a transaction that updates counters took 0.5 ms at first, and 0.9 ms after 5,000 writes
    that were made while a snapshot was open. With several shards, it stays at 0.5 ms (measured).
    """
    return next(_writes) // _WRITES_PER_SHARD % GENERATIONS


def accepted(now: str, generation: str, events: str, deliveries: str) -> str:
    """SQL that counts new events and deliveries. `events` names a table with the columns `org_id` and `status`, and
    `deliveries` names a table with `org_id` and `endpoint_id`."""
    return counters_sql(
        f"""SELECT org_id, endpoint_id, {_minute(now)}, {_shard(generation)}, events, events - queued, queued, deliveries,
            deliveries FROM (
            SELECT org_id, {OF_EVENTS} AS endpoint_id, count(*) AS events,
                count(*) FILTER (WHERE status = 'queued') AS queued, 0 AS deliveries FROM {events} GROUP BY org_id
            UNION ALL
            SELECT org_id, endpoint_id, 0, 0, count(*) FROM {deliveries} GROUP BY org_id, endpoint_id
        ) AS new""",
        ("created", "now_received", "now_queued", "deliveries", "now_open"),
    )


def picked_up(now: str, generation: str, events: str) -> str:
    """SQL that counts events that change from received to queued. `events` names a table with the column `org_id`."""
    return counters_sql(
        f"SELECT org_id, {OF_EVENTS}, {_minute(now)}, {_shard(generation)}, -count(*), count(*) FROM {events}"
        " GROUP BY org_id",
        ("now_received", "now_queued"),
    )


def settled_one(settled: str, event: str, status: Mapping[str, str], parameters: tuple[str, str, str, str, str]) -> str:
    """SQL that counts one settlement. `settled` names a table that is empty if the settlement is late, and `event` a
    table with the new status of its event and how many of its deliveries are open. `status` has the figures that change
    when the event ends. The parameters are the minute, the generation, the keys of the organization and the endpoint,
    and the figures of the endpoint as an array."""
    minute, generation, org, endpoint, figures = parameters
    place = f"{minute}::bigint, {_shard(generation)}"
    of_endpoint = ", ".join(f"({figures}::bigint[])[{number}]" for number in range(1, len(FIGURES) + 1))
    of_event = ", ".join(status.get(name, "0") for name in FIGURES)
    return counters_sql(
        f"SELECT {org}::bigint, {endpoint}::bigint, {place}, {of_endpoint} FROM {settled} UNION ALL"
        f" SELECT {org}::bigint, {OF_EVENTS}, {place}, {of_event} FROM {event} AS e WHERE e.open_count = 0"
    )


def _minute(now: str) -> str:
    return f"{now}::bigint - {now}::bigint % {MINUTE}"


def _shard(generation: str) -> str:
    return f"{SHARD} + {generation}::int"


_COLUMNS = ", ".join(f"${number}::bigint[]" for number in range(3, 5 + len(FIGURES)))
ADD = counters_sql(
    f"SELECT org_id, endpoint_id, $1::bigint, {_shard('$2')}, {', '.join(f'coalesce({name}, 0)' for name in FIGURES)}"
    f" FROM unnest({_COLUMNS}) AS t(org_id, endpoint_id, {', '.join(FIGURES)})"
)
"""If a counter is 0 in all rows, it is passed as an empty array, which `unnest` fills with NULLs."""


async def add_counts(connection: Connection, tally: Tally, at: Instant) -> None:
    """Add the changes of this transaction to the counters of the minute that contains `at`."""
    if tally.rows:
        orgs, endpoints = map(list, zip(*tally.rows, strict=True))
        figures = [_column(tally, name) for name in FIGURES]
        await connection.execute(ADD, Span.MINUTE.start(at), generation(), orgs, endpoints, *figures)


def _column(tally: Tally, name: str) -> list[int]:
    column = [figures.get(name, 0) for figures in tally.rows.values()]
    return column if any(column) else []
