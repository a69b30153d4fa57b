"""Lets people into the database: what the members of one role may read with SQL, and the functions through which they act.

A setting cannot say who somebody is, because every database user may change every setting. The table `doorstep_logins`
says it instead: it names each login, which nobody can change after connecting (SET ROLE does not change `session_user`).
A login belongs to one person, or to a gateway that says in its settings, or in the claims of a token, for whom it acts.

The policies of ddl.py apply to all roles and trust the setting `doorstep.org`. So the policies here are restrictive:
both must let a row through. They apply to members of the role only. The service is never a member, so its statements
keep their plans.

Nobody may write to a table. `doorstep_act` starts a bulk operation, which the service carries out like any other: with
its transition table, counters, history, alerts and audit entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import asyncpg
from sqlalchemy import Table

from doorstep.errors import ConfigError
from doorstep.model.action import ACTS_ON, REASON_CHARACTERS_MAX, ActionKind
from doorstep.model.alert import OPERATIONS_ORG
from doorstep.model.bulk import IDS_MAX, LIVE_MAX, BulkKind
from doorstep.model.org import Permission, Role, roles_with
from doorstep.stores.sql.ddl import ALL_ORGS, MIGRATION_LOCK, SCOPE
from doorstep.stores.sql.postgres.connections import Connection, check_schema
from doorstep.stores.sql.schema import (
    TENANT_TABLES,
    attempts,
    audit,
    bulk_items,
    bulks,
    circuit_history,
    circuits,
    deliveries,
    endpoints,
    entities,
    entity_history,
    events,
    history,
    metadata,
    orgs,
    outbox,
    rollups,
    workers,
)

READABLE: dict[Table, frozenset[str]] = {
    orgs: frozenset({"document"}),
    events: frozenset({"trace"}),
    deliveries: frozenset(),
    attempts: frozenset(),
    history: frozenset(),
    endpoints: frozenset({"document", "version", "rate_next_at"}),
    circuits: frozenset(),
    circuit_history: frozenset(),
    audit: frozenset(),
    bulks: frozenset(),
    bulk_items: frozenset(),
    entities: frozenset(),
    entity_history: frozenset(),
    rollups: frozenset(),
}
"""The tables that members of the role may read, each with its hidden columns. The document of an endpoint contains its
encrypted secrets. All other tables are hidden: API keys, for example, the outbox and the hashes of searchable values."""

_GUARDED = (*TENANT_TABLES, orgs, outbox, workers)
LOGINS = "doorstep_logins"
_ACTIONS = tuple(ActionKind(kind) for kind in BulkKind if kind is not BulkKind.REPLAY)


async def grant_users(connection: Connection, role: str) -> None:
    """Give a role its access, or renew it. Must run as the owner of the tables, in one transaction."""
    await connection.execute(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")
    await check_schema(connection)
    _check_role(role, await connection.fetchrow(_ROLE, role))
    if (other := await connection.fetchval(_OTHER, role)) is not None:
        raise ConfigError(
            f"the role {other} has this access already, and only one role can have it; make {role} a member of {other},"
            f" or take the access away first: DROP OWNED BY {other}"
        )
    home = await connection.fetchval(_HOME)
    group = await connection.fetchval("SELECT quote_ident($1)", role)
    for statement in access_ddl(home, group):
        await connection.execute(statement)
    readable = [f"{table.name}.{column}" for table in READABLE for column in _readable_columns(table)]
    names = [LOGINS, *(table.name for table in metadata.sorted_tables)]
    if excess := await connection.fetch(_EXCESS, role, names, readable):
        raise ConfigError(
            f"the role {role} has more privileges than it should have on {', '.join(row[0] for row in excess)};"
            " revoke them from PUBLIC and from the roles of which it is a member"
        )


_ROLE = """
SELECT rolsuper OR rolbypassrls,
    pg_has_role(oid, current_user, 'MEMBER'),
    pg_has_role(current_user, oid, 'USAGE') AND NOT (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)
FROM pg_roles WHERE rolname = $1
"""
_HOME = f"SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = '{events.name}'::regclass"
"""The schema of the tables, quoted if it needs it."""
_OTHER = f"""
SELECT pg_get_userbyid(member) FROM pg_policy, unnest(polroles) AS member
WHERE polrelid = '{events.name}'::regclass AND polname = '{events.name}_limited_for_users'
    AND pg_get_userbyid(member) <> $1 LIMIT 1
