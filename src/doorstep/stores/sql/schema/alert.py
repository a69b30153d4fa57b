"""Incidents, the alerts that they are made into, and what was arranged about them."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Identity, Index, Table, Text

from doorstep.model.alert import Rule
from doorstep.stores.sql.schema.columns import INSTANT, KEY, UID, metadata, one_of, partial_index

incidents = Table(
    "doorstep_incidents",
    metadata,
    Column("id", KEY, Identity(), primary_key=True),
    Column("org_id", KEY, nullable=False),
    Column("document", Text, nullable=False),
    Index("doorstep_incidents_org", "org_id", "id"),
    sqlite_autoincrement=True,
)
"""What went wrong or right again, until it is told. On SQLite too an `id` is never given twice: whoever was slow must
not remove another incident than the one that he read."""

ALERT_OPEN = "ended_at IS NULL"
ALERT_PENDING = "ended_at IS NOT NULL AND review_at IS NOT NULL"
"""It is over, and nobody could be told so yet."""
ALERT_MAY_RETURN = "ended_at IS NOT NULL AND rule <> 'dead_letter'"
"""What comes back within its cooldown is the same alert. Occurrences do not; of dead letters there may be very many."""

alerts = Table(
    "doorstep_alerts",
    metadata,
    Column("id", KEY, Identity(), primary_key=True),
    Column("uid", UID, nullable=False, unique=True),
    Column("org_id", KEY, nullable=False),
    Column("subject", Text, nullable=False),
    Column("rule", Text, nullable=False),
    Column("endpoint_uid", UID),
    Column("ended_at", INSTANT),
    Column("review_at", INSTANT),
    Column("version", BigInteger, nullable=False),
    Column("document", Text, nullable=False),
    one_of("rule", Rule),
    Index("doorstep_alerts_org", "org_id", "id"),
    partial_index("doorstep_alerts_open", ("org_id", "subject"), ALERT_OPEN, unique=True),
    partial_index("doorstep_alerts_ended", ("ended_at", "id"), "ended_at IS NOT NULL"),
    partial_index("doorstep_alerts_returning", ("org_id", "ended_at"), ALERT_MAY_RETURN),
    partial_index("doorstep_alerts_pending", ("org_id", "review_at"), ALERT_PENDING),
    partial_index("doorstep_alerts_review", ("review_at", "org_id"), "review_at IS NOT NULL"),
)
"""`subject` is what it is about: of each there is at most one open alert. `document` is the alert as JSON."""

arrangements = Table(
    "doorstep_arrangements",
    metadata,
    Column("id", KEY, Identity(), primary_key=True),
    Column("uid", UID, nullable=False, unique=True),
    Column("org_id", KEY, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("ends_at", INSTANT),
    Column("document", Text, nullable=False),
    Index("doorstep_arrangements_org", "org_id", "id"),
    partial_index("doorstep_arrangements_end", ("ends_at", "id"), "ends_at IS NOT NULL"),
)
"""What organizations arranged about their alerts, as JSON: rules, channels, and silences, which end."""
