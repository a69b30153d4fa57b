"""People and gateways behind a PgBouncer in transaction mode, where transactions of many clients share a connection."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.support.database_users import GATEWAY, LOGINS, Scene, people
from tests.support.pgbouncer import pooling
from tests.support.postgres_server import PostgresServer

VISIBLE = "SELECT uid FROM doorstep_deliveries"
BACKEND = "SELECT pg_backend_pid()"


@pytest.fixture(scope="module")
def scene(postgres_server: PostgresServer) -> Iterator[Scene]:
    with people(postgres_server, "pooled") as made:
        yield made


@pytest.fixture(scope="module")
def port(scene: Scene) -> Iterator[int]:
    with pooling(scene.server, scene.database, LOGINS) as port:
        yield port


def _seen(connection: psycopg.Connection[Any]) -> set[UUID]:
    return {row[0] for row in connection.execute(VISIBLE).fetchall()}


def _name(connection: psycopg.Connection[Any], org_id: UUID, person: str, *, local: bool = True) -> None:
    for name, value in (("org_id", org_id), ("role", "operator"), ("person", person)):
        connection.execute("SELECT set_config(%s, %s, %s)", (f"doorstep.{name}", str(value), local))


def test_people_are_recognized_by_their_logins(scene: Scene, port: int) -> None:
    with scene.connect("ada", port) as ada, scene.connect("bob", port) as bob:
        for _ in range(3):
            assert _seen(ada) == {*scene.acme.dead, *scene.acme.waiting}
            assert _seen(bob) == {*scene.bolt.dead, *scene.bolt.waiting}


def test_two_clients_of_a_gateway_share_a_connection_and_see_only_whom_they_name(scene: Scene, port: int) -> None:
    backends = set()
    with scene.connect(GATEWAY, port) as one, scene.connect(GATEWAY, port) as other:
        for _ in range(3):
            for connection, tenant in ((one, scene.acme), (other, scene.bolt)):
                with connection.transaction():
                    _name(connection, tenant.org_id, "ada")
                    assert _seen(connection) == {*tenant.dead, *tenant.waiting}
                    backends.add(connection.execute(BACKEND).fetchone())
                assert _seen(one) == _seen(other) == set()  # nobody is named outside that transaction
    assert len(backends) == 1


def test_a_transaction_that_fails_names_nobody_afterwards(scene: Scene, port: int) -> None:
    with scene.connect(GATEWAY, port) as one, scene.connect(GATEWAY, port) as other:
        with pytest.raises(psycopg.errors.DivisionByZero), one.transaction():
            _name(one, scene.acme.org_id, "ada")
            one.execute("SELECT 1 / 0")
        assert _seen(other) == set()


def test_the_audit_log_names_the_person_whom_the_gateway_named(scene: Scene, port: int) -> None:
    with scene.connect(GATEWAY, port) as connection:
        for person in ("ada@example.com", "vera@example.com"):
            with connection.transaction():
                _name(connection, scene.acme.org_id, person)
                connection.execute("SELECT doorstep_act('resolve', %s, 'paid')", (scene.acme.dead,))
    entries = scene.sql("ada", "SELECT actor FROM doorstep_audit ORDER BY id")
    assert entries == [("ada@example.com",), ("vera@example.com",)]


def test_a_setting_that_is_not_local_leaks_to_the_next_client_of_the_gateway(scene: Scene, port: int) -> None:
    """The page warns of this, and says what prevents it: the next test."""
    with scene.connect(GATEWAY, port) as careless, scene.connect(GATEWAY, port) as next_one:
        _name(careless, scene.acme.org_id, "ada", local=False)
        assert _seen(next_one) == {*scene.acme.dead, *scene.acme.waiting}
        careless.execute("DISCARD ALL")


def test_a_pooler_that_resets_after_each_transaction_forgets_a_setting_that_is_not_local(scene: Scene) -> None:
    with (
        pooling(scene.server, scene.database, LOGINS, "server_reset_query_always = 1") as port,
        scene.connect(GATEWAY, port) as careless,
        scene.connect(GATEWAY, port) as next_one,
    ):
        _name(careless, scene.acme.org_id, "ada", local=False)
        assert _seen(next_one) == set()


def test_settings_that_leak_have_no_effect_on_people(scene: Scene, port: int) -> None:
    with scene.connect("ada", port) as one, scene.connect("ada", port) as other:
        one.execute("SET doorstep.org = '*'")
        _name(one, scene.bolt.org_id, "bob", local=False)
        assert _seen(one) == _seen(other) == {*scene.acme.dead, *scene.acme.waiting}


def test_a_plan_made_for_one_person_shows_nothing_of_hers_to_the_next(scene: Scene, port: int) -> None:
    """PgBouncer 1.18 does not track prepared statements, so PREPARE stays on the shared connection."""
    with scene.connect(GATEWAY, port) as one, scene.connect(GATEWAY, port) as other:
        with one.transaction():
            _name(one, scene.acme.org_id, "ada")
            one.execute(f"PREPARE mine AS {VISIBLE}")
            for _ in range(7):  # from the sixth execution on, the plan may be generic
                assert len(one.execute("EXECUTE mine").fetchall()) == 3
        assert other.execute("EXECUTE mine").fetchall() == []
        with other.transaction():
            _name(other, scene.bolt.org_id, "bob")
            assert {row[0] for row in other.execute("EXECUTE mine").fetchall()} == {
                *scene.bolt.dead,
                *scene.bolt.waiting,
            }
