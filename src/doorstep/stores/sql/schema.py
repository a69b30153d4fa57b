"""The tables of the SQL stores, declared once for SQLite and PostgreSQL. Their order follows the path of an event.

Rows have integer keys (`id`) inside the database and UUIDs (`uid`) outside it. At a million rows a delivery costs 53 µs
with integer keys, 82 µs with binary UUIDs and 156 µs with UUIDs as text. Instants are integers (microseconds).

Every name begins with `doorstep_`, because the tables may share a database with the program that embeds Doorstep.
Sharing a database is also what allows that program to send an event inside its own transaction.

The schema enforces the rules of the model a second time, so that neither a bug nor a hand-written UPDATE can break
them. CHECK constraints cover values. Triggers cover state changes; ddl.py generates them from the transition tables.

Hot tables have no foreign keys. Only the batched store methods write to them, in the same transaction as the parent
row. On SQLite foreign keys would cost 2 % (measured); on PostgreSQL each check would lock the parent row.
"""

from __future__ import annotations

from enum import StrEnum

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    TextClause,
    UniqueConstraint,
    Uuid,
    text,
)

from doorstep.model.alert import Rule
from doorstep.model.delivery import DeliveryState
from doorstep.model.endpoint import CircuitState, EndpointState
from doorstep.model.entity import Phase
from doorstep.model.event import EventStatus
from doorstep.model.org import Role
from doorstep.model.rollup import FIGURES, Span
from doorstep.stores.store import Task

# -- building blocks ---------------------------------------------------------------------------------------

KEY = BigInteger().with_variant(Integer(), "sqlite")
"""SQLite uses a column as its row id only if it is declared exactly INTEGER."""
INSTANT = BigInteger()
UID = LargeBinary(16).with_variant(Uuid(), "postgresql")
"""16 bytes on SQLite, the native UUID type on PostgreSQL. `queries/transaction.py` returns UUIDs for both."""

metadata = MetaData(
    naming_convention={
        "ck": "%(table_name)s_%(constraint_name)s",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "pk": "%(table_name)s_pkey",
        "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
    }
)


def one_of(column: str, values: type[StrEnum]) -> CheckConstraint:
    """A check that a column contains only values of an enumeration."""
    quoted = ", ".join(f"'{value}'" for value in values)
    return CheckConstraint(f"{column} IN ({quoted})", name=f"{column}_known")


def partial_index(name: str, table_columns: tuple[str | TextClause, ...], where: str, *, unique: bool = False) -> Index:
    """An index of the rows that meet a condition.

    SQLite uses such an index only for a query that repeats the condition word for word, so conditions that queries need
    are named constants. SQLite also evaluates the condition on each update of a row. Conditions use OR instead of IN,
    because IN made claim and settle 0.8 µs per row slower.

    The conditions of some indexes include a part that is always true: `org_id > 0`, `endpoint_id > 0`, both,
    `number > 0`, or, for dead deliveries, `due_at IS NULL`. Only queries that repeat this part can use the index.
    Without statistics, PostgreSQL assumes that every index is nearly empty and may choose the wrong index. Before these
    parts were added, PostgreSQL read the dead letters of all organizations to list those of one, and the dead letters
    of all causes to list those of one cause.
    """
    return Index(name, *table_columns, unique=unique, sqlite_where=text(where), postgresql_where=text(where))


# -- events ------------------------------------------------------------------------------------------------

