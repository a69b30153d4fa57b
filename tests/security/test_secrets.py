"""Secrets are shown once and stored sealed or hashed: they are not in later answers, in the log or in the database.

The canaries: the signing secrets of endpoints and channels (as text, and as the bytes that the text encodes), the
values of an endpoint's headers, the Apprise URL of a channel, the API keys, and the key that seals all of these.
"""

from __future__ import annotations

import asyncio
import base64
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg
import pytest

from doorstep.api.application import ROUTES
from doorstep.encryption import new_secret_key
from doorstep.operations import keys
from tests.integration.keys import add_org
from tests.security.conftest import IN_TIERS
from tests.support.commands import doorstep
from tests.support.ports import free_port
from tests.support.postgres_server import PostgresServer
from tests.support.program import Program, serving, wait_for
from tests.support.receiver import receiving

ADMIN = "c4n4ry-admin-key-0123456789"
HEADER = "Bearer c4n4ry-header-value"
CHANGED_HEADER = "c4n4ry-changed-header-value"
APPRISE_TOKEN = "c4n4ry-apprise-token"
WEBHOOK_CHANNEL = {"name": "ours", "kind": "webhook", "target": "http://127.0.0.1:9/", "rules": ["oldest_due"]}
APPRISE_CHANNEL = WEBHOOK_CHANNEL | {"kind": "apprise", "target": f"json://user:{APPRISE_TOKEN}@127.0.0.1:9/"}
"""Subscribes to a rule that does not fire here, so that nothing is sent."""
VISIBLE = "a-visible-canary"
"""A name that is not secret. If not even this is found, the search did not work."""


class Traces(NamedTuple):
    """Everything that a running service has left behind, and the secrets that must not be in it."""

    secrets: dict[str, bytes]
    api_keys: list[str]
    answers: dict[str, bytes]
    log: bytes
    database: bytes


@pytest.fixture(scope="module", params=IN_TIERS)
def traces(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traces]:
    folder = tmp_path_factory.mktemp("secrets")
    sealing_key = new_secret_key()
    environment = {"DOORSTEP_LOG_LEVEL": "debug", "DOORSTEP_SECRET_KEY": sealing_key}
    server: PostgresServer | None = None
    if request.param == "postgresql":
        server = request.getfixturevalue("postgres_server")
        server.create_database("secrets")
        environment["DOORSTEP_DATABASE_URL"] = server.url("secrets")
    with serving(folder, environment=environment, admin_key=ADMIN) as program:
        secrets, api_keys, ids = use_everything(program)
        answers = read_everything(program, ids) | examined(folder, environment)
        answers["the file that keeps the database"] = b"" if server else dumped_file(folder)
    secrets["the sealing key"] = sealing_key.encode()
    secrets["the sealing key's bytes"] = base64.b64decode(sealing_key)
    log = "\n".join([*program.out, *program.err]).encode()
    yield Traces(secrets, api_keys, answers, log, dumped(folder, server))


def use_everything(program: Program) -> tuple[dict[str, bytes], list[str], dict[str, str]]:
    """Perform every action that involves a secret, including refused ones; return the secrets, keys and ids."""

    def post(path: str, body: Any = None) -> Any:
        return program.post(path, body, key=ADMIN).json

    with receiving() as receiver:
        receiver.status = 400
        headers = {"authorization": HEADER}
        shape = {"name": VISIBLE, "url": receiver.url, "event_types": ["secret"], "headers": headers, "batch": True}
        endpoint = post("/v1/endpoints", shape)
        event_id = post("/v1/events", {"event_type": "secret", "payload": 1})["event_id"]
        wait_for(lambda: program.get(f"/v1/events/{event_id}/status", key=ADMIN).json["status"] == "failed")
        (delivery,) = program.get(f"/v1/events/{event_id}", key=ADMIN).json["deliveries"]
        path = f"/v1/endpoints/{endpoint['endpoint_id']}"
        rotated = post(f"{path}/rotate-secret", {"overlap_seconds": 3600})
        changed = {"headers": {"authorization": CHANGED_HEADER}}
        assert program.request("PATCH", path, changed, key=ADMIN).status == 200
        post(f"{path}/test")
        post(f"{path}/pause", {"reason": "to see it in the log"})
        post(f"{path}/resume")
    refuse_everything(program, shape)
    wait_for(lambda: program.get("/v1/alerts", key=ADMIN).json["alerts"])
    (alert,) = program.get("/v1/alerts", key=ADMIN).json["alerts"]
    channel, told = post("/v1/channels", WEBHOOK_CHANNEL), post("/v1/channels", APPRISE_CHANNEL)
    assert APPRISE_TOKEN not in str(told)
    key = post("/v1/keys", {"name": "made", "role": "operator"})
    bulk = post("/v1/dead-letters/bulk-resolve", {"all": True})
    api_keys = [ADMIN, key["key"], post("/v1/orgs", {"name": "made"})["admin_key"]["key"]]
    secrets = {"a header": HEADER.encode(), "a changed header": CHANGED_HEADER.encode()}
    secrets["an Apprise URL"] = APPRISE_TOKEN.encode()
    made = {"the secret": endpoint, "the rotated secret": rotated, "the channel's secret": channel}
    for name, secret in ((name, one["secret"]) for name, one in made.items()):
        secrets[name] = secret.encode()
        secrets[f"{name}'s bytes"] = base64.b64decode(secret.removeprefix("whsec_"))
    for number, api_key in enumerate(api_keys):
        secrets[f"API key {number}"] = api_key.encode()
    ids = {"event_id": event_id, "delivery_id": delivery["delivery_id"], "endpoint_id": endpoint["endpoint_id"]}
    ids |= {"alert_id": alert["alert_id"], "channel_id": told["channel_id"]}
    return secrets, api_keys, ids | {"batch_id": event_id, "bulk_id": bulk["bulk_id"], "key_id": key["key_id"]}