"""
"""The role of which members are restricted now. If its policies were given to another role, it would be left with its
privileges and without its restrictions."""
_EXCESS = f"""
SELECT relname FROM pg_class
WHERE relnamespace::regnamespace::text = ({_HOME}) AND relname = ANY ($2::text[])
    AND (has_table_privilege($1, pg_class.oid, 'DELETE, TRUNCATE, TRIGGER')
        OR has_any_column_privilege($1, pg_class.oid, 'INSERT, UPDATE, REFERENCES')
        OR EXISTS (SELECT FROM pg_attribute WHERE attrelid = pg_class.oid AND attnum > 0 AND NOT attisdropped
            AND has_column_privilege($1, pg_class.oid, attnum, 'SELECT')
            AND relname || '.' || attname <> ALL ($3::text[])))
ORDER BY 1
"""
"""The tables on which the role may do more than it was granted: through PUBLIC, for example."""


def _check_role(role: str, found: asyncpg.Record | None) -> None:
    if found is None:
        raise ConfigError(f"there is no database role {role}; create it: CREATE ROLE {role} NOLOGIN")
    bypasses_rls, is_owner, has_owner = found
    if bypasses_rls:
        raise ConfigError(f"the role {role} bypasses row-level security; choose one without SUPERUSER and BYPASSRLS")
    if is_owner:
        raise ConfigError(f"the role {role} may act as the owner of the tables; choose a role that may not")
    if has_owner:
        raise ConfigError(
            f"the owner of the tables is a member of the role {role}, so its policies would hide rows from Doorstep;"
            " revoke that membership"
        )


def access_ddl(home: str, role: str) -> Iterator[str]:
    """All statements, in order. `home` is the schema of the tables. Both names must be quoted if they need it."""
    yield from _logins(home)
    tables = [f"{home}.{name}" for name in (LOGINS, *(table.name for table in metadata.sorted_tables))]
    yield f"REVOKE ALL ON {', '.join(tables)} FROM {role}"
    yield f"GRANT USAGE ON SCHEMA {home} TO {role}"
    for function, body in _functions(home).items():
        yield f"CREATE OR REPLACE FUNCTION {home}.{body}"
        yield f"REVOKE ALL ON FUNCTION {home}.{function} FROM PUBLIC"
    for function in _FOR_MEMBERS:
        yield f"GRANT EXECUTE ON FUNCTION {home}.{function} TO {role}"
    for table in _GUARDED:
        yield from _guard(home, table, role)
    for table in READABLE:
        columns = ", ".join(f'"{column}"' for column in _readable_columns(table))
        yield f"GRANT SELECT ({columns}) ON {home}.{table.name} TO {role}"


def _readable_columns(table: Table) -> list[str]:
    return [column.name for column in table.c if column.name not in READABLE[table]]


def _logins(home: str) -> Iterator[str]:
    """The table of logins. Row-level security without any policy keeps everyone out except its owner, even a role that
    was granted all privileges on all tables."""
    yield f"""CREATE TABLE IF NOT EXISTS {home}.{LOGINS} (
        login text PRIMARY KEY,
        identity text NOT NULL CHECK (identity IN ('login', 'settings', 'jwt')),
        org_id uuid,
        role text CHECK (role IN ({_quoted(Role)})),
        CHECK ((identity = 'login') = (org_id IS NOT NULL)),
        CHECK ((identity = 'login') = (role IS NOT NULL)))"""
    yield f"ALTER TABLE {home}.{LOGINS} ENABLE ROW LEVEL SECURITY"


# -- policies ----------------------------------------------------------------------------------------------


def _guard(home: str, table: Table, role: str) -> Iterator[str]:
    """The policies of a table for members of the role. No row of a table that is not readable is visible, and no row of
    any table can be written, whatever else an administrator grants to the role later."""
    name = f"{home}.{table.name}"
    visible = _visible(home, table) if table in READABLE else "false"
    policies = {
        "shown_to_users": f"FOR SELECT TO {role} USING ({visible})",
        "limited_for_users": f"AS RESTRICTIVE TO {role} USING ({visible}) WITH CHECK (false)",
        "kept_from_users": f"AS RESTRICTIVE FOR DELETE TO {role} USING (false)",
    }
    for policy, definition in policies.items():
        yield f"DROP POLICY IF EXISTS {table.name}_{policy} ON {name}"
        yield f"CREATE POLICY {table.name}_{policy} ON {name} {definition}"


def _visible(home: str, table: Table) -> str:
    """The rows that a person may read: those who may look read all rows of their organization, and consumers its inbox.

    The subqueries make PostgreSQL find out who reads once per statement, not once per row.
    """
    key = "id" if table is orgs else "org_id"
    everything = f"{key} = (SELECT {home}.doorstep_org_for({_array(roles_with(Permission.LOOK))}))"
    if table is not events:
        return everything
    inbox = f"{key} = (SELECT {home}.doorstep_org_for({_array(roles_with(Permission.INBOX))}))"
    return f"{everything} OR ({inbox} AND ended_at IS NULL AND delivery_count = 0)"


# -- functions ---------------------------------------------------------------------------------------------
#
# Functions with the rights of the owner name every table with its schema and search nothing but pg_catalog, so that
# nobody can put an object of their own in the way. Row-level security applies to the owner too, so they set the scope
# themselves and restore it. (Only a superuser may attach the setting to a function.)

_FOR_MEMBERS = (
    "doorstep_identity()",
    "doorstep_org_for(text[])",
    "doorstep_act(text, uuid[], text)",
    "doorstep_send(text, json, text, text)",
    "doorstep_event_status(uuid)",
)
_PLACE = "SET search_path = pg_catalog, pg_temp"
_AS_OWNER = f"SECURITY DEFINER {_PLACE}"
_SCOPE = f"scope text := coalesce(current_setting('{SCOPE}', true), '')"
_NOW = "floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"


def _functions(home: str) -> dict[str, str]:
    """The definitions of all functions, by signature."""
    return {
        "doorstep_identity()": _identity(home),
        "doorstep_org_for(text[])": _org_for(home),
        "doorstep_check_role(text, text[])": _check_role_function(home),
        "doorstep_new_id(bigint)": _new_id(),
        "doorstep_act(text, uuid[], text)": _act(home),
        "doorstep_send(text, json, text, text)": _send(home),
        "doorstep_event_status(uuid)": _event_status(home),
    }


def _identity(home: str) -> str:
    """Who is connected. Without an entry for the login, or with settings that name nobody, all columns are NULL."""
    return f"""doorstep_identity(OUT org_key bigint, OUT org_id uuid, OUT role text, OUT person text)