_INBOX = "ended_at IS NULL AND delivery_count = 0"
# The conditions of these indexes differ in a part that is always true (see `partial_index`). It names only columns that
# settle does not change. Otherwise PostgreSQL would update every index of the event at each settlement.
INBOX = f"{_INBOX} AND created_at > 0"
LEASABLE = f"{_INBOX} AND receive_count >= 0"
LEASABLE_BY_TYPE = f"{_INBOX} AND id > 0"
LEASABLE_AT = "coalesce(visible_at, deliver_at, created_at)"
"""When an event of the inbox may be leased: at the end of its last lease, at its `deliver_at`, or at once."""
FAILED = "ended_at IS NOT NULL AND delivery_count > 0 AND deleted_at IS NULL"
ACKNOWLEDGED = "ended_at IS NOT NULL AND delivery_count = 0"
UNACKNOWLEDGED = f"{_INBOX} AND org_id > 0"
OWNED = "user_id IS NOT NULL"
# For events without an owner, these four indexes cost 0.1 µs of the 7 µs of an insert on SQLite, and nothing later.
OWNED_INBOX = f"{OWNED} AND {_INBOX}"
OWNED_LEASABLE = f"{OWNED} AND {_INBOX} AND receive_count >= 0"
OWNED_FAILED = f"{OWNED} AND {FAILED}"
TYPED = "org_id > 0"
EXPIRING = "expires_at IS NOT NULL"
CORRELATED = "org_id > 0"
WITH_ORDERING_KEY = "ordering_key IS NOT NULL"

events = Table(
    "doorstep_events",
    metadata,
    Column("id", KEY, Identity(), primary_key=True),
    Column("uid", UID, nullable=False),
    Column("org_id", KEY, nullable=False),
    Column("event_type", Text, nullable=False),
    Column("status", Text, nullable=False),
    # Settle updates these counts and derives the status from them, without reading the event's other deliveries.
    Column("delivery_count", Integer, nullable=False),
    Column("open_count", Integer, nullable=False),
    Column("dead_count", Integer, nullable=False, server_default=text("0")),
    Column("done_count", Integer, nullable=False, server_default=text("0")),
    Column("created_at", INSTANT, nullable=False),
    Column("ended_at", INSTANT),
    Column("deleted_at", INSTANT),
    Column("deliver_at", INSTANT),
    Column("expires_at", INSTANT),
    Column("correlation_id", Text, nullable=False),
    Column("ordering_key", Text),
    Column("metadata", LargeBinary, nullable=False),
    Column("payload", LargeBinary),
    Column("trace", Text),
    Column("user_id", Text),
    Column("visible_at", INSTANT),
    Column("receive_count", Integer, nullable=False, server_default=text("0")),
    Column("leased_by", Text),
    UniqueConstraint("org_id", "uid"),
    one_of("status", EventStatus),
    CheckConstraint(
        "open_count >= 0 AND dead_count >= 0 AND done_count >= 0"
        " AND open_count + dead_count + done_count <= delivery_count",
        name="counts_add_up",
    ),
    partial_index("doorstep_events_inbox", ("org_id", "uid"), INBOX),
    partial_index("doorstep_events_leasable", ("org_id", text(LEASABLE_AT), "uid"), LEASABLE),
    partial_index(
        "doorstep_events_leasable_by_type", ("org_id", "event_type", text(LEASABLE_AT), "uid"), LEASABLE_BY_TYPE
    ),
    partial_index("doorstep_events_failed", ("org_id", "uid"), FAILED),
    partial_index("doorstep_events_owned", ("org_id", "user_id", "uid"), OWNED),
    partial_index("doorstep_events_owned_inbox", ("org_id", "user_id", "uid"), OWNED_INBOX),
    partial_index("doorstep_events_owned_leasable", ("org_id", "user_id", text(LEASABLE_AT), "uid"), OWNED_LEASABLE),
    partial_index("doorstep_events_owned_failed", ("org_id", "user_id", "uid"), OWNED_FAILED),
    partial_index("doorstep_events_acknowledged", ("ended_at",), ACKNOWLEDGED),
    partial_index("doorstep_events_unacknowledged", ("created_at", "id"), UNACKNOWLEDGED),
    partial_index("doorstep_events_expiring", ("expires_at", "id"), EXPIRING),
    partial_index("doorstep_events_type", ("org_id", "event_type", "uid"), TYPED),
    partial_index("doorstep_events_correlation", ("org_id", "correlation_id", "uid"), CORRELATED),
    partial_index("doorstep_events_ordering", ("org_id", "ordering_key", "uid"), WITH_ORDERING_KEY),
)
"""`ended_at` is the time at which the event failed, was acknowledged or was deleted from the inbox. It stays NULL if
the event is delivered to endpoints. The indexes use `ended_at` instead of `status`, so most events change their status
twice without an index update. That reduced the cost of a delivery on the PostgreSQL server by a fifth. If `payload` is
NULL, the payload is in `payloads`."""

