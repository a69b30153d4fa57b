"""What only PostgreSQL has: row-level security, the routing lock, vacuum settings.

Row-level security keeps organizations apart even if a query forgets its WHERE. A connection says for whom it works
by the setting `doorstep.org`: the key of an organization, or `*` for the engine; without it no row is seen.
"""

from __future__ import annotations

from sqlalchemy import Table

from doorstep.stores.sql.schema import (
    TENANT_TABLES,
    attempts,
    deliveries,
    events,
    history,
    marks,
    orgs,
    outbox,
    ticks,
    workers,
)
from doorstep.stores.store import Task

SCOPE = "doorstep.org"
"""The setting that names the organization a transaction works for."""
ALL_ORGS = "*"

ROUTING_LOCK = 0x646F_6F72_0001
"""The advisory lock that accepts share, and that a change of the endpoints holds alone."""
MIGRATION_LOCK = 0x646F_6F72_0002
TURN_LOCKS = 0x646F_6F72_1000
TURNS = 1024
"""Locks for deliveries with ordering keys. Lines share them: one each could fill the server's table of locks, which has
room for some 6,000. Two lines that share a lock by chance wait for each other's commit, once in a while."""


def task_lock(task: Task) -> str:
    """The advisory lock of whoever does a task, as an expression; each Doorstep of a database has its own."""
    return f"hashtextextended(current_schema(), {list(Task).index(task)})"


def turn_of(delivery: str) -> str:
    """The lock for the line of a delivery, as an expression; `delivery` is how the statement calls its row."""
    line = f"hashtextextended({delivery}.ordering_key, {delivery}.endpoint_id)"
    return f"({TURN_LOCKS} + ({line} & {TURNS - 1}))"


_SETTING = f"current_setting('{SCOPE}', true)"
_EVERYONE = f"(SELECT {_SETTING} = '{ALL_ORGS}')"
_ONE_ORG = f"(SELECT CASE WHEN {_SETTING} ~ '^[0-9]+$' THEN {_SETTING}::bigint END)"


def postgres_ddl() -> list[str]:
    """The statements, in order; they are executed once, after the tables exist."""
    return [
        *(statement for table in TENANT_TABLES for statement in _isolated(table, "org_id")),
        *_isolated(orgs, "id"),
        *_for_the_engine_alone(workers),
        *_open_to_senders(),
        *_routing_lock(),
        *map(_often_vacuumed, (events, deliveries)),
        _always_rewritten(ticks),
        *_logs(),
    ]


def _isolated(table: Table, column: str) -> list[str]:
    """FORCE binds the owner too. The subqueries make PostgreSQL read the setting once a statement, not once a row.

    Organizations are said to be fifty: where statistics have seen only one, PostgreSQL takes naming it for no condition
    at all, and would list the few lines of the next one by walking through everything of the first. Were they said to
    be a thousand, it would take all that one has (a thousandth, it thinks) for less than fifty single rows.
    """
    return [
        *_guarded(table),
        f"CREATE POLICY {table.name}_of_one_org ON {table.name} USING ({_EVERYONE} OR {column} = {_ONE_ORG})",
        f"ALTER TABLE {table.name} ALTER COLUMN {column} SET (n_distinct = 50)",
    ]


def _for_the_engine_alone(table: Table) -> list[str]:
    """Hides a table of the whole installation from connections that work for one organization."""
    return [*_guarded(table), f"CREATE POLICY {table.name}_of_the_engine ON {table.name} USING ({_EVERYONE})"]


def _guarded(table: Table) -> list[str]:
    return [f"ALTER TABLE {table.name} {word} ROW LEVEL SECURITY" for word in ("ENABLE", "FORCE")]


def _open_to_senders() -> list[str]:
    """Whoever may insert at all puts any row into the outbox, and sees none.

    One policy a verb: were reading and inserting one policy, an insert would need the right to read organizations.
    """
    name = outbox.name
    own = f"org_uid = (SELECT uid FROM {orgs.name} WHERE id = {_ONE_ORG})"
    return [
        *_guarded(outbox),
        f"CREATE POLICY {name}_post ON {name} FOR INSERT WITH CHECK (true)",
        f"CREATE POLICY {name}_read ON {name} FOR SELECT USING ({_EVERYONE} OR {own})",
        f"CREATE POLICY {name}_set_aside ON {name} FOR UPDATE USING ({_EVERYONE})",
        f"CREATE POLICY {name}_clear ON {name} FOR DELETE USING ({_EVERYONE})",
    ]


def _routing_lock() -> list[str]:
    """An accept computed from old endpoints is committed before they change, or refused; never after.

    An advisory lock, because its queue is fair: with row locks a steady stream of accepts could keep a change of an
    endpoint waiting for ever.
    """
    function = f"{marks.name}_lock"
    body = f"$$ BEGIN PERFORM pg_advisory_xact_lock({ROUTING_LOCK}); RETURN NULL; END $$"
    return [
        f"CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS {body}",
        f"CREATE TRIGGER {function} BEFORE UPDATE ON {marks.name} FOR EACH STATEMENT EXECUTE FUNCTION {function}()",
    ]


def _often_vacuumed(table: Table) -> str:
    """Each row is rewritten at least twice: leave room for that on its page, and collect the old
    versions long before a fifth of the table is dead."""
    return (
        f"ALTER TABLE {table.name} SET (fillfactor = 70, autovacuum_vacuum_threshold = 5000,"
        " autovacuum_vacuum_scale_factor = 0.02,"
        " autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0)"
    )


def _always_rewritten(table: Table) -> str:
    """Few rows, each rewritten with every batch: room for that on its page, and no waiting for the vacuum."""
    return (
        f"ALTER TABLE {table.name} SET (fillfactor = 20, autovacuum_vacuum_threshold = 500,"
        " autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_cost_delay = 0)"
    )


def _logs() -> list[str]:
    """Only added to and cleaned in bulk: vacuum them for their visibility map, with less hurry."""
    return [
        f"ALTER TABLE {table.name} SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0)"
        for table in (attempts, history)
    ]
