"""Events, their payloads and the keys under which they were accepted."""

from __future__ import annotations

from sqlalchemy import (
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

from doorstep.model.event import EventStatus
from doorstep.stores.sql.schema.columns import INSTANT, KEY, UID, metadata, one_of, partial_index

INBOX = "ended_at IS NULL AND delivery_count = 0"
FAILED = "ended_at IS NOT NULL AND delivery_count > 0 AND deleted_at IS NULL"
ACKNOWLEDGED = "ended_at IS NOT NULL AND delivery_count = 0"
UNACKNOWLEDGED = f"{INBOX} AND org_id > 0"
EXPIRING = "expires_at IS NOT NULL"

events = Table(
    "doorstep_events",
    metadata,
    Column("id", KEY, Identity(), primary_key=True),
    Column("uid", UID, nullable=False),
    Column("org_id", KEY, nullable=False),
    Column("event_type", Text, nullable=False),
    Column("status", Text, nullable=False),
    # The status is kept by adding to these at each settle, never by looking at the other deliveries.
    Column("delivery_count", Integer, nullable=False),
    Column("open_count", Integer, nullable=False),
    Column("dead_count", Integer, nullable=False, server_default=text("0")),
    Column("done_count", Integer, nullable=False, server_default=text("0")),
    Column("created_at", INSTANT, nullable=False),
    Column("ended_at", INSTANT),
    Column("deleted_at", INSTANT),
    Column("deliver_at", INSTANT),
    Column("expires_at", INSTANT),
    Column("correlation_id", Text, nullable=False),
    Column("ordering_key", Text),
    Column("metadata", LargeBinary, nullable=False),
    Column("payload", LargeBinary),
    Column("trace", Text),
    UniqueConstraint("org_id", "uid"),
    one_of("status", EventStatus),
    CheckConstraint(
        "open_count >= 0 AND dead_count >= 0 AND done_count >= 0"
        " AND open_count + dead_count + done_count <= delivery_count",
        name="counts_add_up",
    ),
    partial_index("doorstep_events_inbox", ("org_id", "uid"), INBOX),
    partial_index("doorstep_events_failed", ("org_id", "uid"), FAILED),
    partial_index("doorstep_events_acknowledged", ("ended_at",), ACKNOWLEDGED),
    partial_index("doorstep_events_unacknowledged", ("created_at", "id"), UNACKNOWLEDGED),
    partial_index("doorstep_events_expiring", ("expires_at", "id"), EXPIRING),
)
"""`ended_at` is when the event failed or was acknowledged (or deleted from the inbox, so that it is cleaned away like
those); it stays empty for those that are simply delivered. So no index looks at `status`, and PostgreSQL can write the
two changes of most events in place, which took a fifth off the server's cost of a delivery. A payload that is not here
is in `payloads`."""

payloads = Table(
    "doorstep_payloads",
    metadata,
    Column("event_id", KEY, primary_key=True, autoincrement=False),
    Column("org_id", KEY, nullable=False),
    Column("payload", LargeBinary, nullable=False),
)
"""Long payloads, on SQLite only: it writes the whole row again at each change of status, which at 5 KB doubled the
cost of claim and settle. PostgreSQL keeps long values apart by itself, and this table stays empty."""

idempotency = Table(
    "doorstep_idempotency",
    metadata,
    Column("org_id", KEY, nullable=False),
    Column("key", Text, nullable=False),
    Column("fingerprint", LargeBinary, nullable=False),
    Column("event_uid", UID, nullable=False),
    Column("event_created_at", INSTANT, nullable=False),
    Column("delivery_count", Integer, nullable=False),
    Column("created_at", INSTANT, nullable=False),
    PrimaryKeyConstraint("org_id", "key"),
    Index("doorstep_idempotency_age", "created_at"),
    sqlite_with_rowid=False,
)
"""The first receipt under each key: it can be given again even if the event has been cleaned away."""
