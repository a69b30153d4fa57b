"""Organizations, their keys, and the audit of what was done under them."""

from __future__ import annotations

from sqlalchemy import Column, ForeignKey, Identity, Index, LargeBinary, PrimaryKeyConstraint, Table, Text

from doorstep.model.org import Role
from doorstep.stores.sql.schema.columns import INSTANT, KEY, UID, metadata, one_of

orgs = Table(
    "doorstep_orgs",
    metadata,
    Column("id", KEY, Identity(), primary_key=True),
    Column("uid", UID, nullable=False, unique=True),
    Column("document", Text, nullable=False),
)

keys = Table(
    "doorstep_keys",
    metadata,
    Column("id", KEY, Identity(), primary_key=True),
    Column("uid", UID, nullable=False, unique=True),
    Column("org_id", KEY, ForeignKey("doorstep_orgs.id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("prefix", Text, nullable=False),
    Column("digest", LargeBinary, nullable=False, unique=True),
    Column("created_at", INSTANT, nullable=False),
    Column("expires_at", INSTANT),
    Column("revoked_at", INSTANT),
    one_of("role", Role),
    Index("doorstep_keys_org", "org_id"),
    Index("doorstep_keys_prefix", "org_id", "prefix"),
    Index("doorstep_keys_name", "org_id", "name", "id"),
)

audit = Table(
    "doorstep_audit",
    metadata,
    Column("id", KEY, Identity(), primary_key=True),
    Column("org_id", KEY, nullable=False),
    Column("at", INSTANT, nullable=False),
    Column("actor", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("subjects", Text, nullable=False),
    Column("result", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Index("doorstep_audit_org", "org_id", "id"),
    Index("doorstep_audit_age", "at", "id"),
)
"""`subjects` is a JSON array of ids."""

audit_subjects = Table(
    "doorstep_audit_subjects",
    metadata,
    Column("audit_id", KEY, nullable=False),
    Column("subject", UID, nullable=False),
    Column("org_id", KEY, nullable=False),
    PrimaryKeyConstraint("audit_id", "subject"),
    Index("doorstep_audit_subjects_org", "org_id", "subject", "audit_id"),
    sqlite_with_rowid=False,
)
"""By which things a line of the audit is found: its subjects that are ids, each once."""
