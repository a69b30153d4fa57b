"""What is needed to observe: the trace that an event is part of, alerts, and what is counted."""

from __future__ import annotations

import sqlalchemy as sa
from alembic.operations import Operations

revision = "0002"
down_revision = "0001"

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
UID = sa.LargeBinary(length=16).with_variant(sa.Uuid(), "postgresql")


def upgrade(op: Operations) -> None:
    _add_trace(op)
    _watch_outbox(op)
    _create_alert_tables(op)
    _create_figure_tables(op)


def _add_trace(op: Operations) -> None:
    """Events of before have none: each begins a trace of its own."""
    op.add_column("doorstep_events", sa.Column("trace", sa.Text(), nullable=True))


# -- alerts ------------------------------------------------------------------------------------------------


def _create_alert_tables(op: Operations) -> None:
    _create_incidents(op)
    _create_alerts(op)
    _create_arrangements(op)
    if op.get_bind().dialect.name == "postgresql":
        from doorstep.stores.sql.postgres_ddl import isolation_ddl
        from doorstep.stores.sql.schema import ALERT_TABLES

        for statement in isolation_ddl(ALERT_TABLES):
            op.execute(statement)


def _create_incidents(op: Operations) -> None:
    op.create_table(
        "doorstep_incidents",
        sa.Column("id", KEY, sa.Identity(always=False), nullable=False),
        sa.Column("org_id", KEY, nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="doorstep_incidents_pkey"),
        sqlite_autoincrement=True,
    )