payloads = Table(
    "doorstep_payloads",
    metadata,
    Column("event_id", KEY, primary_key=True, autoincrement=False),
    Column("org_id", KEY, nullable=False),
    Column("payload", LargeBinary, nullable=False),
)
"""Long payloads, on SQLite only. SQLite rewrites the whole row at each status change, which doubled the cost of claim
and settle for payloads of 5 KB. PostgreSQL already stores long values separately, so this table stays empty there."""

search_values = Table(
    "doorstep_search_values",
    metadata,
    Column("event_id", KEY, nullable=False),
    Column("value", BigInteger, nullable=False),
    Column("org_id", KEY, nullable=False),
    Column("event_uid", UID, nullable=False),
    PrimaryKeyConstraint("event_id", "value"),
    Index("doorstep_search_values_found", "org_id", "value", "event_uid"),
    sqlite_with_rowid=False,
)
"""The values of events in the fields that their organization has declared searchable, as hashes (policy/search.py).
Without declared fields, nothing is written. Rows are clustered by event, because they are removed with it."""

idempotency = Table(
    "doorstep_idempotency",
    metadata,
    Column("org_id", KEY, nullable=False),
    Column("key", Text, nullable=False),
    Column("fingerprint", LargeBinary, nullable=False),
    Column("event_uid", UID, nullable=False),
    Column("event_created_at", INSTANT, nullable=False),
    Column("delivery_count", Integer, nullable=False),
    Column("created_at", INSTANT, nullable=False),
    PrimaryKeyConstraint("org_id", "key"),
    Index("doorstep_idempotency_age", "created_at"),
    sqlite_with_rowid=False,
)
"""The first receipt for each idempotency key. It can be returned again even after the event was removed."""

# -- deliveries and their attempts -------------------------------------------------------------------------

RETRYING = "first_failed_at IS NOT NULL AND due_at IS NOT NULL"
DEAD = "(state = 'dead' OR state = 'archived') AND deleted_at IS NULL"
DEAD_BY_TIME = f"{DEAD} AND due_at IS NULL"
DEAD_BY_ENDPOINT = f"{DEAD} AND endpoint_id > 0"
STALE = "state = 'dead' AND deleted_at IS NULL AND org_id > 0"
ARCHIVED = "state = 'archived' AND deleted_at IS NULL AND org_id > 0"
FINISHED = "(state = 'delivered' OR state = 'resolved' OR state = 'cancelled' OR deleted_at IS NOT NULL)"
BATCHES = "batch AND deleted_at IS NULL"
ORDERED = "ordering_key IS NOT NULL AND due_at IS NOT NULL"
LISTED = "org_id > 0 AND endpoint_id > 0"
OPEN = f"settled_at IS NULL AND {LISTED}"
FRESH = f"{OPEN} AND first_failed_at IS NULL"
OPEN_FAILED = f"{OPEN} AND first_failed_at IS NOT NULL"
SETTLED = f"settled_at IS NOT NULL AND deleted_at IS NULL AND {LISTED}"
SETTLED_BY_ENDPOINT = "settled_at IS NOT NULL AND deleted_at IS NULL AND org_id > 0"
FAILING = f"code IS NOT NULL AND {LISTED}"
PENDING = "state = 'pending'"
IN_PROGRESS = "state = 'in_progress'"
RECOVERABLE = "state = 'pending' AND on_recovery"

