"""The register of workers."""

from __future__ import annotations

from sqlalchemy import Column, Index, Table, Text

from doorstep.stores.sql.schema.columns import INSTANT, metadata

workers = Table(
    "doorstep_workers",
    metadata,
    Column("name", Text, primary_key=True),
    Column("seen_at", INSTANT, nullable=False),
    Column("document", Text, nullable=False),
    Index("doorstep_workers_seen", "seen_at"),
)
"""One row a process, as JSON. It belongs to no organization: only the engine sees it."""
