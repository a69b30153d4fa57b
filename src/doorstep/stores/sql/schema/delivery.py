"""Deliveries, with the log of their attempts and their history."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Identity,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from doorstep.model.delivery import DeliveryState
from doorstep.stores.sql.schema.columns import INSTANT, KEY, UID, metadata, one_of, partial_index

RETRYING = "first_failed_at IS NOT NULL AND due_at IS NOT NULL"
DEAD = "(state = 'dead' OR state = 'archived') AND deleted_at IS NULL"
DEAD_BY_TIME = f"{DEAD} AND due_at IS NULL"
DEAD_BY_ENDPOINT = f"{DEAD} AND endpoint_id > 0"
UNTOUCHED = "state = 'dead' AND deleted_at IS NULL AND org_id > 0"
FINISHED = "(state = 'delivered' OR state = 'resolved' OR state = 'cancelled' OR deleted_at IS NOT NULL)"
BATCHES = "batch AND deleted_at IS NULL"
ORDERED = "ordering_key IS NOT NULL AND due_at IS NOT NULL"

deliveries = Table(
    "doorstep_deliveries",
    metadata,
    Column("id", KEY, Identity(), primary_key=True),
    Column("uid", UID, nullable=False),
    Column("org_id", KEY, nullable=False),
    Column("event_id", KEY, nullable=False),
    Column("endpoint_id", KEY, nullable=False),
    Column("state", Text, nullable=False),
    Column("due_at", INSTANT),
    Column("created_at", INSTANT, nullable=False),
    Column("token", BigInteger, nullable=False, server_default=text("0")),
    Column("attempt", Integer, nullable=False, server_default=text("0")),
    Column("round_base", Integer, nullable=False, server_default=text("0")),
    Column("retry_attempts", Integer, nullable=False, server_default=text("0")),
    Column("retries_max", Integer, nullable=False),
    Column("moves", Integer, nullable=False, server_default=text("0")),
    Column("forced", Boolean, nullable=False, server_default=text("false")),
    Column("claimed_at", INSTANT),
    Column("worker", Text),
    Column("first_failed_at", INSTANT),
    Column("last_attempt_at", INSTANT),
    Column("settled_at", INSTANT),
    Column("deleted_at", INSTANT),
    Column("response_code", Integer),
    Column("category", Text),
    Column("code", Text),
    Column("reason", Text),
    Column("cause", BigInteger),
    Column("payload", LargeBinary),
    Column("ordering_key", Text),
    Column("batch", Boolean, nullable=False, server_default=text("false")),
    UniqueConstraint("org_id", "uid"),
    one_of("state", DeliveryState),
    CheckConstraint("retry_attempts >= 0 AND retry_attempts <= retries_max", name="retries_bounded"),
    CheckConstraint("(state IN ('pending', 'in_progress')) = (due_at IS NOT NULL)", name="due_while_open"),
    Index("doorstep_deliveries_event", "event_id"),
    partial_index("doorstep_deliveries_lines", ("endpoint_id", "ordering_key", "id"), ORDERED),
    partial_index("doorstep_deliveries_pending", ("endpoint_id", "due_at", "id"), "state = 'pending'"),
    partial_index("doorstep_deliveries_forced", ("due_at", "id"), "forced"),
    partial_index("doorstep_deliveries_in_progress", ("endpoint_id", "due_at"), "state = 'in_progress'"),
    partial_index("doorstep_deliveries_retrying", ("org_id", "due_at", "uid"), RETRYING),
    partial_index("doorstep_deliveries_dead", ("org_id", "state", "settled_at", "uid"), DEAD_BY_TIME),
    partial_index("doorstep_deliveries_causes", ("org_id", "state", "cause", "settled_at", "uid"), DEAD),
    partial_index(
        "doorstep_deliveries_lost", ("org_id", "state", "endpoint_id", "settled_at", "uid"), DEAD_BY_ENDPOINT
    ),
    partial_index("doorstep_deliveries_untouched", ("settled_at", "id"), UNTOUCHED),
    partial_index("doorstep_deliveries_finished", ("settled_at", "id"), FINISHED),
    partial_index("doorstep_deliveries_batches", ("org_id", "state", "uid"), BATCHES),
)
"""`token` grows with every claim and is never reused. `round_base` is the number of the last attempt before the
present round, so that retries can be counted anew after an operator's retry. `moves` counts the transitions: it
numbers the history. `due_at` is the next try, or the end of the lease, or NEVER while it is blocked. `payload` is set
where an operator edited it. `ordering_key` is that of its event, so that a line can be found in one index.

Lists are sorted by an instant and then by `uid`, not by `id`: SQLite does not seek to a pair that ends with a row id,
and took 70 ms to find its place among 200,000 letters that died at one instant.

The index of what each endpoint lost makes a death 6 µs dearer on SQLite (of 49) and 1 on PostgreSQL (of 57), and costs
nothing where nothing dies; without it an endpoint's own few letters are behind thousands of empty pages of others'.

`batch` is set for what submits a batch. Its index costs what is no batch at most 0.6 µs when it is accepted (SQLite, of
9); without it a thousand old batches are behind 500 empty pages of a million events."""

NEVER = 2**62
"""The `due_at` of a delivery that waits for an earlier one of its line: an endpoint's deliveries with one ordering key.
The index of what is due keeps them behind everything that has a time. Readers show them as `blocked`, with no time."""

attempts = Table(
    "doorstep_attempts",
    metadata,
    Column("delivery_id", KEY, nullable=False),
    Column("number", Integer, nullable=False),
    Column("move", Integer, nullable=False),
    Column("late", Integer, nullable=False),
    Column("org_id", KEY, nullable=False),
    Column("worker", Text, nullable=False),
    Column("started_at", INSTANT, nullable=False),
    Column("finished_at", INSTANT, nullable=False),
    Column("dns_us", BigInteger, nullable=False),
    Column("connect_us", BigInteger, nullable=False),
    Column("tls_us", BigInteger, nullable=False),
    Column("first_byte_us", BigInteger, nullable=False),
    Column("next_retry_at", INSTANT),
    Column("response_code", Integer),
    Column("category", Text),
    Column("code", Text),
    Column("reason", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Column("request_headers", LargeBinary, nullable=False),
    Column("response_headers", LargeBinary, nullable=False),
    Column("response_body", LargeBinary, nullable=False),
    PrimaryKeyConstraint("delivery_id", "number", "move", "late"),
    sqlite_with_rowid=False,
)
"""Clustered by delivery. `late` is 0 for the attempt that counted, and 1, 2, … for late results of the same number.
`move` is the delivery's `moves` when the row was written, so that rows of one number can be read in that order."""

history = Table(
    "doorstep_history",
    metadata,
    Column("delivery_id", KEY, nullable=False),
    Column("move", Integer, nullable=False),
    Column("org_id", KEY, nullable=False),
    Column("at", INSTANT, nullable=False),
    Column("old_state", Text, nullable=False),
    Column("new_state", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("note", Text, nullable=False),
    PrimaryKeyConstraint("delivery_id", "move"),
    sqlite_with_rowid=False,
)
"""One row a transition, numbered by the delivery's `moves` after it; the acceptance is read from the delivery."""