deliveries = Table(
    "doorstep_deliveries",
    metadata,
    Column("id", KEY, Identity(), primary_key=True),
    Column("uid", UID, nullable=False),
    Column("org_id", KEY, nullable=False),
    Column("event_id", KEY, nullable=False),
    Column("endpoint_id", KEY, nullable=False),
    Column("state", Text, nullable=False),
    Column("due_at", INSTANT),
    Column("created_at", INSTANT, nullable=False),
    Column("token", BigInteger, nullable=False, server_default=text("0")),
    Column("attempt", Integer, nullable=False, server_default=text("0")),
    Column("round_base", Integer, nullable=False, server_default=text("0")),
    Column("retry_attempts", Integer, nullable=False, server_default=text("0")),
    Column("retries_max", Integer, nullable=False),
    Column("uncounted", Integer, nullable=False, server_default=text("0")),
    Column("on_recovery", Boolean, nullable=False, server_default=text("false")),
    Column("moves", Integer, nullable=False, server_default=text("0")),
    Column("forced", Boolean, nullable=False, server_default=text("false")),
    Column("claimed_at", INSTANT),
    Column("worker", Text),
    Column("first_failed_at", INSTANT),
    Column("last_attempt_at", INSTANT),
    Column("settled_at", INSTANT),
    Column("deleted_at", INSTANT),
    Column("response_code", Integer),
    Column("category", Text),
    Column("code", Text),
    Column("reason", Text),
    Column("cause", BigInteger),
    Column("payload", LargeBinary),
    Column("ordering_key", Text),
    Column("batch", Boolean, nullable=False, server_default=text("false")),
    UniqueConstraint("org_id", "uid"),
    one_of("state", DeliveryState),
    CheckConstraint("retry_attempts >= 0 AND retry_attempts <= retries_max", name="retries_bounded"),
    CheckConstraint("(state IN ('pending', 'in_progress')) = (due_at IS NOT NULL)", name="due_while_open"),
    Index("doorstep_deliveries_event", "event_id"),
    partial_index("doorstep_deliveries_ordering", ("endpoint_id", "ordering_key", "id"), ORDERED),
    partial_index("doorstep_deliveries_pending", ("endpoint_id", "due_at", "id"), PENDING),
    partial_index("doorstep_deliveries_recoverable", ("endpoint_id", "last_attempt_at", "id"), RECOVERABLE),
    partial_index("doorstep_deliveries_forced", ("due_at", "id"), "forced"),
    partial_index("doorstep_deliveries_in_progress", ("endpoint_id", "due_at"), IN_PROGRESS),
    partial_index("doorstep_deliveries_retrying", ("org_id", "due_at", "uid"), RETRYING),
    partial_index("doorstep_deliveries_dead", ("org_id", "state", "settled_at", "uid"), DEAD_BY_TIME),
    partial_index("doorstep_deliveries_causes", ("org_id", "state", "cause", "settled_at", "uid"), DEAD),
    partial_index(
        "doorstep_deliveries_dead_by_endpoint",
        ("org_id", "state", "endpoint_id", "settled_at", "uid"),
        DEAD_BY_ENDPOINT,
    ),
    partial_index("doorstep_deliveries_stale", ("settled_at", "id"), STALE),
    partial_index("doorstep_deliveries_archived", ("settled_at", "id"), ARCHIVED),
    partial_index("doorstep_deliveries_finished", ("settled_at", "id"), FINISHED),
    partial_index("doorstep_deliveries_batches", ("org_id", "state", "uid"), BATCHES),
    partial_index("doorstep_deliveries_fresh", ("org_id", "uid", "endpoint_id"), FRESH),
    partial_index("doorstep_deliveries_open_failed", ("org_id", "uid", "endpoint_id"), OPEN_FAILED),
    partial_index("doorstep_deliveries_settled", ("org_id", "state", "uid"), SETTLED),
    partial_index("doorstep_deliveries_settled_by_endpoint", ("endpoint_id", "state", "uid"), SETTLED_BY_ENDPOINT),
    partial_index("doorstep_deliveries_failing", ("org_id", "code", "uid", "endpoint_id"), FAILING),
)
"""`token` increases with every claim and is never reused. An operator's retry starts a new round, in which retries
count from zero again; `round_base` is the number of the last attempt before the current round, and `uncounted` is the
number of attempts of the round that used up no retry. `on_recovery` marks deliveries that may be claimed before they
are due (`Settlement.on_recovery`). `moves` counts the delivery's transitions and numbers its history entries. `due_at`
is the time of the next attempt while the delivery is pending, the end of the lease while it is in progress, or NEVER.
`payload` is set if an operator edited it. `ordering_key` is copied from the event, so that one index finds an ordering
group.

Lists are sorted by an instant and then by `uid`, not by `id`: SQLite cannot seek to a pair that ends with a row id, and
took 70 ms to find one position among 200,000 dead letters with the same instant.

Writing a dead letter takes 49 µs on SQLite and 57 µs on PostgreSQL; the index `dead_by_endpoint` accounts for
6 µs and 1 µs of that. The index `archived` is written when a dead letter is archived, and used only if
`dead_retention_days` is set. It does not slow down other deliveries. Without the index, a client that lists the few dead
letters of one endpoint would page through thousands of empty pages.

`batch` is set for deliveries that submit a batch. On SQLite, accepting any other delivery takes 9 µs, and the index of
batches accounts for at most 0.6 µs of that. Without the index, a client would page through 500 empty pages to find a
thousand old batches among a million events.

The indexes `fresh`, `open_failed`, `settled`, `settled_by_endpoint` and `failing` are for the list of deliveries, newest
first. None of them contains the state of an open delivery or depends on `due_at`: a claim would then write it twice. In
`fresh`, `open_failed` and `failing`, the last column lets a scan skip the deliveries of other endpoints without reading
their rows.

An open delivery is in `fresh` until it fails for the first time, then in `open_failed`. A received event has only fresh
deliveries, so it is found beside any number of waiting retries."""

