"""The statements that create the schema in an empty database, generated from schema.py and the transition tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import product

from sqlalchemy import Table
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from doorstep.model.delivery import TRANSITION_TABLE, DeliveryState
from doorstep.model.event import EVENT_TRANSITIONS, EventStatus
from doorstep.stores.sql.schema import (
    TENANT_TABLES,
    VARIABLES,
    attempts,
    counters,
    deliveries,
    events,
    history,
    metadata,
    orgs,
    outbox,
    variables,
    workers,
)
from doorstep.stores.store import Task

_DIALECTS = {"sqlite": sqlite.dialect, "postgresql": postgresql.dialect}


@cache
def schema_ddl(dialect: str) -> tuple[str, ...]:
    """All statements in order, for `sqlite` or `postgresql`. Cached, because compiling them takes 20 ms of CPU."""
    common = (
        *_table_ddl(dialect),
        *(f"INSERT INTO {variables.name} (name, value) VALUES ('{name}', 0)" for name in VARIABLES),
        *trigger_ddl(dialect),
    )
    if dialect == "sqlite":
        return (*common, *outbox_trigger_ddl())
    return (*common, *postgres_ddl())


def _table_ddl(dialect: str) -> Iterator[str]:
    compiler = _DIALECTS[dialect]()
    for table in metadata.sorted_tables:
        yield str(CreateTable(table).compile(dialect=compiler)).strip()
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            yield str(CreateIndex(index).compile(dialect=compiler))


def trigger_ddl(dialect: str) -> list[str]:
    """Triggers that reject every state change that is not in the model's transition tables.

    They fire only on updates of the state column. A WHEN clause checks the change, so an allowed update costs only a
    few comparisons. An update that leaves a delivery's state unchanged is allowed only for `pending` (an operator's
    retry).
    """
    of_deliveries = [(row.source, row.target) for row in TRANSITION_TABLE]
    of_events = [
        (old, new) for old, new in product(EventStatus, repeat=2) if old is new or (old, new) in EVENT_TRANSITIONS
    ]
    return [
        *_trigger(
            dialect, "doorstep_deliveries", "state", [*of_deliveries, (DeliveryState.PENDING, DeliveryState.PENDING)]
        ),
        *_trigger(dialect, "doorstep_events", "status", of_events),
    ]


def _trigger(dialect: str, table: str, column: str, pairs: Iterable[tuple[str, str]]) -> list[str]:
    # A chain of ORs, the most frequent pair first, adds 0.3 µs to a state change. With `NEW.state IN (…)`, SQLite
    # rebuilds the list for every row, which added 2 µs.
    allowed = " OR ".join(f"(OLD.{column} = '{old}' AND NEW.{column} = '{new}')" for old, new in pairs)
    error = f"this change of {table}.{column} is not in the transition table"
    head = f"CREATE TRIGGER {table}_{column}_change BEFORE UPDATE OF {column} ON {table} FOR EACH ROW"
    if dialect == "sqlite":
        return [f"{head} WHEN NOT ({allowed}) BEGIN SELECT RAISE(ABORT, '{error}'); END"]
    function = (
        f"CREATE FUNCTION {table}_{column}_refuse() RETURNS trigger LANGUAGE plpgsql AS"
        f" $$ BEGIN RAISE EXCEPTION '{error}' USING ERRCODE = 'check_violation'; END $$"
    )
    return [function, f"{head} WHEN (NOT ({allowed})) EXECUTE FUNCTION {table}_{column}_refuse()"]


def outbox_trigger_ddl() -> list[str]:
    """SQLite triggers that reject unreadable outbox rows, in the transaction that writes them.

    SQLite accepts any value in any column. The forwarder can reject a message only by its id, so a row with an invalid
    id would block all rows after it. These are triggers, not CHECK constraints, because a trigger can raise an error
    that says what is expected. The triggers account for 1.7 of the 27 µs that an insert takes.
    """
    error = (
        "a row of doorstep_outbox has a uid and an org_uid of 16 bytes, an event_type that is text, a payload and"
        " options in bytes or text, and created_at in microseconds; send(connection=…) writes it so"
    )
    ending = f"ON {outbox.name} WHEN NOT ({_READABLE}) BEGIN SELECT RAISE(ABORT, '{error}'); END"
    columns = "uid, org_uid, event_type, payload, options, created_at"
    return [
        f"CREATE TRIGGER {outbox.name}_insert BEFORE INSERT {ending}",
        f"CREATE TRIGGER {outbox.name}_update BEFORE UPDATE OF {columns} {ending}",
    ]


_READABLE = (
    "typeof(NEW.uid) = 'blob' AND length(NEW.uid) = 16 AND typeof(NEW.org_uid) = 'blob' AND length(NEW.org_uid) = 16"
    " AND typeof(NEW.event_type) = 'text' AND typeof(NEW.created_at) = 'integer'"
    " AND (typeof(NEW.payload) = 'blob' OR typeof(NEW.payload) = 'text')"
    " AND (typeof(NEW.options) = 'text' OR typeof(NEW.options) = 'blob')"
)


# -- PostgreSQL --------------------------------------------------------------------------------------------
#
# Row-level security separates organizations even if a query lacks its WHERE clause. The connection setting
# `doorstep.org` contains the key of an organization, or `*` for the engine. If it is not set, no row is visible.

POSTED_CHANNEL = "doorstep_posted"
"""The notification channel for messages in the outbox."""
SCOPE = "doorstep.org"
"""The setting that restricts a transaction to the rows of one organization."""
ALL_ORGS = "*"

ROUTING_LOCK = 0x646F_6F72_0001
"""An advisory lock. Accept calls hold it in shared mode, and a change of endpoints holds it exclusively."""
MIGRATION_LOCK = 0x646F_6F72_0002
ORDERING_LOCK = 0x646F_6F72_1000
ORDERING_LOCKS = 1024
"""The number of locks that all ordering groups share. One lock per group could fill the server's lock table, which has
room for about 6,000 locks. If two groups happen to share a lock, one occasionally waits for the other's commit."""


