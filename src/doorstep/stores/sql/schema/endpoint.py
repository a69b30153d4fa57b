"""Endpoints and their circuits."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, Identity, Index, Integer, PrimaryKeyConstraint, Table, Text, text

from doorstep.model.circuit import CircuitState
from doorstep.model.endpoint import EndpointState
from doorstep.stores.sql.schema.columns import INSTANT, KEY, UID, metadata, one_of, partial_index

LIVING = "state <> 'deleted'"
DISABLED = "state = 'disabled'"

endpoints = Table(
    "doorstep_endpoints",
    metadata,
    Column("id", KEY, Identity(), primary_key=True),
    Column("uid", UID, nullable=False, unique=True),
    Column("org_id", KEY, ForeignKey("doorstep_orgs.id"), nullable=False),
    Column("state", Text, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("rate_next_at", INSTANT, nullable=False, server_default=text("0")),
    Column("document", Text, nullable=False),
    one_of("state", EndpointState),
    Index("doorstep_endpoints_org", "org_id", "uid"),
    partial_index("doorstep_endpoints_living", ("org_id", "id"), LIVING),
    partial_index("doorstep_endpoints_disabled", ("org_id", "uid"), DISABLED),
)
"""`document` is the endpoint as JSON, `state` and `version` included. `rate_next_at` is what stores/limits.py remembers."""

TROUBLED = "(state = 'open' OR state = 'half_open')"

circuits = Table(
    "doorstep_circuits",
    metadata,
    Column("endpoint_id", KEY, ForeignKey("doorstep_endpoints.id"), primary_key=True, autoincrement=False),
    Column("org_id", KEY, nullable=False),
    Column("state", Text, nullable=False),
    Column("failures", Integer, nullable=False),
    Column("failing_since", INSTANT),
    Column("changed_at", INSTANT, nullable=False),
    Column("until", INSTANT),
    Column("version", BigInteger, nullable=False),
    one_of("state", CircuitState),
    partial_index("doorstep_circuits_troubled", ("org_id", "state"), TROUBLED),
)

circuit_history = Table(
    "doorstep_circuit_history",
    metadata,
    Column("endpoint_id", KEY, ForeignKey("doorstep_endpoints.id"), nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("org_id", KEY, nullable=False),
    Column("at", INSTANT, nullable=False),
    Column("old_state", Text, nullable=False),
    Column("new_state", Text, nullable=False),
    Column("reason", Text, nullable=False),
    PrimaryKeyConstraint("endpoint_id", "version"),
    Index("doorstep_circuit_history_age", "at"),
    sqlite_with_rowid=False,
)