NEVER = 2**62
"""The `due_at` of a delivery that is blocked, or that waits for an operator (its policy is `manual`). Only the latter
has been attempted. A delivery is blocked while an earlier delivery of its ordering group (same
endpoint, same ordering key) is open. The index of pending deliveries sorts blocked ones last. The API and the console
show them as `blocked`, without a time."""

ATTEMPT_ANY = "number > 0"
ATTEMPT_FAILED = "category IS NOT NULL"
ATTEMPT_ORDER = ("started_at", "delivery_id", "number", "move", "late")
"""The order of the list of attempts. On SQLite the columns after the first take no space, because an index of this
table ends with the primary key anyway."""

attempts = Table(
    "doorstep_attempts",
    metadata,
    Column("delivery_id", KEY, nullable=False),
    Column("number", Integer, nullable=False),
    Column("move", Integer, nullable=False),
    Column("late", Integer, nullable=False),
    Column("org_id", KEY, nullable=False),
    Column("endpoint_id", KEY, nullable=False),
    Column("worker", Text, nullable=False),
    Column("started_at", INSTANT, nullable=False),
    Column("finished_at", INSTANT, nullable=False),
    Column("dns_us", BigInteger, nullable=False),
    Column("connect_us", BigInteger, nullable=False),
    Column("tls_us", BigInteger, nullable=False),
    Column("first_byte_us", BigInteger, nullable=False),
    Column("next_retry_at", INSTANT),
    Column("response_code", Integer),
    Column("category", Text),
    Column("code", Text),
    Column("reason", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Column("request_headers", LargeBinary, nullable=False),
    Column("response_headers", LargeBinary, nullable=False),
    Column("response_body", LargeBinary, nullable=False),
    PrimaryKeyConstraint("delivery_id", "number", "move", "late"),
    Index("doorstep_attempts_endpoint", "endpoint_id", *ATTEMPT_ORDER),
    partial_index("doorstep_attempts_org", ("org_id", *ATTEMPT_ORDER), ATTEMPT_ANY),
    partial_index("doorstep_attempts_failed", ("org_id", *ATTEMPT_ORDER, "endpoint_id", "code"), ATTEMPT_FAILED),
    sqlite_with_rowid=False,
)
"""Rows are clustered by delivery. `late` is 0 for the attempt that counted, and 1, 2, … for late results with the same
number. `move` is the value of the delivery's `moves` when the row was written; rows with the same number are sorted by
it."""

history = Table(
    "doorstep_history",
    metadata,
    Column("delivery_id", KEY, nullable=False),
    Column("move", Integer, nullable=False),
    Column("org_id", KEY, nullable=False),
    Column("at", INSTANT, nullable=False),
    Column("old_state", Text, nullable=False),
    Column("new_state", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("note", Text, nullable=False),
    PrimaryKeyConstraint("delivery_id", "move"),
    sqlite_with_rowid=False,
)
"""One row per transition. `move` is the value of the delivery's `moves` after the transition. There is no row for the
acceptance, because the delivery's own row contains it."""

# -- outbox ------------------------------------------------------------------------------------------------

FORWARDABLE = "refused_at IS NULL"

outbox = Table(
    "doorstep_outbox",
    metadata,
    Column("id", KEY, Identity(), primary_key=True),
    Column("uid", UID, nullable=False, unique=True),
    Column("org_uid", UID, nullable=False),
    Column("event_type", Text, nullable=False),
    Column("payload", LargeBinary, nullable=False),
    Column("options", Text, nullable=False),
    Column("created_at", INSTANT, nullable=False),
    Column("refused_at", INSTANT),
    Column("refusal", Text),
    partial_index("doorstep_outbox_posted", ("id",), FORWARDABLE),
)
"""Messages that programs wrote in their own transactions and that have not been forwarded yet. Programs write to no
other table. This one contains no internal keys, so a sender can write to it without reading anything first. Rows are
deleted by `uid`, because SQLite reuses the `id` of a deleted row. A message that can never be accepted stays here, with
`refused_at` set and the reason in `refusal`."""

# -- endpoints ---------------------------------------------------------------------------------------------

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
    Column("changed", BigInteger, nullable=False, server_default=text("0")),
    Column("document", Text, nullable=False),
    Column("name", Text),
    one_of("state", EndpointState),
    UniqueConstraint("org_id", "name"),
    Index("doorstep_endpoints_org", "org_id", "uid"),
    Index("doorstep_endpoints_changed", "org_id", "changed"),
    partial_index("doorstep_endpoints_living", ("org_id", "id"), LIVING),
    partial_index("doorstep_endpoints_disabled", ("org_id", "uid"), DISABLED),
)
"""`document` is the endpoint as JSON, including `state` and `version`. `rate_next_at` is the state of the rate limit
(stores/limits.py). `changed` is the routing version that the last change gave the organization. `name` is NULL, and so
need not be unique, if the endpoint is deleted or belongs to the reserved organization, where each alert channel of any
organization has an endpoint."""

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

# -- organizations, keys and audit log ---------------------------------------------------------------------

orgs = Table(
    "doorstep_orgs",
    metadata,
    Column("id", KEY, Identity(), primary_key=True),
    Column("uid", UID, nullable=False, unique=True),
    Column("routing", BigInteger, nullable=False, server_default=text("0")),
    Column("document", Text, nullable=False),
    Index("doorstep_orgs_routing", "routing"),
)
"""`routing` is the routing version: the number of the last change to the organization or one of its endpoints. Changes
are numbered across all organizations, so one index shows a process which organizations have changed since it last
looked."""

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
    Column("user_id", Text),
    one_of("role", Role),
    Index("doorstep_keys_org", "org_id"),
    Index("doorstep_keys_prefix", "org_id", "prefix"),
    Index("doorstep_keys_name", "org_id", "name", "id"),
)