LANGUAGE plpgsql STABLE {_AS_OWNER} AS $$
DECLARE entry {home}.{LOGINS}; claims jsonb; {_SCOPE};
BEGIN
    SELECT * INTO entry FROM {home}.{LOGINS} AS one WHERE one.login = session_user;
    IF entry.identity = 'login' THEN
        org_id := entry.org_id; role := entry.role; person := entry.login;
    ELSIF entry.identity = 'settings' THEN
        org_id := nullif(current_setting('doorstep.org_id', true), '')::uuid;
        role := nullif(current_setting('doorstep.role', true), '');
        person := nullif(current_setting('doorstep.person', true), '');
    ELSIF entry.identity = 'jwt' THEN
        claims := nullif(current_setting('request.jwt.claims', true), '')::jsonb;
        org_id := (claims #>> '{{doorstep,org_id}}')::uuid;
        role := claims #>> '{{doorstep,role}}';
        person := coalesce(claims #>> '{{doorstep,person}}', claims ->> 'sub');
    END IF;
    {_narrow(f"'{ALL_ORGS}'")};
    SELECT one.id INTO org_key FROM {home}.{orgs.name} AS one
        WHERE one.uid = doorstep_identity.org_id AND one.uid <> '{OPERATIONS_ORG}' AND one.document::json ->> 'deleted_at' IS NULL;
    {_narrow("scope")};
END $$"""


def _org_for(home: str) -> str:
    """The key of the organization, if the person has one of the roles."""
    return f"""doorstep_org_for(roles text[]) RETURNS bigint LANGUAGE sql STABLE {_AS_OWNER} AS $$
SELECT org_key FROM {home}.doorstep_identity() WHERE role = ANY (roles) $$"""


def _check_role_function(home: str) -> str:
    """Reject callers without a known organization and one of the roles, and callers without a name, or with a name that
    the audit log would show as an API key or as the service."""
    return f"""doorstep_check_role(deed text, roles text[]) RETURNS void LANGUAGE plpgsql {_PLACE} AS $$
DECLARE caller record;
BEGIN
    SELECT * INTO caller FROM {home}.doorstep_identity();
    IF caller.org_key IS NULL OR caller.role IS NULL THEN
        RAISE insufficient_privilege USING MESSAGE =
            format('no organization and role are known for the login %s; add an entry to {LOGINS}, or, as a gateway,'
                ' name an organization and a role in each transaction', session_user);
    ELSIF caller.role <> ALL (roles) THEN
        RAISE insufficient_privilege USING MESSAGE =
            format('the role %s may not %s; that needs the role %s', caller.role, deed, array_to_string(roles, ' or '));
    ELSIF caller.person IS NULL OR caller.person IN ('', 'doorstep') OR starts_with(caller.person, 'dsk_') THEN
        RAISE insufficient_privilege USING MESSAGE =
            'the audit log needs the name of the person: set doorstep.person, or the claim doorstep.person or sub';
    END IF;
END $$"""


def _new_id() -> str:
    """An id that sorts by time and contains its short id, as `uuid7` of model/record.py makes it."""
    return f"""doorstep_new_id(at bigint) RETURNS uuid LANGUAGE sql {_PLACE} AS $$
SELECT (lpad(to_hex(at / 1000), 12, '0') || '7' || lpad(to_hex((at % 1000) << 2), 3, '0') || substr(random, 17, 8)
    || lpad(to_hex(at >> 26 & 4095), 3, '0') || substr(random, 28, 5))::uuid
FROM replace(gen_random_uuid()::text, '-', '') AS random $$"""


def _act(home: str) -> str:
    """Start a bulk operation on deliveries, and return its id. All deliveries must be in a state that allows the
    action. The service rejects those that have left it by the time it acts, and counts them as refused."""
    possible = " ".join(f"WHEN '{kind}' THEN {_array(ACTS_ON[kind])}" for kind in _ACTIONS)
    return f"""doorstep_act(action text, delivery_ids uuid[], reason text DEFAULT '') RETURNS uuid
LANGUAGE plpgsql {_AS_OWNER} AS $$
DECLARE
    caller record; wrong record; chosen uuid[]; entry bigint; started_at bigint := {_NOW};
    bulk uuid := {home}.doorstep_new_id(started_at); {_SCOPE};
    possible text[] := CASE action {possible} END;
BEGIN
    PERFORM {home}.doorstep_check_role('act on deliveries', {_array(roles_with(Permission.ACT))});
    SELECT * INTO caller FROM {home}.doorstep_identity();
    {_narrow("caller.org_key::text")};
    chosen := ARRAY(SELECT DISTINCT one FROM unnest(delivery_ids) AS one WHERE one IS NOT NULL);
    reason := coalesce(reason, '');
    IF possible IS NULL THEN
        RAISE invalid_parameter_value USING MESSAGE =
            format('the action must be {" or ".join(_ACTIONS)}, got %s', action);
    ELSIF cardinality(chosen) NOT BETWEEN 1 AND {IDS_MAX} THEN
        RAISE invalid_parameter_value USING MESSAGE =
            format('delivery_ids must name 1 to {IDS_MAX} deliveries, got %s', cardinality(chosen));
    ELSIF length(reason) > {REASON_CHARACTERS_MAX} THEN
        RAISE invalid_parameter_value USING MESSAGE =
            format('reason must have at most {REASON_CHARACTERS_MAX} characters, got %s', length(reason));
    ELSIF (SELECT count(*) FROM {home}.{bulks.name} AS one WHERE live AND one.org_id = caller.org_key) >= {LIVE_MAX} THEN
        RAISE program_limit_exceeded USING MESSAGE =
            'an organization has at most {LIVE_MAX} live bulk operations; wait for one to end, or name more deliveries'
            ' in one call';
    END IF;
    SELECT one AS delivery_id, delivery.state INTO wrong FROM unnest(chosen) AS one
        LEFT JOIN {home}.{deliveries.name} AS delivery
            ON delivery.org_id = caller.org_key AND delivery.uid = one AND delivery.deleted_at IS NULL
        WHERE delivery.state IS NULL OR delivery.state <> ALL (possible) ORDER BY one LIMIT 1;
    IF wrong.delivery_id IS NOT NULL THEN
        RAISE invalid_parameter_value USING MESSAGE = CASE WHEN wrong.state IS NULL
            THEN format('no delivery %s', wrong.delivery_id)
            ELSE format('delivery %s is %s; %s is possible in: %s', wrong.delivery_id, wrong.state, action,
                array_to_string(possible, ', ')) END;
    END IF;
    INSERT INTO {home}.{bulks.name} (uid, org_id, live, version, document) VALUES (bulk, caller.org_key, true, 0,
        jsonb_build_object('bulk_id', bulk, 'org_id', caller.org_id, 'kind', action,
            'selection', jsonb_build_object('delivery_ids', to_jsonb(chosen)), 'actor', caller.person, 'reason', reason,
            'created_at', started_at, 'updated_at', started_at, 'total', cardinality(chosen))::text);
    INSERT INTO {home}.{audit.name} (org_id, at, actor, action, subjects, result, reason)
        VALUES (caller.org_key, started_at, caller.person, format('bulk.%s.start', action), jsonb_build_array(bulk)::text,
            format('%s selected', cardinality(chosen)), reason) RETURNING id INTO entry;
    INSERT INTO {home}.doorstep_audit_subjects (audit_id, subject, org_id) VALUES (entry, bulk, caller.org_key);
    {_narrow("scope")};
    RETURN bulk;
END $$"""


def _send(home: str) -> str:
    """Post an event to the outbox. The service accepts it when the transaction has committed."""
    return f"""doorstep_send(event_type text, payload json, correlation_id text DEFAULT '', ordering_key text DEFAULT NULL)
RETURNS uuid LANGUAGE plpgsql {_AS_OWNER} AS $$
DECLARE caller record; posted_at bigint := {_NOW}; event uuid := {home}.doorstep_new_id(posted_at);
BEGIN
    PERFORM {home}.doorstep_check_role('send events', {_array(roles_with(Permission.SEND))});
    SELECT * INTO caller FROM {home}.doorstep_identity();
    INSERT INTO {home}.{outbox.name} (uid, org_uid, event_type, payload, options, created_at)
        VALUES (event, caller.org_id, event_type, convert_to(payload::text, 'UTF8'), jsonb_strip_nulls(
            jsonb_build_object('correlation_id', correlation_id, 'ordering_key', ordering_key))::text, posted_at);
    RETURN event;
END $$"""


def _event_status(home: str) -> str:
    """The status of one event, without its payload, for everyone who may read the status of events."""
    return f"""doorstep_event_status(event uuid)
RETURNS TABLE (event_id uuid, event_type text, status text, created_at timestamptz, failed_at timestamptz)
LANGUAGE plpgsql STABLE {_AS_OWNER} AS $$
DECLARE org bigint := {home}.doorstep_org_for({_array(roles_with(Permission.STATUS))}); {_SCOPE};
BEGIN
    {_narrow("coalesce(org::text, '')")};
    RETURN QUERY SELECT one.uid, one.event_type, one.status, to_timestamp(one.created_at / 1000000.0),
        CASE WHEN one.status = 'failed' THEN to_timestamp(one.ended_at / 1000000.0) END
    FROM {home}.{events.name} AS one WHERE one.org_id = org AND one.uid = event AND one.deleted_at IS NULL;
    {_narrow("scope")};
END $$"""


def _narrow(scope: str) -> str:
    """A statement that sets the scope of a function to an SQL expression."""
    return f"PERFORM set_config('{SCOPE}', {scope}, true)"


def _quoted(values: Iterable[str]) -> str:
    return ", ".join(f"'{value}'" for value in values)


def _array(values: Iterable[str]) -> str:
    return f"ARRAY[{_quoted(sorted(values))}]"
