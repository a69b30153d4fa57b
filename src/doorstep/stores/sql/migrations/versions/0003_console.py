"""What the console shows and whoever watches needs: the register of workers, when an alert has to be looked at again, the
busiest endpoints, times to delivery in milliseconds, what each line of the audit is about, and whose key begins or is called so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from alembic.operations import Operations

revision = "0003"
down_revision = "0002"
_LINES_AT_ONCE = 100
_SUBJECTS_AT_ONCE = 10_000
_ID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def upgrade(op: Operations) -> None:
    _create_workers(op)
    _sum_milliseconds(op)
    _find_the_busiest(op)
    _find_those_in_trouble(op)
    _find_incidents_by_org(op)
    _review_alerts(op)
    _find_keys(op)
    _find_lines_by_subject(op)


def _create_workers(op: Operations) -> None:
    op.create_table(
        "doorstep_workers",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("seen_at", sa.BigInteger(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="doorstep_workers_pkey"),
    )
    op.create_index("doorstep_workers_seen", "doorstep_workers", ["seen_at"])
    if op.get_bind().dialect.name == "postgresql":
        from doorstep.stores.sql.postgres_ddl import engine_only_ddl
        from doorstep.stores.sql.schema import workers

        for statement in engine_only_ddl(workers):
            op.execute(statement)


def _partial(op: Operations, name: str, table: str, columns: list[str], where: str) -> None:
    op.create_index(name, table, columns, sqlite_where=sa.text(where), postgresql_where=sa.text(where))


# -- figures -----------------------------------------------------------------------------------------------


def _sum_milliseconds(op: Operations) -> None:
    """A sum of microseconds could have filled its 64 bits. What is below a millisecond is lost of every row."""
    for table in ("doorstep_ticks", "doorstep_rollups"):
        op.execute(f"ALTER TABLE {table} RENAME COLUMN ttd_us TO ttd_ms")
        op.execute(f"UPDATE {table} SET ttd_ms = ttd_ms / 1000 WHERE ttd_ms <> 0")


def _find_the_busiest(op: Operations) -> None:
    _partial(op, "doorstep_rollups_busiest", "doorstep_rollups", ["deliveries"], "span = 'ever' AND endpoint_id > 0")


def _find_those_in_trouble(op: Operations) -> None:
    """Endpoints that are disabled, and the hours in which they lost something; of circuits there is an index already."""
    _partial(op, "doorstep_endpoints_disabled", "doorstep_endpoints", ["org_id", "uid"], "state = 'disabled'")
    losing = "span = 'hour' AND endpoint_id > 0 AND dead > 0"
    _partial(op, "doorstep_rollups_losing", "doorstep_rollups", ["org_id", "at", "endpoint_id"], losing)


# -- alerts ------------------------------------------------------------------------------------------------


def _find_incidents_by_org(op: Operations) -> None:
    op.create_index("doorstep_incidents_org", "doorstep_incidents", ["org_id", "id"])


def _review_alerts(op: Operations) -> None:
    op.add_column("doorstep_alerts", sa.Column("review_at", sa.BigInteger(), nullable=True))
    _review_what_is_open(op.get_bind())
    over = "ended_at IS NOT NULL AND"
    _partial(
        op, "doorstep_alerts_returning", "doorstep_alerts", ["org_id", "ended_at"], f"{over} rule <> 'dead_letter'"
    )
    _partial(op, "doorstep_alerts_pending", "doorstep_alerts", ["org_id", "review_at"], f"{over} review_at IS NOT NULL")
    _partial(op, "doorstep_alerts_review", "doorstep_alerts", ["review_at", "org_id"], "review_at IS NOT NULL")


def _review_what_is_open(connection: sa.Connection) -> None:
    """At once; the review itself says when the next one is. An alert that nobody looks at would never be over.

    In the document too, or the review would find nothing to write, and would be due for ever.
    """
    write = sa.text("UPDATE doorstep_alerts SET review_at = 0, document = :document WHERE id = :id")
    found = connection.execute(sa.text("SELECT id, document FROM doorstep_alerts WHERE ended_at IS NULL")).all()
    for key, document in found:
        connection.execute(write, {"id": key, "document": json.dumps({**json.loads(document), "review_at": 0})})


# -- the audit ---------------------------------------------------------------------------------------------


def _find_keys(op: Operations) -> None:
    op.create_index("doorstep_keys_prefix", "doorstep_keys", ["org_id", "prefix"])
    op.create_index("doorstep_keys_name", "doorstep_keys", ["org_id", "name", "id"])


def _find_lines_by_subject(op: Operations) -> None:
    op.create_table(
        "doorstep_audit_subjects",
        sa.Column("audit_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("subject", sa.LargeBinary(16).with_variant(sa.Uuid(), "postgresql"), nullable=False),
        sa.Column("org_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.PrimaryKeyConstraint("audit_id", "subject", name="doorstep_audit_subjects_pkey"),
        sqlite_with_rowid=False,
    )
    _file_what_is_there(op.get_bind())
    op.create_index("doorstep_audit_subjects_org", "doorstep_audit_subjects", ["org_id", "subject", "audit_id"])
    if op.get_bind().dialect.name == "postgresql":
        from doorstep.stores.sql.postgres_ddl import isolation_ddl
        from doorstep.stores.sql.schema import audit_subjects

        for statement in isolation_ddl([audit_subjects]):
            op.execute(statement)


def _file_what_is_there(connection: sa.Connection) -> None:
    """Bit by bit: the audit may be long, and a line may have thousands of subjects."""
    read = sa.text("SELECT id, org_id, subjects FROM doorstep_audit WHERE id > :after ORDER BY id LIMIT :most")
    write = sa.text("INSERT INTO doorstep_audit_subjects (audit_id, subject, org_id) VALUES (:line, :subject, :org)")
    after = 0
    while found := connection.execute(read, {"after": after, "most": _LINES_AT_ONCE}).all():
        rows = _filed(found, as_bytes=connection.dialect.name == "sqlite")
        while part := list(islice(rows, _SUBJECTS_AT_ONCE)):
            connection.execute(write, part)
        after = found[-1][0]


def _filed(lines: Iterable[Sequence[Any]], *, as_bytes: bool) -> Iterator[dict[str, object]]:
    """Each id that a line is about, once."""
    for line, org, subjects in lines:
        for one in dict.fromkeys(json.loads(subjects)):
            if _ID.fullmatch(one):
                yield {"line": line, "subject": UUID(one).bytes if as_bytes else UUID(one), "org": org}