AUDIT = "org_id > 0"
AUDIT_ACTION = "id > 0"
AUDIT_ACTOR_ACTION = "at > 0"

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
    partial_index("doorstep_audit_org", ("org_id", "at", "id"), AUDIT),
    Index("doorstep_audit_actor", "org_id", "actor", "at", "id"),
    partial_index("doorstep_audit_action", ("org_id", "action", "at", "id"), AUDIT_ACTION),
    partial_index("doorstep_audit_actor_action", ("org_id", "actor", "action", "at", "id"), AUDIT_ACTOR_ACTION),
    Index("doorstep_audit_age", "at", "id"),
)
"""`subjects` is a JSON array of ids, and of names of pipelines and entities. The indexes of actors and actions find the
entries of a person who seldom acts, and a rare action, among a million others. On SQLite, each of the three adds
about 1.1 µs to the 2 µs of writing an entry. Neither accepting nor delivering writes entries."""

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
"""One row for each distinct id among the subjects of an audit entry, so that entries can be found by subject."""

# -- alerts ------------------------------------------------------------------------------------------------

incidents = Table(
    "doorstep_incidents",
    metadata,
    Column("id", KEY, Identity(), primary_key=True),
    Column("org_id", KEY, nullable=False),
    Column("document", Text, nullable=False),
    Index("doorstep_incidents_org", "org_id", "id"),
    sqlite_autoincrement=True,
)
"""Changes that may cause alerts and have not been evaluated yet. An `id` is never reused, not even on SQLite: otherwise
a slow process could delete a newer incident that it has not read."""

