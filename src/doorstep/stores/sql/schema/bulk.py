"""Bulk operations, and what they remember."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Identity, Index, Integer, PrimaryKeyConstraint, Table, Text

from doorstep.stores.sql.schema.columns import INSTANT, KEY, UID, metadata, partial_index

bulks = Table(
    "doorstep_bulks",
    metadata,
    Column("id", KEY, Identity(), primary_key=True),
    Column("uid", UID, nullable=False, unique=True),
    Column("org_id", KEY, nullable=False),
    Column("live", Boolean, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("finished_at", INSTANT),
    Column("document", Text, nullable=False),
    Index("doorstep_bulks_org", "org_id", "id"),
    partial_index("doorstep_bulks_live", ("id",), "live"),
    partial_index("doorstep_bulks_finished", ("finished_at",), "finished_at IS NOT NULL"),
)
"""`document` is the operation as JSON; `live` is whether a service must look at it."""

bulk_items = Table(
    "doorstep_bulk_items",
    metadata,
    Column("bulk_id", KEY, nullable=False),
    Column("delivery_id", KEY, nullable=False),
    Column("org_id", KEY, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("succeeded", Boolean),
    PrimaryKeyConstraint("bulk_id", "delivery_id"),
    partial_index("doorstep_bulk_items_unknown", ("bulk_id", "delivery_id"), "succeeded IS NULL"),
    partial_index("doorstep_bulk_items_failed", ("bulk_id", "delivery_id"), "succeeded = false"),
    sqlite_with_rowid=False,
)
"""What a bulk retry has retried, with the number of the latest attempt before; `succeeded` once it is known."""
