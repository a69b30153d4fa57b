"""Figures: ticks, and the roll-ups that they are moved into."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Integer, PrimaryKeyConstraint, Table, Text, text

from doorstep.model.rollup import FIGURES, Span
from doorstep.stores.sql.schema.columns import INSTANT, KEY, metadata, one_of, partial_index

BUSY = "span = 'ever' AND endpoint_id > 0"
LOSING = "span = 'hour' AND endpoint_id > 0 AND dead > 0"


def _figures() -> list[Column[int]]:
    return [Column(name, BigInteger, nullable=False, server_default=text("0")) for name in FIGURES]


ticks = Table(
    "doorstep_ticks",
    metadata,
    Column("org_id", KEY, nullable=False),
    Column("endpoint_id", KEY, nullable=False),
    Column("minute", INSTANT, nullable=False),
    Column("shard", Integer, nullable=False),
    *_figures(),
    PrimaryKeyConstraint("org_id", "endpoint_id", "minute", "shard"),
    sqlite_with_rowid=False,
)
"""What was counted lately; `endpoint_id` is 0 for what belongs to events. `shard` keeps two transactions from waiting for
each other's row: on PostgreSQL it is made of the process of the server that a connection has for itself. SQLite has one
writer, and its shard is 0. So there is a row for each endpoint that was busy in the last minute; on PostgreSQL one for each
connection that counted there, and one more for every 512 times that it did. Then they are moved into the roll-ups."""

rollups = Table(
    "doorstep_rollups",
    metadata,
    Column("org_id", KEY, nullable=False),
    Column("endpoint_id", KEY, nullable=False),
    Column("span", Text, nullable=False),
    Column("at", INSTANT, nullable=False),
    *_figures(),
    PrimaryKeyConstraint("org_id", "endpoint_id", "span", "at"),
    one_of("span", Span),
    Index("doorstep_rollups_age", "span", "at"),
    partial_index("doorstep_rollups_busiest", ("deliveries",), BUSY),
    partial_index("doorstep_rollups_losing", ("org_id", "at", "endpoint_id"), LOSING),
    sqlite_with_rowid=False,
)
"""The sums of an endpoint; of an organization, with `endpoint_id` 0; and of everything, with both 0. `at` is where the
span begins, and 0 for that which is since ever."""