ALERT_OPEN = "ended_at IS NULL"
ALERT_PENDING = "ended_at IS NOT NULL AND review_at IS NOT NULL"
"""Alerts that have ended but must still be reviewed: their end has not been announced yet, or they may reopen."""
ALERT_MAY_RETURN = "ended_at IS NOT NULL AND rule <> 'dead_letter'"
"""Alerts that may reopen: if their condition recurs within the cooldown, the same alert continues. Alerts about single
dead letters never reopen. They are excluded because there may be very many of them."""

alerts = Table(
    "doorstep_alerts",
    metadata,
    Column("id", KEY, Identity(), primary_key=True),
    Column("uid", UID, nullable=False, unique=True),
    Column("org_id", KEY, nullable=False),
    Column("subject", Text, nullable=False),
    Column("rule", Text, nullable=False),
    Column("endpoint_uid", UID),
    Column("ended_at", INSTANT),
    Column("review_at", INSTANT),
    Column("version", BigInteger, nullable=False),
    Column("document", Text, nullable=False),
    one_of("rule", Rule),
    Index("doorstep_alerts_org", "org_id", "id"),
    partial_index("doorstep_alerts_open", ("org_id", "subject"), ALERT_OPEN, unique=True),
    partial_index("doorstep_alerts_ended", ("ended_at", "id"), "ended_at IS NOT NULL"),
    partial_index("doorstep_alerts_returning", ("org_id", "ended_at"), ALERT_MAY_RETURN),
    partial_index("doorstep_alerts_pending", ("org_id", "review_at"), ALERT_PENDING),
    partial_index("doorstep_alerts_review", ("review_at", "org_id"), "review_at IS NOT NULL"),
)
"""There is at most one open alert per organization and `subject`. `document` is the alert as JSON."""

alert_configs = Table(
    "doorstep_alert_configs",
    metadata,
    Column("id", KEY, Identity(), primary_key=True),
    Column("uid", UID, nullable=False, unique=True),
    Column("org_id", KEY, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("ends_at", INSTANT),
    Column("document", Text, nullable=False),
    Index("doorstep_alert_configs_org", "org_id", "id"),
    partial_index("doorstep_alert_configs_end", ("ends_at", "id"), "ends_at IS NOT NULL"),
)
"""Alert rules, channels and silences of organizations, as JSON. Silences have `ends_at`."""

# -- bulk operations ---------------------------------------------------------------------------------------

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
"""`document` is the operation as JSON. `live` is true while the bulk runner has work to do for the operation."""

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
"""The deliveries that a bulk retry has retried. `attempt` is the number of the last attempt before the retry.
`succeeded` is NULL until the result is known."""

# -- pipelines ---------------------------------------------------------------------------------------------

RUNNING = "phase = 'running'"
AWAITING = "phase = 'running' AND event_uid IS NOT NULL"
HIDDEN = "(phase = 'dead' OR phase = 'archived')"
FAILED_ENTITY = "phase = 'dead'"

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
    partial_index("doorstep_entities_event", ("org_id", "event_uid"), AWAITING),
    partial_index("doorstep_entities_hidden", ("org_id", "pipeline", "id"), HIDDEN),
    partial_index("doorstep_entities_stale", ("org_id", "pipeline", "changed_at", "id"), FAILED_ENTITY),
)
"""The application defines the values of `status`; `phase` is what that status means to Doorstep. `data` and `metadata`
are JSON."""

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
"""One row per change of an entity. `version` is the entity's version after the change."""

