"""docs/how-to/sql-users.md: its statements run in order on a real server, beside a running Doorstep."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from doorstep.encryption import new_secret_key
from doorstep.model.org import ALLOWED, Permission
from doorstep.stores.sql.postgres.database_users import READABLE
from tests.docs.pages import HOW_TO, fences, rows, section
from tests.support.commands import doorstep
from tests.support.postgres_server import OWNER, PostgresServer
from tests.support.program import Program, serving, wait_for
from tests.support.receiver import Receiver, receiving

PAGE = HOW_TO / "sql-users.md"
(GROUP, ADA, DEAD, RETRY, RESULT, PORTAL, AS_PORTAL, POSTGREST) = fences(PAGE, "sql")
LOCKS = PAGE.read_text().partition("  ```sql\n")[2].partition("  ```")[0]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server of its own, because the page creates roles and revokes privileges from everybody."""
    server = PostgresServer(durable=False)
    try:
        server.start().create_database("shop")
        yield server
    finally:
        server.destroy()


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with receiving() as it:
        yield it


@pytest.fixture(scope="module")
def program(server: PostgresServer, receiver: Receiver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """A Doorstep on this database. The page was followed while it ran, up to the entry for Ada."""
    folder = tmp_path_factory.mktemp("shop")
    environment = {"DOORSTEP_DATABASE_URL": server.url("shop"), "DOORSTEP_SECRET_KEY": new_secret_key()}
    with serving(folder, environment=environment) as it:
        endpoint = {"name": "shop", "url": receiver.url, "event_types": ["order.*"], "policy": {"delays": []}}
        assert it.post("/v1/endpoints", endpoint).status == 201
        _admin(server, GROUP)
        ((command,),) = [code.splitlines() for code in fences(PAGE, "sh")]
        granted = doorstep(*command.split()[1:], folder=folder, environment=environment)
        assert granted.code == 0, granted.err
        for statements in (ADA, PORTAL, POSTGREST):
            _admin(server, statements)
        yield it


def _admin(server: PostgresServer, statements: str) -> None:
    server.sql(statements, database="shop")


def _as(server: PostgresServer, login: str) -> psycopg.Connection[Any]:
    return psycopg.connect(server.url("shop", role=login), autocommit=True)


@pytest.fixture
def dead(program: Program, receiver: Receiver) -> dict[str, Any]:
    """A dead letter, as the API shows it."""
    receiver.status = 503
    event_id = program.post("/v1/events", {"event_type": "order.paid", "payload": {"order": 1}}).json["event_id"]
    return wait_for(lambda: next((one for one in _dead_letters(program) if one["event_id"] == event_id), None))


def _dead_letters(program: Program) -> list[dict[str, Any]]:
    return program.get("/v1/dead-letters").json["dead_letters"]  # type: ignore[no-any-return]


def test_ada_reads_a_dead_letter_retries_it_and_reads_the_result(
    server: PostgresServer, program: Program, receiver: Receiver, dead: dict[str, Any]
) -> None:
    with _as(server, "ada") as ada:
        shown = ada.execute(DEAD.encode()).fetchall()
        assert [(str(row[0]), row[2], row[5]) for row in shown] == [
            (dead["delivery_id"], "SERVICE_UNAVAILABLE", {"order": 1})
        ]
        receiver.status = 200
        ((bulk_id,),) = ada.execute(RETRY.encode()).fetchall()
        path = f"/v1/deliveries/{dead['delivery_id']}"
        wait_for(lambda: program.get(path).json["state"] == "delivered")
        done = wait_for(lambda: (row := ada.execute(RESULT.encode()).fetchone()) and row[0] == "finished" and row)
        assert done == ("finished", "1", "0", "0")
    assert program.get(f"/v1/bulk/{bulk_id}").json["succeeded"] == 1
    entries = [one for one in program.get("/v1/audit").json["audit"] if one["actor"] == "ada"]
    assert {one["action"] for one in entries} == {"retry", "bulk.retry.start"}
    assert "the shop is back" in json.dumps(entries)


@pytest.mark.parametrize(("action", "state"), [("resolve", "resolved"), ("delete", None)])
def test_other_actions_have_the_same_effect_as_over_http(
    server: PostgresServer, program: Program, dead: dict[str, Any], action: str, state: str | None
) -> None:
    path = f"/v1/deliveries/{dead['delivery_id']}"
    with _as(server, "ada") as ada:
        ada.execute("SELECT doorstep_act(%s, ARRAY[%s::uuid])", (action, dead["delivery_id"]))
    wait_for(lambda: all(one["delivery_id"] != dead["delivery_id"] for one in _dead_letters(program)))
    if state is not None:
        assert program.get(path).json["state"] == state
        assert program.get(f"/v1/events/{dead['event_id']}").json["status"] == "delivered"


def test_an_event_sent_with_sql_is_delivered_byte_for_byte_and_only_if_the_transaction_commits(
    server: PostgresServer, program: Program, receiver: Receiver, dead: dict[str, Any]
) -> None:
    receiver.status = 200
    with _as(server, "ada") as ada:
        with ada.transaction(force_rollback=True):
            ada.execute("""SELECT doorstep_send('order.sent', '{"never": 1}')""")
        sending = """SELECT doorstep_send('order.sent', '{"b":  1, "a": 2.50}', 'c-1', 'customer-1')"""
        ((event_id,),) = ada.execute(sending).fetchall()
    wait_for(lambda: any(b'{"b":  1, "a": 2.50}' in one.body for one in receiver.received))
    assert not any(b"never" in one.body for one in receiver.received)
    event = program.get(f"/v1/events/{event_id}").json
    assert (event["correlation_id"], event["ordering_key"]) == ("c-1", "customer-1")


def test_the_gateway_and_postgrest_see_what_the_page_says(
    server: PostgresServer, program: Program, dead: dict[str, Any]
) -> None:
    with _as(server, "portal") as portal:
        *before, count, commit = [one for one in AS_PORTAL.split(";\n") if one]
        for statement in before:
            portal.execute(statement.encode())
        assert portal.execute(count.encode()).fetchone() != (0,)
        portal.execute(commit.encode())
    (claims,) = fences(PAGE, "json")
    with _as(server, "authenticator") as authenticator:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            authenticator.execute("SELECT count(*) FROM doorstep_deliveries")
        with authenticator.transaction():
            # what PostgREST does at the start of each transaction
            authenticator.execute("SELECT set_config('role', 'authenticated', true)")
            authenticator.execute("SELECT set_config('request.jwt.claims', %s, true)", (claims,))
            assert authenticator.execute("SELECT count(*) FROM doorstep_deliveries").fetchone() != (0,)
            person = authenticator.execute("SELECT role, person FROM doorstep_identity()").fetchone()
            assert person == ("viewer", "ada@example.com")


def test_a_person_cannot_stop_doorstep_with_its_locks_after_the_page_was_followed(
    server: PostgresServer, program: Program, dead: dict[str, Any]
) -> None:
    lock = "SELECT pg_advisory_lock(4711)"
    with _as(server, "ada") as ada:
        ada.execute(lock)
        _admin(server, LOCKS)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            ada.execute(lock)
    with _as(server, OWNER) as owner:
        owner.execute(lock)
    assert program.post("/v1/events", {"event_type": "order.paid", "payload": {}}).status == 202
    assert doorstep("migrate", "--database", server.url("shop"), folder=program.folder).code == 0


def test_the_tables_of_the_page_are_those_of_the_code() -> None:
    text = section(PAGE, "What each role may do")
    listed = text.partition("The readable tables are")[2].partition("All other tables")[0]
    assert set(re.findall(r"`(\w+)`", listed)) == {table.name for table in READABLE}
    acts, sends = set(), set()
    for names, _, writes in rows(PAGE, "## What each role may do"):
        for name in names.replace("`", "").split(", "):
            acts |= {name} if "doorstep_act" in writes else set()
            sends |= {name} if "doorstep_send" in writes else set()
    assert acts == {role for role, allowed in ALLOWED.items() if Permission.ACT in allowed}
    assert sends == {role for role, allowed in ALLOWED.items() if Permission.SEND in allowed}
