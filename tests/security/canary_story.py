"""A story with canaries: everything that Doorstep does with payloads and secrets, on one store."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import asyncpg
import psycopg

from doorstep.app import Doorstep
from doorstep.encryption import new_secret_key
from tests.security.talkative import talkative
from tests.support.collector import Collector, collecting
from tests.support.commands import ran
from tests.support.patience import PATIENCE_SECONDS
from tests.support.ports import free_port
from tests.support.postgres_server import PostgresServer
from tests.support.program import Answer, Program, serving, wait_for
from tests.support.receiver import Receiver, receiving

CANARIES = {
    name: f"c4n4ry{number:02d}{name}"
    for number, name in enumerate(
        (
            *(
                "payloadvalue",
                "payloadkey",
                "longpayload",
                "editedpayload",
                "outboxpayload",
                "rejectedpayload",
                "metadata",
                "entitydata",
            ),
            *(
                "adminkey",
                "wrongkey",
                "bearerkey",
                "headervalue",
                "changedheader",
                "userinfo",
                "urlquery",
                "tokenofcollector",
                "smtppassword",
                "slackurl",
                "appriseurl",
            ),
            *("databasepassword", "responsebody", "responseheader", "idempotencykey", "badmetadata", "batchpayload"),
        ),
        10,
    )
}
"""Canaries by meaning. Secrets that the program generates are added during the story."""
_LONG = 3_000
_NEVER = {"failures_max": 10_000}
"""A circuit that never opens, so that it does not hold deliveries back."""
_SETTINGS = {
    "DOORSTEP_LOG_LEVEL": "debug",
    "DOORSTEP_RETRY_DELAYS": "0.05,0.05",
    "DOORSTEP_ALLOW_HTTP": "true",
    "OTEL_BSP_SCHEDULE_DELAY": "50",
    "PYTHONASYNCIODEBUG": "1",
}


class Told(NamedTuple):
    """All places where canaries may have been left."""

    canaries: dict[str, str]
    places: dict[str, bytes]
    columns: dict[str, bytes]
    """The content of each column of each table."""


class Database:
    """The store of the story: the test can damage and read it."""

    def __init__(self, folder: Path, server: PostgresServer | None, name: str) -> None:
        self._path = folder / "data" / "doorstep.db"
        self._server, self._name = server, name
        if server is not None:
            server.create_database(name)

    @property
    def url(self) -> str:
        if self._server is None:
            return f"sqlite:///{self._path}"
        return self._server.url(self._name).replace("doorstep@", f"doorstep:{CANARIES['databasepassword']}@")

    def rename(self, old: str, new: str) -> None:
        self.change(f"ALTER TABLE {old} RENAME TO {new}")

    def change(self, statement: str) -> None:
        if self._server is not None:
            self._server.sql(statement, database=self._name)
            return
        with closing(sqlite3.connect(self._path, timeout=PATIENCE_SECONDS)) as connection, connection:
            connection.execute(statement)

    def post(self, event_type: str, payload: object, **options: Any) -> None:
        """Send an event through the outbox, on a connection of the program's own."""
        sender = Doorstep(self.url)
        connect = psycopg.connect if self._server is not None else sqlite3.connect
        with closing(connect(self.url if self._server is not None else self._path)) as connection:  # type: ignore[operator]
            sender.send_sync(event_type, payload, connection=connection, **options)
            connection.commit()

    def columns(self) -> dict[str, bytes]:
        if self._server is None:
            return _gathered(_sqlite_rows(self._path))
        with ThreadPoolExecutor(1) as thread:  # an event loop may already run in this thread
            rows = _postgres_rows(self._server.url(self._name, role="postgres"))
            return _gathered(thread.submit(asyncio.run, rows).result())


