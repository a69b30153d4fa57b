"""`doorstep migrate --grant-users`: whom it refuses, what it leaves alone, and that it can be repeated and undone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from doorstep.errors import ConfigError
from doorstep.stores.open import grant_users, store_from_url
from doorstep.stores.sql.postgres import PostgresStore
from tests.integration.stores.test_postgres_plans import HOT
from tests.support.database_users import GROUP, Scene, create_roles, people, run
from tests.support.postgres_server import OWNER, PostgresServer
from tests.unit.stores.explaining import plan_of


@pytest.fixture
def scene(postgres_server: PostgresServer) -> Iterator[Scene]:
    with people(postgres_server, "granted") as made:
        yield made


async def _hot_plans(scene: Scene) -> dict[str, Any]:
    store = PostgresStore(scene.server.url(scene.database))
    await store.open()
    try:
        async with store._hot.connection() as connection:
            return {name: await plan_of(connection, sql, *arguments) for name, (sql, arguments) in HOT.items()}
    finally:
        await store.close()


def test_the_plans_of_the_service_are_the_same_with_and_without_users(scene: Scene) -> None:
    scene.as_superuser("ANALYZE")
    with_users = run(_hot_plans(scene))
    scene.as_superuser(f"GRANT {GROUP} TO {OWNER}")
    assert run(_hot_plans(scene)) != with_users  # so the comparison would notice a policy that applies to the service
    scene.as_superuser(f"REVOKE {GROUP} FROM {OWNER}; DROP OWNED BY {GROUP}")
    assert scene.as_superuser("SELECT count(*) FROM pg_policies WHERE policyname LIKE '%users'") == [["0"]]
    assert run(_hot_plans(scene)) == with_users
    assert "doorstep_deliveries_pending" in json.dumps(with_users["claim"])


def test_granting_again_renews_everything_and_keeps_the_entries(scene: Scene) -> None:
    policies = "SELECT tablename, policyname, qual FROM pg_policies ORDER BY 1, 2"
    entries = "SELECT * FROM doorstep_logins ORDER BY 1"
    before = scene.as_superuser(policies), scene.as_superuser(entries)
    scene.as_superuser("DROP POLICY doorstep_events_limited_for_users ON doorstep_events")
    scene.as_superuser(f"GRANT SELECT ON doorstep_keys TO {GROUP}")
    scene.grant()
    assert (scene.as_superuser(policies), scene.as_superuser(entries)) == before
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        scene.sql("ada", "SELECT * FROM doorstep_keys")


def test_drop_owned_takes_all_access_away(scene: Scene) -> None:
    scene.as_superuser(f"DROP OWNED BY {GROUP}")
    for statement in ("SELECT 1 FROM doorstep_events", "SELECT doorstep_send('a', '1')", "SELECT doorstep_identity()"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            scene.sql("ada", statement)


async def test_it_works_for_tables_in_a_schema_of_their_own(postgres_server: PostgresServer) -> None:
    postgres_server.create_database("shared")
    create_roles(postgres_server)
    try:
        url = postgres_server.url("shared") + "?schema=own_place"
        store = store_from_url(url)
        await store.migrate()
        await grant_users(url, GROUP)
        with psycopg.connect(postgres_server.url("shared", role="ada")) as connection:
            assert connection.execute("SELECT count(*) FROM own_place.doorstep_events").fetchone() == (0,)
            assert connection.execute("SELECT person FROM own_place.doorstep_identity()").fetchone() == (None,)
    finally:
        postgres_server.drop_database("shared")


@pytest.mark.parametrize(
    ("setup", "role", "undo", "sentence"),
    [
        ("SELECT 1", "nobody_there", "SELECT 1", "no database role nobody_there; create it: CREATE ROLE"),
        ("SELECT 1", "postgres", "SELECT 1", "bypasses row-level security"),
        (f"CREATE ROLE deputy IN ROLE {OWNER}", "deputy", "DROP ROLE deputy", "may act as the owner of the tables"),
        (f"CREATE ROLE club ROLE {OWNER}", "club", "DROP ROLE club", "would hide rows from Doorstep"),
    ],
)
def test_a_role_that_would_open_or_close_too_much_is_refused(
    scene: Scene, setup: str, role: str, undo: str, sentence: str
) -> None:
    scene.as_superuser(setup)
    try:
        with pytest.raises(ConfigError, match=sentence):
            run(grant_users(scene.server.url(scene.database), role))
    finally:
        scene.as_superuser(undo)


def test_a_second_role_is_refused_and_the_first_stays_restricted(scene: Scene) -> None:
    scene.as_superuser("CREATE ROLE second")
    try:
        with pytest.raises(ConfigError, match=f"the role {GROUP} has this access already"):
            run(grant_users(scene.server.url(scene.database), "second"))
        assert scene.sql("ada", "SET LOCAL doorstep.org = '*'", "SELECT count(*) FROM doorstep_deliveries") == [(3,)]
        scene.as_superuser(f"DROP OWNED BY {GROUP}")
        run(grant_users(scene.server.url(scene.database), "second"))
    finally:
        scene.as_superuser("DROP OWNED BY second; DROP ROLE second")


@pytest.mark.parametrize(
    ("privilege", "table"),
    [
        ("SELECT", "doorstep_keys"),
        ("SELECT (document)", "doorstep_endpoints"),
        ("UPDATE (state)", "doorstep_deliveries"),
        ("TRUNCATE", "doorstep_events"),
        ("INSERT", "doorstep_logins"),
    ],
)
def test_privileges_that_the_role_has_from_elsewhere_are_refused(scene: Scene, privilege: str, table: str) -> None:
    scene.as_superuser(f"GRANT {privilege} ON {table} TO PUBLIC")
    with pytest.raises(ConfigError, match=f"more privileges than it should have on {table};"):
        scene.grant()


def test_sqlite_has_no_users_to_grant_anything(tmp_path: object) -> None:
    with pytest.raises(ConfigError, match="only PostgreSQL has roles"):
        run(grant_users(f"sqlite:///{tmp_path}/doorstep.db", GROUP))
