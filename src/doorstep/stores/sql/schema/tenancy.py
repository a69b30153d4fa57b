"""The tables whose rows belong to organizations, by the migration that made them."""

from __future__ import annotations

from doorstep.stores.sql.schema.alert import alerts, arrangements, incidents
from doorstep.stores.sql.schema.bulk import bulk_items, bulks
from doorstep.stores.sql.schema.delivery import attempts, deliveries, history
from doorstep.stores.sql.schema.endpoint import circuit_history, circuits, endpoints
from doorstep.stores.sql.schema.entity import entities, entity_history
from doorstep.stores.sql.schema.event import events, idempotency, payloads
from doorstep.stores.sql.schema.org import audit, audit_subjects, keys
from doorstep.stores.sql.schema.rollup import rollups, ticks

FIRST_TENANT_TABLES = (
    events,
    payloads,
    deliveries,
    attempts,
    history,
    idempotency,
    endpoints,
    circuits,
    circuit_history,
    keys,
    audit,
    bulks,
    bulk_items,
    entities,
    entity_history,
)
"""Those of the first migration, which keeps them apart."""
ALERT_TABLES = (incidents, alerts, arrangements)
FIGURE_TABLES = (ticks, rollups)
TENANT_TABLES = (*FIRST_TENANT_TABLES, *ALERT_TABLES, *FIGURE_TABLES, audit_subjects)
"""Every table whose rows belong to one organization, named by `org_id`."""