def tell(folder: Path, server: PostgresServer | None, name: str, leak: bool = False) -> Told:
    canaries = dict(CANARIES)
    sealing_key = new_secret_key()
    canaries["sealingkey"] = sealing_key
    with collecting() as collector, receiving() as receiver, talkative(canaries) as talker:
        database = Database(folder, server, name)
        given = _SETTINGS | {
            "DOORSTEP_DATABASE_URL": database.url,
            "DOORSTEP_SECRET_KEY": sealing_key,
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20{canaries['tokenofcollector']}",
            "DOORSTEP_SMTP_URL": f"smtp://user:{canaries['smtppassword']}@127.0.0.1:{free_port()}",
            "ENTITY_DATA": canaries["entitydata"],
        }
        given |= {"LEAK": "1"} if leak else {}
        (folder / "data").mkdir(exist_ok=True)
        (folder / "canary_app.py").write_text((Path(__file__).parent / "canary_app.py").read_text())
        with serving(
            folder, "--app", "canary_app:doorstep", environment=given, admin_key=canaries["adminkey"]
        ) as program:
            story = _Story(program, database, receiver, talker, canaries)
            story.tell_of_handlers() if leak else story.tell()
            wait_for(lambda: len(collector.named("doorstep.attempt")) > 8)
            metrics = program.get("/metrics").body
        places = {"the answers that refuse": b"\n".join(story.refusals), "/metrics": metrics}
        places["what is shown of channels"] = b"\n".join(story.answers)
        places |= {} if leak else {"the commands": _commands(folder, given, canaries, program)}
    places["the log"] = "\n".join(program.out).encode()
    places["standard error"] = "\n".join(program.err).encode()
    places["spans"] = b"\n".join(collector.bodies)
    places["what else the collector was sent"] = b"\n".join(collector.others)
    if not leak:
        _check_seen(collector, places)
    return Told(canaries, places, database.columns())


