"""R11.2: row-level security keeps organizations apart, even if a query forgets its WHERE."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from doorstep.stores.sql.postgres import PostgresStore
from doorstep.stores.sql.schema import TENANT_TABLES
from tests.support.builders import NOW, a_submission, an_endpoint, an_org
from tests.support.postgres_server import PostgresServer
from tests.support.shortcuts import put, routing_versions

FORGETFUL = "SELECT org_id FROM doorstep_deliveries"


@pytest.fixture
async def connection(postgres_store: PostgresStore, postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A direct connection as the owner of the tables; organizations 1 and 2 have one delivery each."""
    for _ in range(2):
        org = an_org()
        await put(postgres_store, org)
        endpoint = an_endpoint(org.org_id)
        await put(postgres_store, endpoint, 0)
        submission = a_submission(org.org_id, [endpoint.endpoint_id], key="k")
        await postgres_store.accept([submission], await routing_versions(postgres_store), NOW)
    opened = await asyncpg.connect(postgres_url)
    yield opened
    await opened.close()


async def _act_for(connection: asyncpg.Connection, scope: str) -> None:
    await connection.execute("SELECT set_config('doorstep.org', $1, false)", scope)


async def test_a_query_without_any_where_sees_only_its_own_organization(connection: asyncpg.Connection) -> None:
    for org in (1, 2):
        await _act_for(connection, str(org))
        assert [row[0] for row in await connection.fetch(FORGETFUL)] == [org]


@pytest.mark.parametrize("scope", [None, "", "0", "nonsense"])
async def test_a_connection_that_names_no_organization_sees_nothing(
    connection: asyncpg.Connection, scope: str | None
) -> None:
    if scope is not None:
        await _act_for(connection, scope)
    assert await connection.fetch(FORGETFUL) == []
    assert await connection.fetch("SELECT id FROM doorstep_orgs") == []


async def test_the_engine_sees_every_organization(connection: asyncpg.Connection) -> None:
    await _act_for(connection, "*")
    assert {row[0] for row in await connection.fetch(FORGETFUL)} == {1, 2}


async def test_an_update_or_delete_without_any_where_touches_only_its_own_organization(
    connection: asyncpg.Connection,
) -> None:
    await _act_for(connection, "1")
    assert await connection.execute("UPDATE doorstep_deliveries SET retries_max = 9") == "UPDATE 1"
    assert await connection.execute("DELETE FROM doorstep_idempotency") == "DELETE 1"


async def test_a_row_of_another_organization_cannot_be_written(connection: asyncpg.Connection) -> None:
    await _act_for(connection, "1")
    line = (
        "INSERT INTO doorstep_audit (org_id, at, actor, action, subjects, result, reason) VALUES ($1,0,'','','','','')"
    )
    await connection.execute(line, 1)
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await connection.execute(line, 2)
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await connection.execute("UPDATE doorstep_deliveries SET org_id = 2")


async def test_every_table_with_rows_of_organizations_is_isolated_for_its_owner_too(
    connection: asyncpg.Connection,
) -> None:
    query = "SELECT relname FROM pg_class WHERE relrowsecurity AND relforcerowsecurity"
    isolated = {row[0] for row in await connection.fetch(query)}
    others = {"doorstep_orgs", "doorstep_outbox", "doorstep_workers"}
    assert isolated == {table.name for table in TENANT_TABLES} | others


async def test_who_works_for_one_organization_sees_nothing_of_the_workers(connection: asyncpg.Connection) -> None:
    await _act_for(connection, "*")
    await connection.execute("INSERT INTO doorstep_workers (name, seen_at, document) VALUES ('a', 1, '{}')")
    assert await connection.fetchval("SELECT count(*) FROM doorstep_workers") == 1
    await _act_for(connection, "1")
    assert await connection.fetchval("SELECT count(*) FROM doorstep_workers") == 0


async def test_a_role_that_bypasses_row_level_security_is_warned_about(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    database = postgres_url.rsplit("/", 1)[1]
    store = PostgresStore(postgres_server.url(database, role="postgres"))
    with pytest.warns(RuntimeWarning, match="bypasses row-level security"):
        await store.open()
    await store.close()


async def test_in_the_outbox_an_organization_sees_its_own_rows_and_removes_none(
    connection: asyncpg.Connection,
) -> None:
    await _act_for(connection, "*")
    await connection.execute(
        "INSERT INTO doorstep_outbox (uid, org_uid, event_type, payload, options, created_at)"
        " SELECT gen_random_uuid(), uid, 'a.b', '{}', '{}', 1 FROM doorstep_orgs"
    )
    for org in (1, 2):
        await _act_for(connection, str(org))
        rows = "SELECT o.id FROM doorstep_outbox b JOIN doorstep_orgs o ON o.uid = b.org_uid"
        assert [row[0] for row in await connection.fetch(rows)] == [org]
        assert await connection.execute("DELETE FROM doorstep_outbox") == "DELETE 0"
    await connection.execute("RESET doorstep.org")
    assert await connection.fetch("SELECT uid FROM doorstep_outbox") == []
