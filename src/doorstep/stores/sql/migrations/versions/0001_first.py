"""The first schema: organizations, endpoints, events, deliveries, and everything kept about them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic.operations import Operations

from doorstep.stores.sql.schema import trigger_ddl

revision = "0001"
down_revision = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
UID = sa.LargeBinary(length=16).with_variant(sa.Uuid(), "postgresql")


def upgrade(op: Operations) -> None:
    _create_orgs(op)
    _create_keys(op)
    _create_endpoints(op)
    _create_circuits(op)
    _create_circuit_history(op)
    _create_events(op)
    _create_payloads(op)
    _create_deliveries(op)
    _create_attempts(op)
    _create_history(op)
    _create_idempotency(op)
    _create_outbox(op)
    _create_audit(op)
    _create_bulks(op)
    _create_bulk_items(op)
    _create_entities(op)
    _create_entity_history(op)
    _create_marks(op)
    _fill_marks(op)
    for statement in _dialect_ddl(op.get_bind().dialect.name):
        op.execute(statement)


def _fill_marks(op: Operations) -> None:
    for mark in ("routing", "events", "deliveries", "outbox"):
        op.execute(f"INSERT INTO doorstep_marks (name, value) VALUES ('{mark}', 0)")


def _dialect_ddl(dialect: str) -> list[str]:
    """What only one of the databases has: triggers in its own words, and PostgreSQL's row-level security."""
    if dialect == "sqlite":
        return trigger_ddl(dialect)
    from doorstep.stores.sql.postgres_ddl import postgres_ddl

    return [*trigger_ddl(dialect), *postgres_ddl()]


def _create_orgs(op: Operations) -> None:
    op.create_table(
        "doorstep_orgs",
        sa.Column("id", KEY, sa.Identity(always=False), nullable=False),
        sa.Column("uid", UID, nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("doorstep_orgs_pkey")),
        sa.UniqueConstraint("uid", name=op.f("doorstep_orgs_uid_key")),
    )