class _Story:
    def __init__(
        self, program: Program, database: Database, receiver: Receiver, talker: str, canaries: dict[str, str]
    ) -> None:
        self._program, self._database, self._receiver, self._talker = program, database, receiver, talker
        self._canaries = canaries
        self._key = canaries["adminkey"]
        self.refusals: list[bytes] = []
        self.answers: list[bytes] = []

    def tell_of_handlers(self) -> None:
        """Run the shortest story in which something can leak."""
        self._handlers()
        self._entity()

    def tell(self) -> None:
        endpoint = self._endpoints()
        letter = self._dies("sent", self._payload("payloadvalue"))
        self._edit_and_retry(letter)
        self._handlers()
        self._entity()
        self._channels()
        self._outbox()
        self._operate(endpoint)
        self._refused()
        self._spoiled_row()
        self._database_trouble()

    def _ask(self, method: str, path: str, body: Any = None, **options: Any) -> Answer:
        answer = self._program.request(method, path, body, **({"key": self._key} | options))
        if answer.status >= 400:
            self.refusals.append(answer.body)
        return answer

    def _payload(self, name: str) -> dict[str, Any]:
        return {"kept": self._canaries[name], self._canaries["payloadkey"]: {"number": 1}}

    def _endpoints(self) -> str:
        """Create an endpoint that answers 200, and one that refuses and repeats everything it received."""
        headers = {"authorization": f"Bearer {self._canaries['headervalue']}"}
        url = f"{self._talker}?token={self._canaries['urlquery']}"
        shape = {"name": "talker", "url": url, "event_types": ["sent"], "headers": headers, "circuit": _NEVER}
        made = self._ask("POST", "/v1/endpoints", shape).json
        fine = {"name": "fine", "url": self._receiver.url, "event_types": ["sent", "posted"]}
        self._canaries["secretoffine"] = self._ask("POST", "/v1/endpoints", fine).json["secret"]
        path = f"/v1/endpoints/{made['endpoint_id']}"
        rotated = self._ask("POST", f"{path}/rotate-secret", {"overlap_seconds": 3600}).json
        self._canaries |= {"secret": made["secret"], "rotatedsecret": rotated["secret"]}
        self._ask("PATCH", path, {"headers": {"authorization": self._canaries["changedheader"]}})
        gone = f"http://127.0.0.1:{free_port()}/?{self._canaries['urlquery']}"
        self._ask("POST", "/v1/endpoints", {"name": "gone", "url": gone, "event_types": ["sent"], "circuit": _NEVER})
        return str(made["endpoint_id"])

    def _dies(self, event_type: str, payload: Any) -> str:
        body = {"event_type": event_type, "payload": payload, "metadata": {"about": self._canaries["metadata"]}}
        headers = {
            "Idempotency-Key": self._canaries["idempotencykey"] + event_type,
            "X-Correlation-Id": "correlation-1",
        }
        event_id = self._ask("POST", "/v1/events", body, headers=headers).json["event_id"]
        self._end(event_id)
        deliveries = self._ask("GET", f"/v1/events/{event_id}").json["deliveries"]
        return next(one["delivery_id"] for one in deliveries if one["state"] == "dead")

    def _end(self, event_id: str) -> None:
        def ended() -> bool:
            return self._ask("GET", f"/v1/events/{event_id}/status").json["status"] in ("failed", "delivered")

        wait_for(ended, lambda: f"{event_id} does not end; {self._program.err}")

    def _edit_and_retry(self, letter: str) -> None:
        edited = {"payload": self._payload("editedpayload"), "reason": "a better one"}
        assert self._ask("POST", f"/v1/dead-letters/{letter}/retry", edited).status < 300
        long = {"kept": self._canaries["longpayload"] + "x" * _LONG}
        batch = [{"event_type": "sent", "payload": one} for one in (long, self._payload("batchpayload"))]
        for receipt in self._ask("POST", "/v1/events", batch).json["events"]:
            self._end(receipt["event_id"])

    def _handlers(self) -> None:
        for kind in ("quoting", "value", "telling", "group", "isolated", "single", "misplaced"):
            letter = self._dies(f"handled.{kind}", self._payload("payloadvalue"))
            assert self._ask("GET", f"/v1/deliveries/{letter}/attempts").json["attempts"][0]["error_reason"]

    def _entity(self) -> None:
        """Start entities whose stages fail in every way that quotes their data."""
        self._ask("POST", "/v1/events", {"event_type": "begin", "payload": {}})
        path = "/v1/pipelines/parcel/entities"
        wait_for(
            lambda: [one["status"] for one in self._ask("GET", path).json["entities"]] == ["dead_letter"] * 4,
            lambda: f"{self._ask('GET', path).body!r}; {self._program.err}",
        )

    def _channels(self) -> None:
        """Create channels with unreachable targets."""
        nowhere = f"127.0.0.1:{free_port()}"
        targets = {
            "email": "ops@shop.example",
            "slack": f"http://{nowhere}/services/{self._canaries['slackurl']}",
            "apprise": f"json://user:{self._canaries['appriseurl']}@{nowhere}/{self._canaries['appriseurl']}",
        }
        for kind, target in targets.items():
            made = self._ask("POST", "/v1/channels", {"name": kind, "kind": kind, "target": target}).json
            path = f"/v1/channels/{made['channel_id']}"
            self._ask("POST", f"{path}/test")
            wait_for(lambda: self._ask("GET", path).json["last_error"], lambda: f"{kind}; {self._program.err}")  # noqa: B023
            self.answers.append(self._ask("GET", path).body)
        for wrong in (
            {"kind": "slack", "target": f"ftp://{nowhere}/{self._canaries['slackurl']}"},
            {"kind": "apprise", "target": f"file://{self._canaries['appriseurl']}"},
        ):
            assert self._ask("POST", "/v1/channels", {"name": "wrong", **wrong}).status == 422

    def _outbox(self) -> None:
        self._database.post("posted", self._payload("outboxpayload"))
        self._database.post("posted", self._payload("outboxpayload"), org_id=uuid4())  # an unknown organization
        wait_for(lambda: any("and was rejected" in line for line in self._program.out))

    def _operate(self, endpoint: str) -> None:
        self._ask("POST", f"/v1/endpoints/{endpoint}/test", {"payload": self._payload("payloadvalue")})
        letters = self._ask("GET", "/v1/dead-letters").json["dead_letters"]
        listed = [one for one in letters if one["event_type"].startswith("handled")]  # the edited one must stay
        self._ask("POST", f"/v1/events/{listed[0]['event_id']}/replay", {"endpoint_id": endpoint})
        self._ask("POST", f"/v1/endpoints/{endpoint}/replay", {"all": True})
        self._ask("POST", "/v1/dead-letters/bulk-retry", {"all": True})
        self._ask("DELETE", f"/v1/events/{listed[0]['event_id']}")
        made = self._ask("POST", "/v1/keys", {"name": "made", "role": "operator"}).json
        self._canaries["madekey"] = made["key"]
        self._canaries["orgkey"] = self._ask("POST", "/v1/orgs", {"name": "made"}).json["admin_key"]["key"]

    def _refused(self) -> None:
        """Send invalid requests, with canaries in or beside the invalid part."""
        rejected, metadata = self._canaries["rejectedpayload"], self._canaries["badmetadata"]
        refused = (
            b'{"event_type": "a", "payload": {"kept": "%s"' % rejected.encode(),
            b'{"event_type": "a", "payload": {"kept": "\xff%s"}}' % rejected.encode(),
            b'{"event_type": "a", "payload": %s}' % rejected.encode(),
            {"event_type": 5, "payload": rejected},
            {"event_type": "a", "payload": rejected, "metadata": metadata},
            {"event_type": "a", "payload": rejected, "idempotency_key": self._canaries["idempotencykey"] + "\n"},
            {"event_type": "sent", "payload": rejected, "idempotency_key": self._canaries["idempotencykey"] + "sent"},
            [{"event_type": "a", "payload": rejected}, {"event_type": "", "payload": rejected}],
        )
        assert {self._ask("POST", "/v1/events", body).status // 100 for body in refused} == {4}
        url = f"https://user:{self._canaries['userinfo']}@shop.example/?q={self._canaries['urlquery']}"
        for change in ({"url": url}, {"headers": {"authorization": self._canaries["headervalue"] + "\n"}}):
            shape = {"name": "bad", "url": self._receiver.url, "event_types": ["bad"]} | change
            assert self._ask("POST", "/v1/endpoints", shape).status == 422
        assert self._ask("GET", "/v1/events", key=self._canaries["wrongkey"]).status == 401
        bearer = {"Authorization": f"Bearer {self._canaries['bearerkey']}"}
        assert self._ask("GET", "/v1/events", key=None, headers=bearer).status == 401

    def _spoiled_row(self) -> None:
        """Damage a row, so that it cannot be read and the error quotes it. Doorstep does not overwrite it, because the
        version of the row has changed too."""
        spoiled = f'{{"kind": "{self._canaries["rejectedpayload"]}"}}'
        self._database.change("CREATE TABLE kept AS SELECT id, document FROM doorstep_bulks")
        self._database.change(f"UPDATE doorstep_bulks SET document = '{spoiled}', version = version + 1")
        assert self._ask("GET", "/v1/bulk").status == 500
        restored = "SELECT document FROM kept WHERE kept.id = doorstep_bulks.id"
        self._database.change(f"UPDATE doorstep_bulks SET document = ({restored}), version = version - 1")

    def _database_trouble(self) -> None:
        """Remove a table, so that requests and services fail; then put it back."""
        self._database.rename("doorstep_idempotency", "doorstep_gone")
        body = {"event_type": "sent", "payload": self._payload("payloadvalue"), "idempotency_key": "another"}
        assert self._ask("POST", "/v1/events", body).status >= 500
        self._database.rename("doorstep_gone", "doorstep_idempotency")
        self._database.rename("doorstep_attempts", "doorstep_gone")
        del body["idempotency_key"]
        # The store may still be reopening after the failure above, and answers 503 until it has.
        event_id = wait_for(lambda: self._ask("POST", "/v1/events", body).json.get("event_id"))
        wait_for(lambda: any("service_trouble" in line for line in self._program.out))
        self._database.rename("doorstep_gone", "doorstep_attempts")
        self._end(event_id)


def _commands(folder: Path, given: Mapping[str, str], canaries: Mapping[str, str], program: Program) -> bytes:
    """The output of commands, including some that must fail."""
    nowhere = (
        f"postgresql://user:{canaries['databasepassword']}@127.0.0.1:{free_port()}/none?password={canaries['urlquery']}"
    )
    with_key = dict(given) | {"DOORSTEP_ADMIN_KEY": canaries["adminkey"], "DOORSTEP_PORT": str(free_port())}
    elsewhere = with_key | {"DOORSTEP_DATABASE_URL": nowhere}
    misspelt = with_key | {"DOORSTEP_SECRET_KEY": canaries["wrongkey"]}
    runs = [
        (("doctor",), with_key),
        (("settings",), with_key),
        (("doctor",), elsewhere),
        (("serve",), elsewhere),
        (("serve",), misspelt),
        (("serve",), with_key | {"DOORSTEP_DATABASE_URL": nowhere.replace("@", "/?@", 1)}),
        (("serve", "--app", "canary_app:crash"), with_key),
        (
            ("send", "sent", f'{{"kept": {canaries["rejectedpayload"]}'),
            with_key | {"DOORSTEP_URL": program.folder.as_uri()},
        ),
        (("events", "list"), with_key | {"DOORSTEP_API_KEY": canaries["wrongkey"]}),
    ]
    ended = [ran(*arguments, folder=folder, environment=environment) for arguments, environment in runs]
    return "\n".join(one.out + one.err for one in ended).encode()


def _check_seen(collector: Collector, places: Mapping[str, bytes]) -> None:
    """Check that every place contains something, because a search in an empty place proves nothing."""
    assert {span.name for span in collector.spans} == {"doorstep.accept", "doorstep.attempt"}
    assert b"correlation-1" in places["the log"] and b"correlation-1" in places["spans"]
    assert all(kind in places["what is shown of channels"] for kind in (b"email", b"slack", b"apprise"))
    assert b"cannot be loaded: RuntimeError" in places["the commands"]
    for words in (
        b"service_trouble",
        b"a request failed",
        b"delivery_failure",
        b"and was rejected",
        b"failed: RuntimeError",
    ):
        assert words in places["the log"], words
    assert b"doorstep_events_created_total" in places["/metrics"]
    assert b"errors" in places["the answers that refuse"]


# -- tables ----------------------------------------------------------------------------------------------------

Rows = Iterable[tuple[str, Mapping[str, Any]]]


def _gathered(rows: Rows) -> dict[str, bytes]:
    columns: defaultdict[str, list[bytes]] = defaultdict(list)
    for table, row in rows:
        for column, value in row.items():
            columns[f"{table}.{column}"].append(value if isinstance(value, bytes) else str(value).encode())
    return {name: b"\n".join(values) for name, values in columns.items()}


def _sqlite_rows(path: Path) -> Rows:
    with closing(sqlite3.connect(path)) as database:
        database.row_factory = sqlite3.Row
        tables = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return [(table, dict(row)) for table in tables for row in database.execute(f'SELECT * FROM "{table}"')]


async def _postgres_rows(url: str) -> Rows:
    connection = await asyncpg.connect(url)
    try:
        tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        names = [str(row["tablename"]) for row in tables]
        return [(name, dict(row)) for name in names for row in await connection.fetch(f'SELECT * FROM "{name}"')]
    finally:
        await connection.close()
