"""Entities of pipelines, and their history."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Identity, Index, PrimaryKeyConstraint, Table, Text, UniqueConstraint

from doorstep.model.entity import Phase
from doorstep.stores.sql.schema.columns import INSTANT, KEY, UID, metadata, one_of, partial_index

RUNNING = "phase = 'running'"
EXPECTING = "phase = 'running' AND event_uid IS NOT NULL"
HIDDEN = "(phase = 'dead' OR phase = 'archived')"
GIVEN_UP = "phase = 'dead'"

entities = Table(
    "doorstep_entities",
    metadata,
    Column("id", KEY, Identity(), primary_key=True),
    Column("org_id", KEY, nullable=False),
    Column("pipeline", Text, nullable=False),
    Column("entity_id", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("phase", Text, nullable=False),
    Column("data", Text, nullable=False),
    Column("error_reason", Text),
    Column("metadata", Text, nullable=False),
    Column("event_uid", UID),
    Column("created_at", INSTANT, nullable=False),
    Column("changed_at", INSTANT, nullable=False),
    Column("version", BigInteger, nullable=False),
    UniqueConstraint("org_id", "pipeline", "entity_id"),
    one_of("phase", Phase),
    Index("doorstep_entities_all", "org_id", "pipeline", "id"),
    Index("doorstep_entities_status", "org_id", "pipeline", "status", "id"),
    partial_index("doorstep_entities_running", ("org_id", "pipeline", "id"), RUNNING),
    partial_index("doorstep_entities_event", ("org_id", "event_uid"), EXPECTING),
    partial_index("doorstep_entities_hidden", ("org_id", "pipeline", "id"), HIDDEN),
    partial_index("doorstep_entities_untouched", ("org_id", "pipeline", "changed_at", "id"), GIVEN_UP),
)
"""`status` is a word of the program's own; what it means to the engine is `phase`. `data` and `metadata` are JSON."""

entity_history = Table(
    "doorstep_entity_history",
    metadata,
    Column("entity_key", KEY, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("org_id", KEY, nullable=False),
    Column("at", INSTANT, nullable=False),
    Column("old_status", Text),
    Column("new_status", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("event_uid", UID),
    PrimaryKeyConstraint("entity_key", "version"),
    sqlite_with_rowid=False,
)
"""`version` is that of the entity after the change."""