def refuse_everything(program: Program, shape: dict[str, Any]) -> None:
    """Make mistakes in or beside a secret. The error messages must not repeat the secret."""
    for mistake in (
        {"headers": {"authorization": f"{HEADER}\n"}},
        {"headers": {HEADER: "x"}},
        {"headers": {"authorization": [HEADER]}},
        {"headers": HEADER},
        {"url": f"https://user:{CHANGED_HEADER}@shop.example/"},
        {"secret": HEADER},
    ):
        answer = program.post("/v1/endpoints", shape | mistake, key=ADMIN)
        assert answer.status == 422
        assert CHANGED_HEADER.encode() not in answer.body
        if mistake.get("headers") != {HEADER: "x"}:  # here the secret is in the place of a header name
            assert HEADER.encode() not in answer.body
    assert program.get("/v1/keys", key=HEADER).status == 401
    assert program.get(f"/v1/events?{ADMIN}=1", key=ADMIN + "x").status == 401


def read_everything(program: Program, ids: dict[str, str]) -> dict[str, bytes]:
    """The answers of everything that can be read."""
    paths = [line.split(" ")[1] for line in ROUTES if line.startswith("GET ") and "{pipeline}" not in line]
    reading = [path.format(**ids) + (f"?id={ids['event_id']}" if path == "/v1/find" else "") for path in paths]
    everything = [*reading, "/metrics", "/healthz", "/readyz", "/docs", "/openapi.json"]
    answers = {path: program.get(path, key=ADMIN) for path in everything}
    assert {answer.status for answer in answers.values()} == {200}, answers
    return {path: answer.body for path, answer in answers.items()}


def examined(folder: Path, environment: dict[str, str]) -> dict[str, bytes]:
    """The output of the commands that examine an installation."""
    given = environment | {"DOORSTEP_ADMIN_KEY": ADMIN, "DOORSTEP_PORT": str(free_port())}
    told = {name: doorstep(name, folder=folder, environment=given) for name in ("doctor", "settings")}
    return {f"doorstep {name}": (ended.out + ended.err).encode() for name, ended in told.items()}


def test_no_answer_but_the_first_holds_a_secret(traces: Traces) -> None:
    for path, body in traces.answers.items():
        assert found(traces.secrets, body) == [], path
    assert [path for path, body in traces.answers.items() if VISIBLE.encode() in body]


def test_the_attempt_log_names_the_headers_and_hides_their_values(traces: Traces) -> None:
    (attempts,) = [body for path, body in traces.answers.items() if path.startswith("/v1/del") and "/attempts" in path]
    assert b"authorization: ***" in attempts


def test_no_line_of_the_log_holds_a_secret(traces: Traces) -> None:
    assert b"to see it in the log" in traces.log or b"delivery_failure" in traces.log
    assert found(traces.secrets, traces.log) == []


def test_nothing_in_the_database_is_a_secret_in_the_clear(traces: Traces) -> None:
    assert VISIBLE.encode() in traces.database
    assert found(traces.secrets, traces.database) == []


def test_keys_are_stored_as_hashes(traces: Traces) -> None:
    for api_key in traces.api_keys:
        assert keys.digest(api_key) in traces.database
        assert keys.prefix(api_key) != api_key


def found(secrets: dict[str, bytes], somewhere: bytes) -> list[str]:
    """The secrets that this content contains, as they are or in a usual encoding."""
    return [
        name
        for name, secret in secrets.items()
        for form in (secret, secret.hex().encode(), base64.b64encode(secret), base64.urlsafe_b64encode(secret))
        if form in somewhere
    ]


def dumped(folder: Path, server: PostgresServer | None) -> bytes:
    """Every value of every table, as bytes."""
    if server is None:
        return _dumped_sqlite(folder / "data" / "doorstep.db")
    with ThreadPoolExecutor(1) as thread:  # an event loop may already run in this thread
        return thread.submit(asyncio.run, _dumped_postgres(server.url("secrets", role="postgres"))).result()


def dumped_file(folder: Path) -> bytes:
    """The database as stored on disk, including its log."""
    return b"".join(path.read_bytes() for path in (folder / "data").glob("doorstep.db*"))


def _dumped_sqlite(path: Path) -> bytes:
    with closing(sqlite3.connect(path)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        rows = [row for table in tables for row in database.execute(f'SELECT * FROM "{table}"')]
    return _joined(value for row in rows for value in row)


async def _dumped_postgres(url: str) -> bytes:
    connection = await asyncpg.connect(url)
    try:
        tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        rows = [row for table in tables for row in await connection.fetch(f'SELECT * FROM "{table["tablename"]}"')]
    finally:
        await connection.close()
    return _joined(value for row in rows for value in row.values())


def _joined(values: Iterator[Any]) -> bytes:
    return b"\n".join(value if isinstance(value, bytes) else str(value).encode() for value in values)


def test_another_organization_s_admin_key_is_worth_nothing_after_it_was_revoked(served: Program) -> None:
    admin = add_org(served)
    second = served.post("/v1/keys", {"name": "second", "role": "admin"}, key=admin).json
    (first,) = [key for key in served.get("/v1/keys", key=admin).json["keys"] if key["key_id"] != second["key_id"]]
    assert served.request("DELETE", f"/v1/keys/{first['key_id']}", key=second["key"]).status == 204
    wait_for(lambda: served.get("/v1/keys", key=admin).status == 401)