# -- statistics --------------------------------------------------------------------------------------------

ENDPOINT_TOTALS = "span = 'ever' AND endpoint_id > 0"
HOURS_WITH_DEAD = "span = 'hour' AND endpoint_id > 0 AND dead > 0"


def _figures() -> list[Column[int]]:
    return [Column(name, BigInteger, nullable=False, server_default=text("0")) for name in FIGURES]


counters = Table(
    "doorstep_counters",
    metadata,
    Column("org_id", KEY, nullable=False),
    Column("endpoint_id", KEY, nullable=False),
    Column("minute", INSTANT, nullable=False),
    Column("shard", Integer, nullable=False),
    *_figures(),
    PrimaryKeyConstraint("org_id", "endpoint_id", "minute", "shard"),
    sqlite_with_rowid=False,
)
"""The counts of recent minutes, which are kept here until they are moved into the roll-ups. `endpoint_id` is 0 for
counts of events.

Transactions with different shards write different rows and do not wait for each other. On PostgreSQL, `shard` is
derived from the server process of the connection. After every 512 writes, a process switches its connections to another
shard, so one connection may write several rows for the same endpoint and minute. SQLite has a single writer: its shard
is always 0, and an active endpoint has one row per minute."""

rollups = Table(
    "doorstep_rollups",
    metadata,
    Column("org_id", KEY, nullable=False),
    Column("endpoint_id", KEY, nullable=False),
    Column("span", Text, nullable=False),
    Column("at", INSTANT, nullable=False),
    *_figures(),
    PrimaryKeyConstraint("org_id", "endpoint_id", "span", "at"),
    one_of("span", Span),
    Index("doorstep_rollups_age", "span", "at"),
    partial_index("doorstep_rollups_busiest", ("deliveries",), ENDPOINT_TOTALS),
    partial_index("doorstep_rollups_dead", ("org_id", "at", "endpoint_id"), HOURS_WITH_DEAD),
    sqlite_with_rowid=False,
)
"""Sums per endpoint, per organization (`endpoint_id` is 0) and for the installation (`org_id` is 0 too). `at` is the
start of the span, or 0 for the span `ever`."""

# -- processes ---------------------------------------------------------------------------------------------

workers = Table(
    "doorstep_workers",
    metadata,
    Column("name", Text, primary_key=True),
    Column("seen_at", INSTANT, nullable=False),
    Column("document", Text, nullable=False),
    Index("doorstep_workers_seen", "seen_at"),
)
"""One row per process, as JSON. Workers belong to no organization; only the engine sees them."""

variables = Table(
    "doorstep_variables",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
"""Named numbers.

`routing` is the number of the last change to an organization or an endpoint. `secret_key` identifies the key that
encrypts secrets (model/org.py). `pipeline:…` is the time when a worker last reported that it runs that pipeline. All
other variables are used only on SQLite. `events` and `deliveries` are the keys that were assigned last. They are stored
so that no key is used twice, not even after cleanup. A variable named after a task (stores/store.py) is the time until
which a process holds the lock for that task."""

VARIABLES = ("routing", "events", "deliveries", *(task.value for task in Task))
"""The rows of `variables` in a new database, all 0."""

TENANT_TABLES = tuple(table for table in metadata.sorted_tables if "org_id" in table.c)
"""All tables with an `org_id`: each of their rows belongs to one organization."""
