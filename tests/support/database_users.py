"""A database with two organizations and with people who have logins of their own (docs/how-to/sql-users.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import psycopg

from doorstep.clock import SECOND, Instant
from doorstep.model.endpoint import HttpDestination, SigningSecret
from doorstep.model.org import ApiKey, Org, Role
from doorstep.stores.sql.postgres import PostgresStore
from tests.support.builders import NOW, a_submission, an_endpoint, an_org, new_id
from tests.support.fixtures_postgres import TEMPLATE
from tests.support.postgres_server import PostgresServer
from tests.support.shortcuts import put, routing_versions

GROUP = "doorstep_user"
PERSONS = {
    "adam": ("acme", Role.ADMIN),
    "ada": ("acme", Role.OPERATOR),
    "vera": ("acme", Role.VIEWER),
    "cora": ("acme", Role.CONSUMER),
    "pat": ("acme", Role.PUBLISHER),
    "bob": ("bolt", Role.OPERATOR),
}
"""Who has a login: the organization and the role of each."""
GATEWAY, TOKENS, STRANGER = "gateway", "tokens", "stranger"
"""Two gateways, one with settings and one with claims, and a member of the group who has no entry."""
LOGINS = (*PERSONS, GATEWAY, TOKENS, STRANGER)
SEALED = b"a-sealed-secret"
DIGEST = b"the-digest-of-a-key"


@dataclass
class Tenant:
    """An organization, and the ids of what it has."""

    org: Org
    endpoint_id: UUID
    dead: list[UUID] = field(default_factory=list)
    waiting: list[UUID] = field(default_factory=list)
    inbox: UUID | None = None
    events: list[UUID] = field(default_factory=list)

    @property
    def org_id(self) -> UUID:
        return self.org.org_id


class Scene:
    """The database, and a way to run SQL as any of its people."""

    def __init__(self, server: PostgresServer, database: str) -> None:
        self.server = server
        self.database = database
        self.tenants: dict[str, Tenant] = {}

    @property
    def acme(self) -> Tenant:
        return self.tenants["acme"]

    @property
    def bolt(self) -> Tenant:
        return self.tenants["bolt"]

    def connect(self, login: str, port: int | None = None) -> psycopg.Connection[Any]:
        """A connection in autocommit mode, through a pooler if a port is given. A pooler in transaction mode does not
        keep prepared statements apart, so there are none."""
        url = f"postgresql://{login}@127.0.0.1:{port or self.server.port}/{self.database}"
        return psycopg.connect(url, autocommit=True, prepare_threshold=None)

    def sql(self, login: str, *statements: Any) -> list[tuple[Any, ...]]:
        """Run statements in one transaction. Returns the rows of the last one."""
        with self.connect(login) as connection, connection.transaction():
            for statement in statements:
                cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def as_superuser(self, statement: str) -> list[list[str]]:
        return [line.split("|") for line in self.server.sql(statement, database=self.database).splitlines()]

    def grant(self) -> None:
        run(PostgresStore(self.server.url(self.database)).grant_users(GROUP))

    def act(self, login: str, action: str, delivery_ids: list[UUID], reason: str = "") -> UUID:
        with self.connect(login) as connection:
            row = connection.execute("SELECT doorstep_act(%s, %s, %s)", (action, delivery_ids, reason)).fetchone()
            assert row is not None
            return row[0]  # type: ignore[no-any-return]


def run(coroutine: Any) -> Any:
    """Run a coroutine to its end, also if an event loop is running in this thread."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


@contextmanager
def people(server: PostgresServer, database: str) -> Iterator[Scene]:
    """A database with both organizations, in which everybody has access."""
    server.create_database(database, template=TEMPLATE)
    scene = Scene(server, database)
    try:
        run(_fill(scene))
        create_roles(server)
        scene.grant()
        _enter(scene)
        yield scene
    finally:
        server.drop_database(database)


def create_roles(server: PostgresServer) -> None:
    """Roles belong to the server, so they may exist already."""
    existing = set(server.sql("SELECT rolname FROM pg_roles").splitlines())
    if GROUP not in existing:
        server.sql(f"CREATE ROLE {GROUP} NOLOGIN")
    for login in LOGINS:
        if login not in existing:
            server.sql(f"CREATE ROLE {login} LOGIN IN ROLE {GROUP}")


def _enter(scene: Scene) -> None:
    for login, (org, role) in PERSONS.items():
        scene.as_superuser(
            f"INSERT INTO doorstep_logins VALUES ('{login}', 'login', '{scene.tenants[org].org_id}', '{role}')"
        )
    scene.as_superuser(f"INSERT INTO doorstep_logins VALUES ('{GATEWAY}', 'settings'), ('{TOKENS}', 'jwt')")


async def _fill(scene: Scene) -> None:
    store = PostgresStore(scene.server.url(scene.database))
    await store.open()
    try:
        for number, name in enumerate(("acme", "bolt")):
            scene.tenants[name] = await _tenant(store, name, NOW + number * SECOND)
    finally:
        await store.close()


async def _tenant(store: PostgresStore, name: str, now: Instant) -> Tenant:
    """Two dead letters, a waiting delivery, an event in the inbox, and an API key."""
    org = an_org(name=f"{name}-org")
    await put(store, org)
    endpoint = an_endpoint(
        org.org_id,
        name=f"{name}-shop",
        destination=HttpDestination(f"https://{name}-shop.example/hook"),
        secrets=(SigningSecret(SEALED),),
        sealed_headers=SEALED,
    )
    await put(store, endpoint, 0)
    tenant = Tenant(org, endpoint.endpoint_id)
    await _add_key(store, org, name)
    for _ in range(2):
        tenant.dead.append(await _accept(store, tenant, name, now))
    await store.dead_letter_waiting(endpoint.endpoint_id, "REJECTED", f"{name}-reason", now, 10)
    tenant.waiting.append(await _accept(store, tenant, name, now))
    inbox = a_submission(org.org_id, event_type="inbox.item", payload=f'{{"of": "{name}-inbox"}}'.encode())
    await store.accept([inbox], await routing_versions(store), now)
    tenant.inbox = inbox.event.event_id
    return tenant


async def _accept(store: PostgresStore, tenant: Tenant, name: str, now: Instant) -> UUID:
    submission = a_submission(
        tenant.org_id,
        [tenant.endpoint_id],
        event_type=f"{name}.paid",
        payload=f'{{"of": "{name}-payload"}}'.encode(),
        due_at=now,
        correlation_id=f"{name}-correlation",
    )
    await store.accept([submission], await routing_versions(store), now)
    tenant.events.append(submission.event.event_id)
    return submission.deliveries[0].delivery_id


async def _add_key(store: PostgresStore, org: Org, name: str) -> None:
    key = ApiKey(
        key_id=new_id(),
        org_id=org.org_id,
        name=f"{name}-key",
        role=Role.ADMIN,
        prefix=f"dsk_{name}",
        digest=DIGEST + name.encode(),
        created_at=NOW,
    )
    await put(store, key)
