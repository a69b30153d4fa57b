"""R11.2: people with logins of their own in the database read only what their organization and their role allow, and act
only through functions. The attacks try to get around that; the controls show that a hole would be noticed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from uuid import UUID, uuid4

import psycopg
import pytest

from doorstep.clock import SECOND
from doorstep.model.record import created_at, short_id_ranges
from doorstep.stores.sql.postgres.database_users import READABLE
from doorstep.stores.sql.schema import metadata
from tests.support.builders import NOW
from tests.support.database_users import DIGEST, GATEWAY, GROUP, LOGINS, SEALED, STRANGER, TOKENS, Scene, people
from tests.support.postgres_server import PostgresServer

READERS = ("adam", "ada", "vera")
FOREIGN = ("bolt-payload", "bolt-inbox", "bolt-reason", "bolt-shop", "bolt-correlation", "bolt.paid", "bolt-key")
"""Texts that only the rows of Bolt contain. The attackers belong to Acme."""
SECRET = (SEALED.hex(), SEALED.decode(), DIGEST.hex(), DIGEST.decode(), "YS1zZWFsZWQtc2VjcmV0", "dsk_")
"""Parts of an encrypted secret and of the digest of an API key, as text, as bytea, and as base64."""


@pytest.fixture(scope="module")
def scene(postgres_server: PostgresServer) -> Iterator[Scene]:
    with people(postgres_server, "people") as made:
        yield made


@pytest.fixture
def own_scene(postgres_server: PostgresServer) -> Iterator[Scene]:
    """A scene that a test may change."""
    with people(postgres_server, "own_people") as made:
        yield made


# -- reading -----------------------------------------------------------------------------------------------

VISIBLE = "SELECT (SELECT count(*) FROM doorstep_deliveries), (SELECT count(*) FROM doorstep_events)"


@pytest.mark.parametrize("login", READERS)
def test_people_who_may_look_see_all_of_their_organization_and_nothing_else(scene: Scene, login: str) -> None:
    assert scene.sql(login, VISIBLE) == [(3, 4)]
    assert scene.sql(login, "SELECT DISTINCT uid FROM doorstep_orgs") == [(scene.acme.org_id,)]
    payloads = scene.sql(login, "SELECT convert_from(payload, 'UTF8') FROM doorstep_events")
    assert {row[0] for row in payloads} == {'{"of": "acme-payload"}', '{"of": "acme-inbox"}'}


def test_each_organization_has_its_own_view(scene: Scene) -> None:
    assert {row[0] for row in scene.sql("bob", "SELECT uid FROM doorstep_deliveries")} == {
        *scene.bolt.dead,
        *scene.bolt.waiting,
    }


def test_a_consumer_reads_the_inbox_with_its_payloads_and_nothing_else(scene: Scene) -> None:
    assert scene.sql("cora", "SELECT uid, payload FROM doorstep_events") == [
        (scene.acme.inbox, b'{"of": "acme-inbox"}')
    ]
    for table in READABLE.keys() - {metadata.tables["doorstep_events"]}:
        assert scene.sql("cora", f"SELECT count(*) FROM {table.name}") == [(0,)], table.name


@pytest.mark.parametrize("login", ["pat", STRANGER, GATEWAY, TOKENS])
def test_publishers_and_those_who_name_nobody_read_no_row_at_all(scene: Scene, login: str) -> None:
    counts = {table.name: scene.sql(login, f"SELECT count(*) FROM {table.name}")[0][0] for table in READABLE}
    assert counts == dict.fromkeys(counts, 0)


@pytest.mark.parametrize("login", [*READERS, "cora", "pat"])
def test_everyone_reads_the_status_of_an_event_of_their_organization(scene: Scene, login: str) -> None:
    def status(event_id: UUID) -> list[tuple[object, ...]]:
        return scene.sql(login, f"SELECT event_type, status FROM doorstep_event_status('{event_id}')")

    assert status(scene.acme.events[0]) == [("acme.paid", "failed")]
    assert status(scene.bolt.events[0]) == status(uuid4()) == []


def test_the_role_may_read_the_listed_columns_and_has_no_other_privilege_on_any_table(scene: Scene) -> None:
    found = scene.as_superuser(
        "SELECT table_name, column_name, string_agg(privilege_type, ',') FROM information_schema.column_privileges"
        f" WHERE grantee IN ('{GROUP}', 'PUBLIC') AND table_name LIKE 'doorstep\\_%' GROUP BY 1, 2"
    )
    listed = {
        (table.name, column.name)
        for table, hidden in READABLE.items()
        for column in table.c
        if column.name not in hidden
    }
    assert {(table, column) for table, column, _ in found} == listed
    assert {privilege for _, _, privilege in found} == {"SELECT"}


def test_no_readable_column_contains_a_secret_or_part_of_a_key(scene: Scene) -> None:
    """Reads everything that the role may read, as the superuser, in case the sealed bytes are in another row."""
    granted = {
        table: ", ".join(f'"{column.name}"::text' for column in table.c if column.name not in hidden)
        for table, hidden in READABLE.items()
    }
    shown = {
        table.name: scene.as_superuser(f"SELECT {columns} FROM {table.name}") for table, columns in granted.items()
    }
    assert {name: text for name, rows in shown.items() for text in SECRET if text in str(rows)} == {}
    hidden = scene.as_superuser("SELECT document FROM doorstep_endpoints") + scene.as_superuser(
        "SELECT prefix FROM doorstep_keys"
    )
    assert all(text in str(hidden) for text in ("YS1zZWFsZWQtc2VjcmV0", "dsk_"))  # the search would find them


# -- who somebody is -----------------------------------------------------------------------------------------


def test_a_gateway_acts_for_whom_its_settings_name_until_the_transaction_ends(scene: Scene) -> None:
    with scene.connect(GATEWAY) as connection:
        for tenant in (scene.acme, scene.bolt):
            with connection.transaction():
                for name, value in (("org_id", tenant.org_id), ("role", "viewer")):
                    connection.execute("SELECT set_config(%s, %s, true)", (f"doorstep.{name}", str(value)))
                seen = connection.execute("SELECT uid FROM doorstep_deliveries").fetchall()
                assert {row[0] for row in seen} == {*tenant.dead, *tenant.waiting}
            assert connection.execute("SELECT count(*) FROM doorstep_deliveries").fetchone() == (0,)


CLAIMS = '{{"sub": "u-1", "role": "authenticated", "doorstep": {{"org_id": "{org}", "role": "{role}"}}}}'


@pytest.mark.parametrize(
    ("claims", "visible"),
    [
        (CLAIMS, 3),
        ("", 0),
        ("{{}}", 0),
        ("[]", 0),
        ('{{"doorstep": {{"org_id": "{org}"}}}}', 0),
        ('{{"doorstep": {{"role": "{role}"}}}}', 0),
        ('{{"org_id": "{org}", "role": "{role}"}}', 0),
        (CLAIMS.replace("{role}", "superuser"), 0),
        (CLAIMS.replace("{role}", "publisher"), 0),
        (CLAIMS.replace("{org}", str(uuid4())), 0),
    ],
)
def test_a_token_acts_for_whom_its_claim_names(scene: Scene, claims: str, visible: int) -> None:
    said = claims.format(org=scene.acme.org_id, role="viewer")
    assert scene.sql(
        TOKENS, f"SELECT set_config('request.jwt.claims', '{said}', true)", "SELECT count(*) FROM doorstep_deliveries"
    ) == [(visible,)]


def test_a_deleted_organization_and_the_one_of_the_service_are_closed(own_scene: Scene) -> None:
    own_scene.as_superuser(
        f"UPDATE doorstep_orgs SET document = jsonb_set(document::jsonb, '{{deleted_at}}', '{NOW}')::text"
        f" WHERE uid = '{own_scene.acme.org_id}'"
    )
    assert own_scene.sql("ada", VISIBLE) == [(0, 0)]
    own_scene.as_superuser(
        "UPDATE doorstep_orgs SET uid = '00000000-0000-7000-8000-000000000002'"
        f" WHERE uid = '{own_scene.bolt.org_id}';"
        " UPDATE doorstep_logins SET org_id = '00000000-0000-7000-8000-000000000002' WHERE login = 'bob'"
    )
    assert own_scene.sql("bob", VISIBLE) == [(0, 0)]


def test_a_login_entry_that_says_too_little_or_too_much_is_refused(own_scene: Scene) -> None:
    org = own_scene.acme.org_id
    for values in (
        "'eve', 'login', NULL, NULL",
        f"'eve', 'login', '{org}', NULL",
        "'eve', 'login', NULL, 'admin'",
        f"'eve', 'login', '{org}', 'root'",
        f"'eve', 'settings', '{org}', 'viewer'",
        "'eve', 'anything', NULL, NULL",
    ):
        with pytest.raises(psycopg.errors.CheckViolation), own_scene.connect("postgres") as connection:
            connection.execute(f"INSERT INTO doorstep_logins VALUES ({values})")


# -- attacks -------------------------------------------------------------------------------------------------

_BECOME_BOLT = (
    "SELECT set_config('doorstep.org', '*', false), set_config('doorstep.org_id', '{bolt}', false),"
    " set_config('doorstep.role', 'admin', false), set_config('doorstep.person', 'bob', false),"
    " set_config('request.jwt.claims', '{claims}', false)"
)
_EVERYTHING = (
    "SELECT * FROM (SELECT to_jsonb(d) FROM doorstep_deliveries d UNION ALL SELECT to_jsonb(h) FROM doorstep_history h) x",
    "SELECT convert_from(payload, 'UTF8'), event_type, correlation_id, uid FROM doorstep_events",
    "SELECT name, uid FROM doorstep_endpoints",
    "SELECT uid FROM doorstep_orgs",
)
_TRAP = (
    "CREATE FUNCTION pg_temp.trap(anyelement) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS"
    " $$ BEGIN RAISE NOTICE 'seen %', $1; RETURN true; END $$"
)

ATTACKS: dict[str, tuple[str, ...]] = {
    "the scope of the service": ("SET doorstep.org = '*'", *_EVERYTHING),
    "the scope of the service, for the transaction": ("SET LOCAL doorstep.org = '2'", *_EVERYTHING),
    "every setting at once": (_BECOME_BOLT, *_EVERYTHING),
    "the owner's role": ("SET ROLE doorstep", *_EVERYTHING),
    "another person's role": ("SET ROLE bob", *_EVERYTHING),
    "another person's session": ("SET SESSION AUTHORIZATION bob", *_EVERYTHING),
    "the group's role": ("SET ROLE doorstep_user", _BECOME_BOLT, *_EVERYTHING),
    "row security off": ("SET row_security = off", *_EVERYTHING),
    "policies off": ("ALTER TABLE doorstep_deliveries DISABLE ROW LEVEL SECURITY", *_EVERYTHING),
    "a policy of one's own": ("CREATE POLICY mine ON doorstep_deliveries USING (true)", *_EVERYTHING),
    "a new grant": ("GRANT ALL ON doorstep_keys TO PUBLIC", "SELECT * FROM doorstep_keys"),
    "another identity function": (
        "CREATE OR REPLACE FUNCTION public.doorstep_org_for(roles text[]) RETURNS bigint LANGUAGE sql AS 'SELECT 2'",
        "ALTER FUNCTION public.doorstep_identity() SECURITY INVOKER",
        "DROP FUNCTION public.doorstep_identity() CASCADE",
        *_EVERYTHING,
    ),
    "an entry of one's own": ("INSERT INTO doorstep_logins VALUES ('ada2', 'settings')",),
    "another organization in one's entry": ("UPDATE doorstep_logins SET org_id = '{bolt}'", *_EVERYTHING),
    "the logins": ("SELECT * FROM doorstep_logins",),
    "the keys": ("SELECT * FROM doorstep_keys",),
    "the sealed secrets": ("SELECT document FROM doorstep_endpoints",),
    "the sealed secrets in a whole row": ("SELECT e FROM doorstep_endpoints e", "SELECT to_jsonb(e) FROM doorstep_endpoints e"),
    "the outbox": ("SELECT * FROM doorstep_outbox",),
    "the searchable values": ("SELECT * FROM doorstep_search_values",),
    "the workers": ("SELECT * FROM doorstep_workers",),
    "a definer's function of one's own": (
        "CREATE FUNCTION pg_temp.all_of_it() RETURNS SETOF text LANGUAGE sql SECURITY DEFINER AS $$ SELECT d::text FROM (SELECT reason, uid FROM doorstep_deliveries) d $$",
        _BECOME_BOLT,
        "SELECT pg_temp.all_of_it()",
    ),
    "a view of one's own": (
        "CREATE TEMP VIEW peek AS SELECT reason, uid FROM doorstep_deliveries",
        _BECOME_BOLT,
        "SELECT * FROM peek",
    ),
    "a materialized copy": (
        _BECOME_BOLT,
        "CREATE TEMP TABLE copied AS SELECT reason, uid FROM doorstep_deliveries",
        "SELECT * FROM copied",
    ),
    "a function that sees rows before the policy": (
        _TRAP,
        _BECOME_BOLT,
        "SELECT count(*) FROM doorstep_events WHERE pg_temp.trap(event_type)",
        "SELECT count(*) FROM doorstep_deliveries WHERE pg_temp.trap(reason)",
        "SELECT count(*) FROM doorstep_endpoints WHERE pg_temp.trap(name)",
    ),
    "an error that quotes a row": (
        _BECOME_BOLT,
        "SELECT count(*) FROM doorstep_deliveries WHERE reason::int > 0",
        "SELECT convert_from(payload, 'UTF8')::int FROM doorstep_events WHERE event_type LIKE 'bolt%'",
        "SELECT 1 / (CASE WHEN reason LIKE 'bolt%' THEN 0 ELSE 1 END) FROM doorstep_deliveries",
    ),
    "a subquery with a known key": (
        _BECOME_BOLT,
        "SELECT (SELECT d.reason FROM doorstep_deliveries d WHERE d.uid = '{bolt_delivery}')",
        "SELECT EXISTS (SELECT FROM doorstep_deliveries WHERE org_id = 2)::text || '-bolt'",
        "SELECT d.reason FROM generate_series(1, 50) n JOIN doorstep_deliveries d ON d.id = n",
    ),
    "COPY of a table": (_BECOME_BOLT, "COPY doorstep_deliveries (reason, uid) TO STDOUT"),
    "COPY of a query": (_BECOME_BOLT, "COPY (SELECT reason, uid FROM doorstep_deliveries) TO STDOUT"),
    "COPY into a table": ("COPY doorstep_logins FROM STDIN",),
    "a program": ("COPY doorstep_deliveries (reason) TO PROGRAM 'cat'",),
    "a prepared statement": (
        "PREPARE peek AS SELECT reason, uid FROM doorstep_deliveries",
        "EXECUTE peek",
        _BECOME_BOLT,
        "SET LOCAL plan_cache_mode = force_generic_plan",
        "EXECUTE peek",
    ),
    "a cursor": (
        "DECLARE peek CURSOR FOR SELECT reason, uid FROM doorstep_deliveries",
        _BECOME_BOLT,
        "FETCH ALL FROM peek",
    ),
    "the statistics": (
        "SELECT most_common_vals::text, histogram_bounds::text FROM pg_stats WHERE tablename LIKE 'doorstep%'",
        "SELECT * FROM pg_statistic",
    ),
    "the sequences": (
        "SELECT last_value FROM doorstep_deliveries_id_seq",
        "SELECT nextval('doorstep_deliveries_id_seq')",
        "SELECT setval('doorstep_deliveries_id_seq', 1)",
    ),
    "a foreign key": (
        "CREATE TEMP TABLE probe (id bigint REFERENCES doorstep_endpoints)",
        "CREATE TABLE probe (id bigint REFERENCES doorstep_endpoints)",
    ),
    "a trigger": (
        "CREATE FUNCTION pg_temp.spy() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$",
        "CREATE TRIGGER spy BEFORE INSERT ON doorstep_bulks FOR EACH ROW EXECUTE FUNCTION pg_temp.spy()",
    ),
    "a rule": ("CREATE RULE spy AS ON UPDATE TO doorstep_bulks DO ALSO SELECT 1",),
    "an operator in the way of a function": (
        "CREATE FUNCTION pg_temp.replace(text, text, text) RETURNS text LANGUAGE sql AS $$ SELECT repeat('0', 64) $$",
        "CREATE TEMP TABLE doorstep_logins (login text, identity text, org_id uuid, role text)",
        "INSERT INTO pg_temp.doorstep_logins VALUES ('ada', 'login', '{bolt}', 'admin')",
        "CREATE TEMP TABLE doorstep_orgs (id bigint, uid uuid, document text)",
        "INSERT INTO pg_temp.doorstep_orgs SELECT 2, uid, '{{}}' FROM public.doorstep_orgs",
        "SET search_path = pg_temp, public",
        *_EVERYTHING,
        "SELECT doorstep_act('retry', ARRAY['{bolt_delivery}'::uuid])",
    ),
    "the internals of the functions": (
        "SELECT doorstep_check_role('act', ARRAY['viewer'])",
        "SELECT doorstep_new_id(1)",
        "SELECT public.doorstep_org_for(ARRAY['admin']), public.doorstep_identity()",
    ),
    "another organization's event by its id": ("SELECT * FROM doorstep_event_status('{bolt_event}')",),
    "another organization's delivery by its id": ("SELECT doorstep_act('retry', ARRAY['{bolt_delivery}'::uuid])",),
    "one's own and another's together": (
        "SELECT doorstep_act('delete', ARRAY['{acme_delivery}', '{bolt_delivery}']::uuid[])",
    ),
    "SQL in the arguments": (
        "SELECT doorstep_act('retry''; SET ROLE doorstep; --', ARRAY['{acme_delivery}'::uuid])",
        "SELECT doorstep_act('retry', ARRAY['{acme_waiting}'::uuid], repeat('x', 501))",
    ),
    "parallel workers": (
        _BECOME_BOLT,
        "SET LOCAL debug_parallel_query = on",
        "SET LOCAL parallel_setup_cost = 0",
        *_EVERYTHING,
    ),
}  # fmt: skip
WRITES = tuple(
    statement
    for table in metadata.tables
    for statement in (f"UPDATE {table} SET org_id = org_id", f"DELETE FROM {table}", f"TRUNCATE {table}")
) + (
    "INSERT INTO doorstep_outbox (uid, org_uid, event_type, payload, options, created_at) VALUES ('{bolt}', '{bolt}', '', '', '', 1)",
    "INSERT INTO doorstep_audit (org_id, at, actor, action, subjects, result, reason) VALUES (1, 1, 'bob', '', '', '', '')",
    "UPDATE doorstep_deliveries SET state = 'resolved' WHERE state = 'dead'",
    "SELECT 1 FROM doorstep_deliveries FOR UPDATE",
    "LOCK TABLE doorstep_deliveries IN SHARE MODE",
)


def _attack(scene: Scene, login: str, statements: tuple[str, ...]) -> str:
    """Run the statements, each in a savepoint. Returns everything that the attacker gets to see: rows, and every field
    of errors and notices."""
    values = {
        "bolt": scene.bolt.org_id,
        "bolt_delivery": scene.bolt.dead[0],
        "bolt_event": scene.bolt.events[0],
        "acme_delivery": scene.acme.dead[0],
        "acme_waiting": scene.acme.waiting[0],
        "claims": CLAIMS.format(org=scene.bolt.org_id, role="admin"),
    }
    seen: list[str] = []
    with scene.connect(login) as connection:
        connection.add_notice_handler(lambda notice: seen.append(_told(notice)))
        with connection.transaction(force_rollback=True):
            for statement in statements:
                try:
                    with connection.transaction(), connection.cursor() as cursor:
                        seen.append(_result(cursor, statement.format(**values)))
                except psycopg.Error as error:
                    seen.append(_told(error.diag))
    return "\n".join(seen)


def _result(cursor: psycopg.Cursor[object], statement: str) -> str:
    if statement.startswith("COPY") and "TO STDOUT" in statement:
        with cursor.copy(statement) as rows:
            return b"".join(bytes(part) for part in rows).decode()
    cursor.execute(statement)
    asked_for = ("set_config", "AS $$")
    return str(cursor.fetchall()) if cursor.description and not any(one in statement for one in asked_for) else ""


def _told(said: psycopg.errors.Diagnostic) -> str:
    """What an error or a notice says, but not the statement that it quotes."""
    fields = (said.message_primary, said.message_detail, said.message_hint, said.constraint_name)
    return " ".join(filter(None, fields))


def _leaks(scene: Scene, login: str = "ada") -> dict[str, str]:
    """The attacks that show something of Bolt or a secret, with what they show."""
    asked = "bolt%"  # the attacker's own words
    found = {}
    for name, statements in ATTACKS.items():
        seen = _attack(scene, login, statements).replace(asked, "")
        leaked = [text for text in (*FOREIGN, *SECRET[:-1], "bolt-org", "true-bolt") if text in seen]
        if leaked or str(scene.bolt.dead[1]) in seen:
            found[name] = seen
    return found


@pytest.mark.parametrize("login", ["ada", "vera", "pat", STRANGER])
def test_no_attack_shows_anything_of_another_organization_or_a_secret(scene: Scene, login: str) -> None:
    assert _leaks(scene, login) == {}


@pytest.mark.parametrize("login", LOGINS)
def test_no_attack_and_no_statement_writes_to_a_table(scene: Scene, login: str) -> None:
    before = _contents(scene)
    with scene.connect(login) as connection:
        for statement in (*(one for attack in ATTACKS.values() for one in attack), *WRITES):
            if not statement.startswith(("UPDATE", "DELETE", "TRUNCATE", "INSERT", "LOCK")):
                continue
            if "pg_temp" in statement:
                continue
            with pytest.raises(psycopg.Error):
                connection.execute(statement.format(bolt=scene.bolt.org_id))
    assert _contents(scene) == before


def _contents(scene: Scene) -> list[list[str]]:
    digest = "SELECT '{0}', count(*), md5(string_agg(one::text, ',' ORDER BY one::text)) FROM {0} one"
    tables = (*metadata.tables, "doorstep_logins")
    return scene.as_superuser(" UNION ALL ".join(digest.format(name) for name in tables))


def test_control_without_the_restrictive_policies_the_attacks_are_noticed(own_scene: Scene) -> None:
    for table in READABLE:
        own_scene.as_superuser(f"DROP POLICY {table.name}_limited_for_users ON {table.name}")
    assert _leaks(own_scene).keys() == {
        "the scope of the service",
        "the scope of the service, for the transaction",
        "every setting at once",
        "the group's role",
        "a definer's function of one's own",
        "a view of one's own",
        "a materialized copy",
        "a function that sees rows before the policy",
        "an error that quotes a row",
        "a subquery with a known key",
        "COPY of a table",
        "COPY of a query",
        "a prepared statement",
        "a cursor",
        "parallel workers",
    }


def test_control_an_identity_that_trusts_settings_is_noticed(own_scene: Scene) -> None:
    own_scene.as_superuser(
        "UPDATE doorstep_logins SET identity = 'settings', org_id = NULL, role = NULL WHERE login = 'ada'"
    )
    assert {"every setting at once", "COPY of a query"} <= _leaks(own_scene).keys()


def test_control_a_readable_document_is_noticed(own_scene: Scene) -> None:
    own_scene.as_superuser(f"GRANT SELECT ON doorstep_endpoints TO {GROUP}")
    assert _leaks(own_scene).keys() == {"the sealed secrets", "the sealed secrets in a whole row"}


def test_a_careless_grant_of_all_privileges_opens_no_row_of_another_organization_and_writes_nothing(
    own_scene: Scene,
) -> None:
    """TRUNCATE is not subject to row-level security, and neither are the documents of one's own endpoints. The table
    of variables belongs to no organization and has no policies."""
    own_scene.as_superuser(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {GROUP}")
    before = _contents(own_scene)
    leaks = _leaks(own_scene)
    assert leaks.keys() == {"the sealed secrets", "the sealed secrets in a whole row"}
    assert not any(text in str(leaks) for text in FOREIGN)
    writes = [
        one for one in WRITES if one.startswith(("UPDATE", "DELETE", "INSERT")) and "doorstep_variables" not in one
    ]
    with own_scene.connect("ada") as connection:
        connection.execute("SET doorstep.org = '*'")
        for statement in writes:
            with suppress(psycopg.errors.InsufficientPrivilege, psycopg.errors.UndefinedColumn):
                assert connection.execute(statement.format(bolt=own_scene.bolt.org_id)).rowcount == 0, statement
        for table in ("doorstep_keys", "doorstep_outbox", "doorstep_logins"):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
    assert _contents(own_scene) == before


def test_estimates_are_the_only_thing_that_explain_tells_of_others(own_scene: Scene) -> None:
    """PostgreSQL estimates from the statistics of all rows. The page says so; row values never appear."""
    own_scene.as_superuser("ANALYZE")
    statements = (
        "EXPLAIN (ANALYZE, VERBOSE, BUFFERS) SELECT * FROM (SELECT uid, reason FROM doorstep_deliveries) d",
        "EXPLAIN SELECT uid FROM doorstep_events WHERE event_type = 'other'",
    )
    assert not any(text in _attack(own_scene, "ada", statements) for text in FOREIGN)
    assert own_scene.sql("ada", "SELECT count(*) FROM pg_stats WHERE tablename LIKE 'doorstep%'") == [(0,)]


# -- acting --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("login", ["vera", "cora", "pat", STRANGER, GATEWAY, TOKENS])
def test_those_who_may_not_act_cannot_act(scene: Scene, login: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        scene.act(login, "retry", scene.acme.dead)


@pytest.mark.parametrize("login", ["vera", STRANGER, GATEWAY, TOKENS])
def test_those_who_may_not_send_cannot_send(scene: Scene, login: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        scene.sql(login, "SELECT doorstep_send('order.paid', '{}')")


def test_an_act_names_the_person_in_the_audit_log_and_is_undone_with_its_transaction(own_scene: Scene) -> None:
    bulk_id = own_scene.act("ada", "resolve", own_scene.acme.dead, "paid by hand")
    entries = "SELECT actor, action, reason, subjects::json ->> 0 FROM doorstep_audit"
    assert own_scene.sql("ada", entries) == [("ada", "bulk.resolve.start", "paid by hand", str(bulk_id))]
    with own_scene.connect("adam") as connection, connection.transaction(force_rollback=True):
        connection.execute("SELECT doorstep_act('delete', %s)", (own_scene.acme.dead,))
        assert len(connection.execute(entries).fetchall()) == 2
    assert len(own_scene.sql("ada", entries)) == 1


@pytest.mark.parametrize("person", ["", "dsk_acme", "doorstep"])
def test_a_gateway_cannot_act_without_a_person_or_as_a_key_or_the_service(scene: Scene, person: str) -> None:
    settings = {"org_id": scene.acme.org_id, "role": "operator", "person": person}
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="name of the person"):
        scene.sql(
            GATEWAY,
            *(f"SELECT set_config('doorstep.{name}', '{value}', true)" for name, value in settings.items()),
            f"SELECT doorstep_act('resolve', ARRAY['{scene.acme.dead[0]}'::uuid])",
        )


def test_an_act_on_an_unknown_delivery_says_the_same_as_one_on_another_organizations(scene: Scene) -> None:
    unknown = uuid4()
    said = []
    for delivery_id in (unknown, scene.bolt.dead[0]):
        with pytest.raises(psycopg.errors.InvalidParameterValue) as error:
            scene.act("ada", "retry", [delivery_id])
        said.append(str(error.value).replace(str(delivery_id), "…"))
    assert said[0] == said[1] and said[0].startswith("no delivery …")


@pytest.mark.parametrize(
    ("action", "of", "sentence"),
    [
        ("skip", "dead", "is dead; skip is possible in: pending"),
        ("resolve", "waiting", "is pending; resolve is possible in: archived, dead"),
        ("delete", "waiting", "is pending; delete is possible in: archived, dead"),
        ("shred", "dead", "the action must be retry or skip or resolve or delete, got shred"),
        ("cancel", "waiting", "the action must be retry or skip or resolve or delete, got cancel"),
    ],
)
def test_an_act_that_the_state_does_not_allow_is_refused(scene: Scene, action: str, of: str, sentence: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=sentence):
        scene.act("ada", action, getattr(scene.acme, of))


def test_an_act_names_some_deliveries_and_not_too_many(scene: Scene) -> None:
    for delivery_ids in ([], [uuid4() for _ in range(1_001)]):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="must name 1 to 1000 deliveries"):
            scene.act("ada", "retry", delivery_ids)


def test_people_cannot_start_more_operations_than_the_service_allows(own_scene: Scene) -> None:
    for _ in range(100):
        own_scene.sql("ada", f"SELECT doorstep_act('retry', ARRAY['{own_scene.acme.dead[0]}'::uuid])")
    with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="at most 100 live bulk operations"):
        own_scene.act("ada", "retry", own_scene.acme.dead)
    own_scene.act("bob", "retry", own_scene.bolt.dead)


def test_the_functions_leave_the_scope_of_the_session_as_it_was(scene: Scene) -> None:
    scope = "SELECT coalesce(current_setting('doorstep.org', true), '')"
    act = f"SELECT doorstep_act('resolve', ARRAY['{scene.acme.dead[0]}'::uuid])"
    calls = (act, "SELECT doorstep_event_status(gen_random_uuid())", "SELECT doorstep_send('a', '1')", VISIBLE)
    with scene.connect("ada") as connection, connection.transaction(force_rollback=True):
        for before in ("", "7"):
            connection.execute("SELECT set_config('doorstep.org', %s, true)", (before,))
            for call in calls:
                connection.execute(call)
                assert connection.execute(scope).fetchone() == (before,), call


def test_ids_made_in_the_database_are_like_those_of_the_service(scene: Scene) -> None:
    for at in (NOW, NOW + 1, NOW + 999, NOW + 12_345_678, 2**47 * 1_000):
        made = UUID(scene.as_superuser(f"SELECT doorstep_new_id({at})")[0][0])
        assert created_at(made) == at and made.version == 7 and made.variant == "specified in RFC 4122"
        ranges = short_id_ranges(made.int & 0xFFFF_FFFF, at + SECOND, 1)
        assert any(low <= made < high for low, high in ranges)