def _create_keys(op: Operations) -> None:
    op.create_table(
        "doorstep_keys",
        sa.Column("id", KEY, sa.Identity(always=False), nullable=False),
        sa.Column("uid", UID, nullable=False),
        sa.Column("org_id", KEY, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("prefix", sa.Text(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "role IN ('admin', 'operator', 'viewer', 'publisher')", name=op.f("doorstep_keys_role_known")
        ),
        sa.ForeignKeyConstraint(["org_id"], ["doorstep_orgs.id"], name=op.f("doorstep_keys_org_id_fkey")),
        sa.PrimaryKeyConstraint("id", name=op.f("doorstep_keys_pkey")),
        sa.UniqueConstraint("digest", name=op.f("doorstep_keys_digest_key")),
        sa.UniqueConstraint("uid", name=op.f("doorstep_keys_uid_key")),
    )
    op.create_index("doorstep_keys_org", "doorstep_keys", ["org_id"], unique=False)


def _create_endpoints(op: Operations) -> None:
    op.create_table(
        "doorstep_endpoints",
        sa.Column("id", KEY, sa.Identity(always=False), nullable=False),
        sa.Column("uid", UID, nullable=False),
        sa.Column("org_id", KEY, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("rate_next_at", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "state IN ('active', 'paused', 'disabled', 'deleted')", name=op.f("doorstep_endpoints_state_known")
        ),
        sa.ForeignKeyConstraint(["org_id"], ["doorstep_orgs.id"], name=op.f("doorstep_endpoints_org_id_fkey")),
        sa.PrimaryKeyConstraint("id", name=op.f("doorstep_endpoints_pkey")),
        sa.UniqueConstraint("uid", name=op.f("doorstep_endpoints_uid_key")),
    )
    op.create_index("doorstep_endpoints_org", "doorstep_endpoints", ["org_id", "uid"], unique=False)


def _create_circuits(op: Operations) -> None:
    op.create_table(
        "doorstep_circuits",
        sa.Column("endpoint_id", KEY, autoincrement=False, nullable=False),
        sa.Column("org_id", KEY, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("failing_since", sa.BigInteger(), nullable=True),
        sa.Column("changed_at", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=True),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("state IN ('closed', 'open', 'half_open')", name=op.f("doorstep_circuits_state_known")),
        sa.ForeignKeyConstraint(
            ["endpoint_id"], ["doorstep_endpoints.id"], name=op.f("doorstep_circuits_endpoint_id_fkey")
        ),
        sa.PrimaryKeyConstraint("endpoint_id", name=op.f("doorstep_circuits_pkey")),
    )


def _create_circuit_history(op: Operations) -> None:
    op.create_table(
        "doorstep_circuit_history",
        sa.Column("endpoint_id", KEY, nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("org_id", KEY, nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("old_state", sa.Text(), nullable=False),
        sa.Column("new_state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["endpoint_id"], ["doorstep_endpoints.id"], name=op.f("doorstep_circuit_history_endpoint_id_fkey")
        ),
        sa.PrimaryKeyConstraint("endpoint_id", "version", name=op.f("doorstep_circuit_history_pkey")),
        sqlite_with_rowid=False,
    )
    op.create_index("doorstep_circuit_history_age", "doorstep_circuit_history", ["at"], unique=False)


def _create_events(op: Operations) -> None:
    op.create_table(
        "doorstep_events",
        sa.Column("id", KEY, sa.Identity(always=False), nullable=False),
        sa.Column("uid", UID, nullable=False),
        sa.Column("org_id", KEY, nullable=False),
        sa.Column("event_type", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("delivery_count", sa.Integer(), nullable=False),
        sa.Column("open_count", sa.Integer(), nullable=False),
        sa.Column("dead_count", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("done_count", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("deleted_at", sa.BigInteger(), nullable=True),
        sa.Column("deliver_at", sa.BigInteger(), nullable=True),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("correlation_id", sa.Text(), nullable=False),
        sa.Column("ordering_key", sa.Text(), nullable=True),
        sa.Column("metadata", sa.LargeBinary(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=True),
        sa.CheckConstraint(
            "status IN ('received', 'queued', 'delivered', 'failed')", name=op.f("doorstep_events_status_known")
        ),
        sa.CheckConstraint(
            "open_count >= 0 AND dead_count >= 0 AND done_count >= 0 AND open_count + dead_count + done_count <= delivery_count",
            name=op.f("doorstep_events_counts_add_up"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("doorstep_events_pkey")),
        sa.UniqueConstraint("org_id", "uid", name=op.f("doorstep_events_org_id_uid_key")),
    )
    op.create_index(
        "doorstep_events_acknowledged",
        "doorstep_events",
        ["ended_at"],
        unique=False,
        sqlite_where=sa.text("ended_at IS NOT NULL AND delivery_count = 0"),
        postgresql_where=sa.text("ended_at IS NOT NULL AND delivery_count = 0"),
    )
    op.create_index(
        "doorstep_events_expiring",
        "doorstep_events",
        ["expires_at", "id"],
        unique=False,
        sqlite_where=sa.text("expires_at IS NOT NULL"),
        postgresql_where=sa.text("expires_at IS NOT NULL"),
    )
    op.create_index(
        "doorstep_events_failed",
        "doorstep_events",
        ["org_id", "uid"],
        unique=False,
        sqlite_where=sa.text("ended_at IS NOT NULL AND delivery_count > 0 AND deleted_at IS NULL"),
        postgresql_where=sa.text("ended_at IS NOT NULL AND delivery_count > 0 AND deleted_at IS NULL"),
    )
    op.create_index(
        "doorstep_events_inbox",
        "doorstep_events",
        ["org_id", "uid"],
        unique=False,
        sqlite_where=sa.text("ended_at IS NULL AND delivery_count = 0"),
        postgresql_where=sa.text("ended_at IS NULL AND delivery_count = 0"),
    )
    op.create_index(
        "doorstep_events_unacknowledged",
        "doorstep_events",
        ["created_at", "id"],
        unique=False,
        sqlite_where=sa.text("ended_at IS NULL AND delivery_count = 0 AND org_id > 0"),
        postgresql_where=sa.text("ended_at IS NULL AND delivery_count = 0 AND org_id > 0"),
    )


def _create_payloads(op: Operations) -> None:
    op.create_table(
        "doorstep_payloads",
        sa.Column("event_id", KEY, autoincrement=False, nullable=False),
        sa.Column("org_id", KEY, nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("event_id", name=op.f("doorstep_payloads_pkey")),
    )


def _create_deliveries(op: Operations) -> None:
    op.create_table(
        "doorstep_deliveries",
        sa.Column("id", KEY, sa.Identity(always=False), nullable=False),
        sa.Column("uid", UID, nullable=False),
        sa.Column("org_id", KEY, nullable=False),
        sa.Column("event_id", KEY, nullable=False),
        sa.Column("endpoint_id", KEY, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("token", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("attempt", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("round_base", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("retry_attempts", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("retries_max", sa.Integer(), nullable=False),
        sa.Column("moves", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("forced", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("claimed_at", sa.BigInteger(), nullable=True),
        sa.Column("worker", sa.Text(), nullable=True),
        sa.Column("first_failed_at", sa.BigInteger(), nullable=True),
        sa.Column("last_attempt_at", sa.BigInteger(), nullable=True),
        sa.Column("settled_at", sa.BigInteger(), nullable=True),
        sa.Column("deleted_at", sa.BigInteger(), nullable=True),
        sa.Column("response_code", sa.Integer(), nullable=True),
        sa.Column("category", sa.Text(), nullable=True),
        sa.Column("code", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("cause", sa.BigInteger(), nullable=True),
        sa.Column("payload", sa.LargeBinary(), nullable=True),
        sa.Column("ordering_key", sa.Text(), nullable=True),
        sa.Column("batch", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.CheckConstraint(
            "(state IN ('pending', 'in_progress')) = (due_at IS NOT NULL)",
            name=op.f("doorstep_deliveries_due_while_open"),
        ),
        sa.CheckConstraint(
            "state IN ('pending', 'in_progress', 'delivered', 'dead', 'resolved', 'archived', 'cancelled')",
            name=op.f("doorstep_deliveries_state_known"),
        ),
        sa.CheckConstraint(
            "retry_attempts >= 0 AND retry_attempts <= retries_max", name=op.f("doorstep_deliveries_retries_bounded")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("doorstep_deliveries_pkey")),
        sa.UniqueConstraint("org_id", "uid", name=op.f("doorstep_deliveries_org_id_uid_key")),
    )
    op.create_index(
        "doorstep_deliveries_batches",
        "doorstep_deliveries",
        ["org_id", "state", "uid"],
        unique=False,
        sqlite_where=sa.text("batch AND deleted_at IS NULL"),
        postgresql_where=sa.text("batch AND deleted_at IS NULL"),
    )
    op.create_index(
        "doorstep_deliveries_causes",
        "doorstep_deliveries",
        ["org_id", "state", "cause", "settled_at", "uid"],
        unique=False,
        sqlite_where=sa.text("(state = 'dead' OR state = 'archived') AND deleted_at IS NULL"),
        postgresql_where=sa.text("(state = 'dead' OR state = 'archived') AND deleted_at IS NULL"),
    )
    op.create_index(
        "doorstep_deliveries_dead",
        "doorstep_deliveries",
        ["org_id", "state", "settled_at", "uid"],
        unique=False,
        sqlite_where=sa.text("(state = 'dead' OR state = 'archived') AND deleted_at IS NULL AND due_at IS NULL"),
        postgresql_where=sa.text("(state = 'dead' OR state = 'archived') AND deleted_at IS NULL AND due_at IS NULL"),
    )
    op.create_index("doorstep_deliveries_event", "doorstep_deliveries", ["event_id"], unique=False)
    op.create_index(
        "doorstep_deliveries_finished",
        "doorstep_deliveries",
        ["settled_at", "id"],
        unique=False,
        sqlite_where=sa.text(
            "(state = 'delivered' OR state = 'resolved' OR state = 'cancelled' OR deleted_at IS NOT NULL)"
        ),
        postgresql_where=sa.text(
            "(state = 'delivered' OR state = 'resolved' OR state = 'cancelled' OR deleted_at IS NOT NULL)"
        ),
    )
    op.create_index(
        "doorstep_deliveries_forced",
        "doorstep_deliveries",
        ["due_at", "id"],
        unique=False,
        sqlite_where=sa.text("forced"),
        postgresql_where=sa.text("forced"),
    )
    op.create_index(
        "doorstep_deliveries_in_progress",
        "doorstep_deliveries",
        ["endpoint_id", "due_at"],
        unique=False,
        sqlite_where=sa.text("state = 'in_progress'"),
        postgresql_where=sa.text("state = 'in_progress'"),
    )
    op.create_index(
        "doorstep_deliveries_lines",
        "doorstep_deliveries",
        ["endpoint_id", "ordering_key", "id"],
        unique=False,
        sqlite_where=sa.text("ordering_key IS NOT NULL AND due_at IS NOT NULL"),
        postgresql_where=sa.text("ordering_key IS NOT NULL AND due_at IS NOT NULL"),
    )
    op.create_index(
        "doorstep_deliveries_lost",
        "doorstep_deliveries",
        ["org_id", "state", "endpoint_id", "settled_at", "uid"],
        unique=False,
        sqlite_where=sa.text("(state = 'dead' OR state = 'archived') AND deleted_at IS NULL AND endpoint_id > 0"),
        postgresql_where=sa.text("(state = 'dead' OR state = 'archived') AND deleted_at IS NULL AND endpoint_id > 0"),
    )
    op.create_index(
        "doorstep_deliveries_pending",
        "doorstep_deliveries",
        ["endpoint_id", "due_at", "id"],
        unique=False,
        sqlite_where=sa.text("state = 'pending'"),
        postgresql_where=sa.text("state = 'pending'"),
    )
    op.create_index(
        "doorstep_deliveries_retrying",
        "doorstep_deliveries",
        ["org_id", "due_at", "uid"],
        unique=False,
        sqlite_where=sa.text("first_failed_at IS NOT NULL AND due_at IS NOT NULL"),
        postgresql_where=sa.text("first_failed_at IS NOT NULL AND due_at IS NOT NULL"),
    )
    op.create_index(
        "doorstep_deliveries_untouched",
        "doorstep_deliveries",
        ["settled_at", "id"],
        unique=False,
        sqlite_where=sa.text("state = 'dead' AND deleted_at IS NULL AND org_id > 0"),
        postgresql_where=sa.text("state = 'dead' AND deleted_at IS NULL AND org_id > 0"),
    )


def _create_attempts(op: Operations) -> None:
    op.create_table(
        "doorstep_attempts",
        sa.Column("delivery_id", KEY, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("move", sa.Integer(), nullable=False),
        sa.Column("late", sa.Integer(), nullable=False),
        sa.Column("org_id", KEY, nullable=False),
        sa.Column("worker", sa.Text(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("finished_at", sa.BigInteger(), nullable=False),
        sa.Column("dns_us", sa.BigInteger(), nullable=False),
        sa.Column("connect_us", sa.BigInteger(), nullable=False),
        sa.Column("tls_us", sa.BigInteger(), nullable=False),
        sa.Column("first_byte_us", sa.BigInteger(), nullable=False),
        sa.Column("next_retry_at", sa.BigInteger(), nullable=True),
        sa.Column("response_code", sa.Integer(), nullable=True),
        sa.Column("category", sa.Text(), nullable=True),
        sa.Column("code", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("request_headers", sa.LargeBinary(), nullable=False),
        sa.Column("response_headers", sa.LargeBinary(), nullable=False),
        sa.Column("response_body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("delivery_id", "number", "move", "late", name=op.f("doorstep_attempts_pkey")),
        sqlite_with_rowid=False,
    )


def _create_history(op: Operations) -> None:
    op.create_table(
        "doorstep_history",
        sa.Column("delivery_id", KEY, nullable=False),
        sa.Column("move", sa.Integer(), nullable=False),
        sa.Column("org_id", KEY, nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("old_state", sa.Text(), nullable=False),
        sa.Column("new_state", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("delivery_id", "move", name=op.f("doorstep_history_pkey")),
        sqlite_with_rowid=False,
    )


def _create_idempotency(op: Operations) -> None:
    op.create_table(
        "doorstep_idempotency",
        sa.Column("org_id", KEY, nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.LargeBinary(), nullable=False),
        sa.Column("event_uid", UID, nullable=False),
        sa.Column("event_created_at", sa.BigInteger(), nullable=False),
        sa.Column("delivery_count", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("org_id", "key", name=op.f("doorstep_idempotency_pkey")),
        sqlite_with_rowid=False,
    )
    op.create_index("doorstep_idempotency_age", "doorstep_idempotency", ["created_at"], unique=False)


def _create_outbox(op: Operations) -> None:
    op.create_table(
        "doorstep_outbox",
        sa.Column("id", KEY, sa.Identity(always=False), nullable=False),
        sa.Column("uid", UID, nullable=False),
        sa.Column("org_uid", UID, nullable=False),
        sa.Column("event_type", sa.Text(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.Column("options", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("refused_at", sa.BigInteger(), nullable=True),
        sa.Column("refusal", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("doorstep_outbox_pkey")),
        sa.UniqueConstraint("uid", name=op.f("doorstep_outbox_uid_key")),
    )
    op.create_index(
        "doorstep_outbox_posted",
        "doorstep_outbox",
        ["id"],
        unique=False,
        sqlite_where=sa.text("refused_at IS NULL"),
        postgresql_where=sa.text("refused_at IS NULL"),
    )


def _create_audit(op: Operations) -> None:
    op.create_table(
        "doorstep_audit",
        sa.Column("id", KEY, sa.Identity(always=False), nullable=False),
        sa.Column("org_id", KEY, nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("subjects", sa.Text(), nullable=False),
        sa.Column("result", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("doorstep_audit_pkey")),
    )
    op.create_index("doorstep_audit_org", "doorstep_audit", ["org_id", "id"], unique=False)
    op.create_index("doorstep_audit_age", "doorstep_audit", ["at", "id"], unique=False)


def _create_bulks(op: Operations) -> None:
    op.create_table(
        "doorstep_bulks",
        sa.Column("id", KEY, sa.Identity(always=False), nullable=False),
        sa.Column("uid", UID, nullable=False),
        sa.Column("org_id", KEY, nullable=False),
        sa.Column("live", sa.Boolean(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("finished_at", sa.BigInteger(), nullable=True),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("doorstep_bulks_pkey")),
        sa.UniqueConstraint("uid", name=op.f("doorstep_bulks_uid_key")),
    )
    op.create_index("doorstep_bulks_org", "doorstep_bulks", ["org_id", "id"], unique=False)
    op.create_index(
        "doorstep_bulks_live",
        "doorstep_bulks",
        ["id"],
        unique=False,
        sqlite_where=sa.text("live"),
        postgresql_where=sa.text("live"),
    )
    op.create_index(
        "doorstep_bulks_finished",
        "doorstep_bulks",
        ["finished_at"],
        unique=False,
        sqlite_where=sa.text("finished_at IS NOT NULL"),
        postgresql_where=sa.text("finished_at IS NOT NULL"),
    )


def _create_bulk_items(op: Operations) -> None:
    op.create_table(
        "doorstep_bulk_items",
        sa.Column("bulk_id", KEY, nullable=False),
        sa.Column("delivery_id", KEY, nullable=False),
        sa.Column("org_id", KEY, nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("succeeded", sa.Boolean(), nullable=True),
        sa.PrimaryKeyConstraint("bulk_id", "delivery_id", name=op.f("doorstep_bulk_items_pkey")),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "doorstep_bulk_items_unknown",
        "doorstep_bulk_items",
        ["bulk_id", "delivery_id"],
        unique=False,
        sqlite_where=sa.text("succeeded IS NULL"),
        postgresql_where=sa.text("succeeded IS NULL"),
    )
    op.create_index(
        "doorstep_bulk_items_failed",
        "doorstep_bulk_items",
        ["bulk_id", "delivery_id"],
        unique=False,
        sqlite_where=sa.text("succeeded = false"),
        postgresql_where=sa.text("succeeded = false"),
    )


def _create_entities(op: Operations) -> None:
    op.create_table(
        "doorstep_entities",
        sa.Column("id", KEY, sa.Identity(always=False), nullable=False),
        sa.Column("org_id", KEY, nullable=False),
        sa.Column("pipeline", sa.Text(), nullable=False),
        sa.Column("entity_id", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        sa.Column("error_reason", sa.Text(), nullable=True),
        sa.Column("metadata", sa.Text(), nullable=False),
        sa.Column("event_uid", UID, nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("changed_at", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "phase IN ('running', 'resting', 'dead', 'archived')", name=op.f("doorstep_entities_phase_known")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("doorstep_entities_pkey")),
        sa.UniqueConstraint(
            "org_id", "pipeline", "entity_id", name=op.f("doorstep_entities_org_id_pipeline_entity_id_key")
        ),
    )
    op.create_index("doorstep_entities_all", "doorstep_entities", ["org_id", "pipeline", "id"], unique=False)
    op.create_index(
        "doorstep_entities_status", "doorstep_entities", ["org_id", "pipeline", "status", "id"], unique=False
    )
    for name, columns, where in (
        ("running", ["org_id", "pipeline", "id"], "phase = 'running'"),
        ("event", ["org_id", "event_uid"], "phase = 'running' AND event_uid IS NOT NULL"),
        ("hidden", ["org_id", "pipeline", "id"], "(phase = 'dead' OR phase = 'archived')"),
        ("untouched", ["org_id", "pipeline", "changed_at", "id"], "phase = 'dead'"),
    ):
        op.create_index(
            f"doorstep_entities_{name}",
            "doorstep_entities",
            columns,
            unique=False,
            sqlite_where=sa.text(where),
            postgresql_where=sa.text(where),
        )


def _create_entity_history(op: Operations) -> None:
    op.create_table(
        "doorstep_entity_history",
        sa.Column("entity_key", KEY, nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("org_id", KEY, nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("old_status", sa.Text(), nullable=True),
        sa.Column("new_status", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("event_uid", UID, nullable=True),
        sa.PrimaryKeyConstraint("entity_key", "version", name=op.f("doorstep_entity_history_pkey")),
        sqlite_with_rowid=False,
    )


def _create_marks(op: Operations) -> None:
    op.create_table(
        "doorstep_marks",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("doorstep_marks_pkey")),
        sqlite_with_rowid=False,
    )