def _create_alerts(op: Operations) -> None:
    op.create_table(
        "doorstep_alerts",
        sa.Column("id", KEY, sa.Identity(always=False), nullable=False),
        sa.Column("uid", UID, nullable=False),
        sa.Column("org_id", KEY, nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("endpoint_uid", UID, nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "rule IN ('dead_letter', 'failure_rate', 'dead_letters', 'circuit_opened', 'endpoint_disabled', 'oldest_due')",
            name="doorstep_alerts_rule_known",
        ),
        sa.PrimaryKeyConstraint("id", name="doorstep_alerts_pkey"),
        sa.UniqueConstraint("uid", name="doorstep_alerts_uid_key"),
    )
    op.create_index("doorstep_alerts_org", "doorstep_alerts", ["org_id", "id"])
    _partial(op, "doorstep_alerts_open", "doorstep_alerts", ["org_id", "subject"], "ended_at IS NULL", unique=True)
    _partial(op, "doorstep_alerts_ended", "doorstep_alerts", ["ended_at", "id"], "ended_at IS NOT NULL")


def _create_arrangements(op: Operations) -> None:
    op.create_table(
        "doorstep_arrangements",
        sa.Column("id", KEY, sa.Identity(always=False), nullable=False),
        sa.Column("uid", UID, nullable=False),
        sa.Column("org_id", KEY, nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("ends_at", sa.BigInteger(), nullable=True),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="doorstep_arrangements_pkey"),
        sa.UniqueConstraint("uid", name="doorstep_arrangements_uid_key"),
    )
    op.create_index("doorstep_arrangements_org", "doorstep_arrangements", ["org_id", "id"])
    _partial(op, "doorstep_arrangements_end", "doorstep_arrangements", ["ends_at", "id"], "ends_at IS NOT NULL")


def _partial(op: Operations, name: str, table: str, columns: list[str], where: str, *, unique: bool = False) -> None:
    op.create_index(name, table, columns, unique=unique, sqlite_where=sa.text(where), postgresql_where=sa.text(where))


# -- figures -----------------------------------------------------------------------------------------------

_FIGURES = (
    *("created", "delivered", "failed", "now_received", "now_queued", "now_delivered", "now_failed"),
    *("deliveries", "succeeded", "retried", "died", "blocked", "late", "dead", "now_open", "now_dead", "now_archived"),
    *(f"retries_{number}" for number in range(8)),
    *(f"ttd_{number}" for number in range(21)),
    "ttd_us",
)


def _create_figure_tables(op: Operations) -> None:
    _create_ticks(op)
    _create_rollups(op)
    _partial(op, "doorstep_circuits_troubled", "doorstep_circuits", ["org_id", "state"], _TROUBLED)
    _partial(op, "doorstep_endpoints_living", "doorstep_endpoints", ["org_id", "id"], "state <> 'deleted'")
    for task in ("roller", "watch", "meter"):
        op.execute(f"INSERT INTO doorstep_marks (name, value) VALUES ('{task}', 0)")
    _count_what_is_there(op)
    if op.get_bind().dialect.name == "postgresql":
        from doorstep.stores.sql.postgres_ddl import always_rewritten, isolation_ddl
        from doorstep.stores.sql.schema import rollups, ticks

        for statement in (*isolation_ddl((ticks, rollups)), always_rewritten(ticks)):
            op.execute(statement)


_TROUBLED = "(state = 'open' OR state = 'half_open')"


def _create_ticks(op: Operations) -> None:
    op.create_table(
        "doorstep_ticks",
        sa.Column("org_id", KEY, nullable=False),
        sa.Column("endpoint_id", KEY, nullable=False),
        sa.Column("minute", sa.BigInteger(), nullable=False),
        sa.Column("shard", sa.Integer(), nullable=False),
        *_figure_columns(),
        sa.PrimaryKeyConstraint("org_id", "endpoint_id", "minute", "shard", name="doorstep_ticks_pkey"),
        sqlite_with_rowid=False,
    )


def _create_rollups(op: Operations) -> None:
    op.create_table(
        "doorstep_rollups",
        sa.Column("org_id", KEY, nullable=False),
        sa.Column("endpoint_id", KEY, nullable=False),
        sa.Column("span", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        *_figure_columns(),
        sa.CheckConstraint("span IN ('minute', 'hour', 'day', 'ever')", name="doorstep_rollups_span_known"),
        sa.PrimaryKeyConstraint("org_id", "endpoint_id", "span", "at", name="doorstep_rollups_pkey"),
        sqlite_with_rowid=False,
    )
    op.create_index("doorstep_rollups_age", "doorstep_rollups", ["span", "at"])


def _figure_columns() -> list[sa.Column[int]]:
    return [sa.Column(name, sa.BigInteger(), nullable=False, server_default=sa.text("0")) for name in _FIGURES]


_STATUSES = ("received", "queued", "delivered", "failed")
_STATES = {
    "now_open": "state IN ('pending', 'in_progress')",
    "now_dead": "state = 'dead' AND deleted_at IS NULL",
    "now_archived": "state = 'archived' AND deleted_at IS NULL",
}


def _count_what_is_there(op: Operations) -> None:
    """The levels begin with the rows that exist; what happened before begins at 0. In ticks, whose minute has long ended:
    the first who folds them makes every roll-up of them."""
    statuses = ", ".join(f"count(CASE WHEN status = '{one}' THEN 1 END)" for one in _STATUSES)
    op.execute(
        f"INSERT INTO doorstep_ticks (org_id, endpoint_id, minute, shard, {', '.join(f'now_{one}' for one in _STATUSES)})"
        f" SELECT org_id, 0, 0, 0, {statuses} FROM doorstep_events WHERE deleted_at IS NULL GROUP BY org_id"
    )
    states = ", ".join(f"count(CASE WHEN {condition} THEN 1 END)" for condition in _STATES.values())
    op.execute(
        f"INSERT INTO doorstep_ticks (org_id, endpoint_id, minute, shard, {', '.join(_STATES)})"
        f" SELECT org_id, endpoint_id, 0, 0, {states} FROM doorstep_deliveries GROUP BY org_id, endpoint_id"
    )


# -- the outbox --------------------------------------------------------------------------------------------


def _watch_outbox(op: Operations) -> None:
    """From now on; rows of before stay as they are."""
    from doorstep.stores.sql.schema import outbox_ddl

    for statement in outbox_ddl(op.get_bind().dialect.name):
        op.execute(statement)