def task_lock(task: Task) -> str:
    """An SQL expression for the key of a task's advisory lock. It includes the schema name, so that several Doorstep
    installations in one database do not share locks."""
    return f"hashtextextended(current_schema(), {list(Task).index(task)})"


def _outbox_lock(number: int, table: str) -> str:
    """An SQL expression for the key of a lock that belongs to one outbox. `table` is an expression for its oid."""
    return f"hashtextextended('{outbox.name}', {table}::oid::bigint * 2 + {number})"


_SLEEPER, _POSTER = 0, 1
OUTBOX_SLEEPER, OUTBOX_POSTER = (_outbox_lock(number, f"'{outbox.name}'::regclass") for number in (_SLEEPER, _POSTER))
"""The keys of two advisory locks; `_outbox_announcements` describes their use."""


def ordering_lock(delivery: str) -> str:
    """An SQL expression for the lock key of a delivery's ordering group. `delivery` is the alias of the delivery's
    row."""
    group = f"hashtextextended({delivery}.ordering_key, {delivery}.endpoint_id)"
    return f"({ORDERING_LOCK} + ({group} & {ORDERING_LOCKS - 1}))"


_SETTING = f"current_setting('{SCOPE}', true)"
_EVERYONE = f"(SELECT {_SETTING} = '{ALL_ORGS}')"
_ONE_ORG = f"(SELECT CASE WHEN {_SETTING} ~ '^[0-9]+$' THEN {_SETTING}::bigint END)"


def postgres_ddl() -> list[str]:
    """The PostgreSQL statements that run once, in this order, after the tables have been created."""
    return [
        *(statement for table in TENANT_TABLES for statement in _isolated(table, "org_id")),
        *_isolated(orgs, "id"),
        # Workers belong to the installation: connections that are restricted to one organization do not see them.
        *_enable_row_security(workers),
        f"CREATE POLICY {workers.name}_of_the_engine ON {workers.name} USING ({_EVERYONE})",
        *_outbox_policies(),
        *_outbox_announcements(),
        *_routing_lock(),
        *(f"ALTER TABLE {table.name} SET ({parameters})" for table, parameters in _STORAGE.items()),
    ]


def _isolated(table: Table, column: str) -> list[str]:
    """Let a transaction access only one organization's rows of a table. FORCE applies the policy to the table's owner
    too.

    The subqueries in the policy make PostgreSQL read the setting once per statement, not once per row.

    n_distinct tells the planner to assume fifty organizations. Without it, PostgreSQL assumes that the condition on the
    organization is always true if the statistics contain only one organization. To list the few rows of another
    organization, it then scans all rows of the first. If PostgreSQL assumed a thousand organizations, it would estimate
    that reading all rows of one organization is cheaper than reading fifty single rows.
    """
    return [
        *_enable_row_security(table),
        f"CREATE POLICY {table.name}_of_one_org ON {table.name} USING ({_EVERYONE} OR {column} = {_ONE_ORG})",
        f"ALTER TABLE {table.name} ALTER COLUMN {column} SET (n_distinct = 50)",
    ]


