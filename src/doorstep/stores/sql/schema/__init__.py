"""The tables of the SQL stores, once for SQLite and PostgreSQL: a module for each noun of the model.

Rows are keyed by integers inside and named by UUIDs (`uid`) outside: at a million rows a delivery costs 53 µs
with integer keys, 82 with UUIDs in binary, 156 with UUIDs as text. Instants are integers (microseconds).

Every name begins with `doorstep_`, because the tables may live in the database of the program that embeds us:
only there can an event be sent inside that program's own transaction.

The rules of the model are repeated here, so that no bug and no hand-written UPDATE can break them: CHECK
constraints for values, and triggers made from the transition tables for changes (`transitions.py`).

Hot tables have no foreign keys: each of them is written only inside the batched verbs, in one transaction with
its parent. On SQLite they would cost 2 % (measured); on PostgreSQL each check would lock the parent's row.
"""

from __future__ import annotations

from doorstep.stores.sql.schema.alert import (
    ALERT_MAY_RETURN,
    ALERT_OPEN,
    ALERT_PENDING,
    alerts,
    arrangements,
    incidents,
)
from doorstep.stores.sql.schema.bulk import bulk_items, bulks
from doorstep.stores.sql.schema.columns import INSTANT, UID, metadata
from doorstep.stores.sql.schema.delivery import FINISHED, NEVER, attempts, deliveries, history
from doorstep.stores.sql.schema.endpoint import DISABLED, LIVING, circuit_history, circuits, endpoints
from doorstep.stores.sql.schema.entity import EXPECTING, GIVEN_UP, HIDDEN, RUNNING, entities, entity_history
from doorstep.stores.sql.schema.event import (
    ACKNOWLEDGED,
    EXPIRING,
    FAILED,
    INBOX,
    UNACKNOWLEDGED,
    events,
    idempotency,
    payloads,
)
from doorstep.stores.sql.schema.mark import MARKS, marks
from doorstep.stores.sql.schema.org import audit, audit_subjects, keys, orgs
from doorstep.stores.sql.schema.posting import POSTED, outbox, outbox_ddl
from doorstep.stores.sql.schema.rollup import BUSY, LOSING, rollups, ticks
from doorstep.stores.sql.schema.transitions import trigger_ddl
from doorstep.stores.sql.schema.worker import workers

__all__ = [
    "ACKNOWLEDGED",
    "ALERT_MAY_RETURN",
    "ALERT_OPEN",
    "ALERT_PENDING",
    "BUSY",
    "DISABLED",
    "EXPECTING",
    "EXPIRING",
    "FAILED",
    "FINISHED",
    "GIVEN_UP",
    "HIDDEN",
    "INBOX",
    "INSTANT",
    "LIVING",
    "LOSING",
    "MARKS",
    "NEVER",
    "POSTED",
    "RUNNING",
    "TENANT_TABLES",
    "UID",
    "UNACKNOWLEDGED",
    "alerts",
    "arrangements",
    "attempts",
    "audit",
    "audit_subjects",
    "bulk_items",
    "bulks",
    "circuit_history",
    "circuits",
    "deliveries",
    "endpoints",
    "entities",
    "entity_history",
    "events",
    "history",
    "idempotency",
    "incidents",
    "keys",
    "marks",
    "metadata",
    "orgs",
    "outbox",
    "outbox_ddl",
    "payloads",
    "rollups",
    "ticks",
    "trigger_ddl",
    "workers",
]

TENANT_TABLES = tuple(table for table in metadata.sorted_tables if "org_id" in table.c)
"""Every table whose rows belong to one organization, named by `org_id`."""