def _enable_row_security(table: Table) -> list[str]:
    return [f"ALTER TABLE {table.name} {word} ROW LEVEL SECURITY" for word in ("ENABLE", "FORCE")]


def _outbox_policies() -> list[str]:
    """Let every role with the INSERT privilege insert any row into the outbox, but not read it.

    Each command has its own policy. If reading and inserting shared a policy, a sender would need the right to read the
    table of organizations.
    """
    name = outbox.name
    own = f"org_uid = (SELECT uid FROM {orgs.name} WHERE id = {_ONE_ORG})"
    return [
        *_enable_row_security(outbox),
        f"CREATE POLICY {name}_post ON {name} FOR INSERT WITH CHECK (true)",
        f"CREATE POLICY {name}_read ON {name} FOR SELECT USING ({_EVERYONE} OR {own})",
        f"CREATE POLICY {name}_reject ON {name} FOR UPDATE USING ({_EVERYONE})",
        f"CREATE POLICY {name}_clear ON {name} FOR DELETE USING ({_EVERYONE})",
    ]


def _outbox_announcements() -> list[str]:
    """Notify the forwarders of new messages, if one of them sleeps until then.

    PostgreSQL serializes the commits of transactions that notify, so they notify only if it is needed. A forwarder that
    sleeps holds the lock of sleepers, in shared mode. A transaction with messages holds the lock of posters, in shared
    mode, until it ends, and then looks for sleepers. Before a forwarder relies on being notified, it looks for posters,
    while it holds the lock of sleepers already. So at least one of the two sees the other. Locks are used because they do
    not depend on snapshots.
    """
    name = f"{outbox.name}_announce"
    sleeper, poster = (_outbox_lock(number, "TG_RELID") for number in (_SLEEPER, _POSTER))
    body = (
        f"$$ BEGIN IF pg_try_advisory_xact_lock_shared({poster}) AND pg_try_advisory_lock({sleeper})"
        f" THEN PERFORM pg_advisory_unlock({sleeper}); ELSE PERFORM pg_notify('{POSTED_CHANNEL}', ''); END IF;"
        " RETURN NULL; END $$"
    )
    return [
        f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS {body}",
        f"CREATE TRIGGER {name} AFTER INSERT ON {outbox.name} FOR EACH STATEMENT EXECUTE FUNCTION {name}()",
    ]


def _routing_lock() -> list[str]:
    """Make every change of the endpoints take the routing lock exclusively.

    An accept call that used the old endpoints therefore either commits before the change or fails. This is an advisory
    lock because its queue is fair: with row locks, a steady stream of accept calls could block a change forever.
    """
    function = f"{variables.name}_lock"
    body = f"$$ BEGIN PERFORM pg_advisory_xact_lock({ROUTING_LOCK}); RETURN NULL; END $$"
    return [
        f"CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS {body}",
        f"CREATE TRIGGER {function} BEFORE UPDATE ON {variables.name} FOR EACH STATEMENT EXECUTE FUNCTION {function}()",
    ]


_UPDATED_ROWS = (
    "fillfactor = 70, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_scale_factor = 0.02,"
    " autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0"
)
"""Storage parameters for rows that are updated at least twice. Free space is left on each page for the updates, and the
table is vacuumed much earlier than by default: PostgreSQL would otherwise wait until a fifth of the rows are dead."""
_FEW_BUSY_ROWS = (
    "fillfactor = 20, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0,"
    " autovacuum_vacuum_cost_delay = 0"
)
"""Storage parameters for a small table whose rows are updated by every batch: most of each page is left free, and
vacuuming does not pause."""
_LOG_ROWS = "autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0"
"""Storage parameters for rows that are never updated, only inserted and deleted in bulk. The table is vacuumed less
often, mainly to keep the visibility map up to date."""
_STORAGE = {
    events: _UPDATED_ROWS,
    deliveries: _UPDATED_ROWS,
    counters: _FEW_BUSY_ROWS,
    attempts: _LOG_ROWS,
    history: _LOG_ROWS,
}
