"""What the webhooks profile was asked for, asserted over HTTP and SQL on its running server."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import quote
from uuid import uuid4

import psycopg
import pytest

import examples.webhooks.program as profile
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.receiver import Webhook
from doorstep.testing import status
from examples.theatre import Create, Theatre
from tests.examples.served import Served, fact, profile_served
from tests.support.commands import doorstep
from tests.support.postgres_server import PostgresServer
from tests.support.program import wait_for
from tests.support.receiver import Receiver, receiving
from tests.support.stores import EITHER_STORE

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
FIELDS = [
    "delivery_id",
    "webhook_id",
    "event_id",
    "event_type",
    "payload",
    "status",
    "attempts",
    "last_attempt_at",
    "next_retry_at",
    "response_code",
    "error_message",
    "created_at",
]
Json = dict[str, Any]


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with receiving() as it:
        yield it


@pytest.fixture(scope="module", params=EITHER_STORE)
def webhooks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The profile with quick retries."""
    server = request.getfixturevalue("postgres_server") if request.param == "postgres" else None
    quick = {"DOORSTEP_RETRY_DELAYS": "0.2,0.2,0.2"}
    with profile_served("webhooks", request.param, tmp_path_factory.mktemp("webhooks"), server, **quick) as served:
        yield served


@pytest.fixture
def create() -> Create:
    return profile.create


def webhook(served: Served, receiver: Receiver, **fields: object) -> Json:
    """A new webhook with its own event type."""
    receiver.status = 200
    given = {"url": receiver.url, "event_types": [f"of.{uuid4().hex}"], **fields}
    made = served.program.post("/webhooks", given)
    assert made.status == 201, made.body
    return dict(made.json)


def send(served: Served, to: Json, payload: object = 1) -> str:
    sent = served.program.post("/v1/events", {"event_type": to["event_types"][0], "payload": payload})
    assert sent.status == 202, sent.body
    return str(sent.json["event_id"])


def deliveries(served: Served, to: Json, **filters: object) -> list[Json]:
    query = "".join(f"&{name}={value}" for name, value in filters.items())
    answer = served.program.get(f"/webhook-deliveries/?webhook_id={to['webhook_id']}{query}")
    assert answer.status == 200, answer.body
    return list(answer.json["deliveries"])


def ended(served: Served, to: Json, status: str) -> Json:
    """The one delivery of a webhook, once it has this status."""
    (one,) = wait_for(lambda: deliveries(served, to, status=status))
    return one


def failed(served: Served, to: Json, receiver: Receiver, answer: int = 503) -> Json:
    receiver.status = answer
    send(served, to)
    return ended(served, to, "failed")


# -- deliveries ------------------------------------------------------------------------------------------------------


@fact(
    "a delivery has delivery_id, webhook_id, event_id, event_type, payload, status, attempts, last_attempt_at,"
    " next_retry_at, response_code, error_message, created_at",
    "status is success after a success; successes are listed",
)
def test_a_delivery_that_succeeded_is_logged(webhooks: Served, receiver: Receiver) -> None:
    to = webhook(webhooks, receiver)
    event_id = send(webhooks, to, {"order": 1})
    one = ended(webhooks, to, "success")
    assert list(one) == FIELDS
    assert (one["event_id"], one["event_type"], one["payload"]) == (event_id, to["event_types"][0], {"order": 1})
    assert (one["attempts"], one["response_code"], one["error_message"], one["next_retry_at"]) == (1, 200, None, None)
    assert TIME.fullmatch(one["created_at"]) and TIME.fullmatch(one["last_attempt_at"])
    assert webhooks.program.get(f"/webhook-deliveries/{one['delivery_id']}").json == one
    assert deliveries(webhooks, to) == [one]


@fact("status is pending until it ends", "found by status", "found by next retry, next first")
def test_a_delivery_that_waits_is_found_by_its_status_and_its_next_retry(
    tmp_path_factory: pytest.TempPathFactory, receiver: Receiver
) -> None:
    with profile_served("webhooks", "sqlite", tmp_path_factory.mktemp("slow"), None) as served:
        to = webhook(served, receiver)
        receiver.status = 503
        for n in range(2):
            send(served, to, n)
        wait_for(lambda: len(served.facts("delivery_failure")) == 2)
        pending = deliveries(served, to, status="pending")
        assert [(one["status"], one["attempts"], one["response_code"]) for one in pending] == [("pending", 1, 503)] * 2
        soon = f"{datetime.now(UTC) + timedelta(minutes=2):%Y-%m-%dT%H:%M:%SZ}"
        due = deliveries(served, to, next_retry_before=soon)
        assert [one["next_retry_at"] for one in due] == sorted(one["next_retry_at"] for one in pending)
        assert deliveries(served, to, next_retry_before="2026-01-01T00:00:00Z") == []
        assert deliveries(served, to, status="success") == deliveries(served, to, status="failed") == []
        receiver.hold.clear()
        try:  # a delivery in progress, which has no next retry, does not end the list
            first, second = (one["delivery_id"] for one in due)
            assert served.program.post(f"/v1/retry-queue/{first}/retry").status == 202
            wait_for(lambda: served.program.get(f"/v1/deliveries/{first}").json["state"] == "in_progress")
            found, cursor = [], ""
            while cursor is not None:
                place = f"next_retry_before={soon}&limit=1" + (f"&cursor={cursor}" if cursor else "")
                page = served.program.get(f"/webhook-deliveries?{place}").json
                found += [one["delivery_id"] for one in page["deliveries"]]
                cursor = page["pagination"]["cursor"]
            assert found == [second]
        finally:
            receiver.hold.set()


def test_filters_that_make_no_sense_are_invalid(webhooks: Served) -> None:
    soon = "next_retry_before=2026-01-01T00:00:00"
    for query, field in (
        ("cursor=\u00b2.", "cursor"),
        ("cursor=1.", "cursor"),
        ("status=pending&cursor=9.", "cursor"),
        (soon, "next_retry_before"),
        (f"status=failed&{soon}Z", "status"),
    ):
        refused = webhooks.program.get(f"/webhook-deliveries?{quote(query, safe='=&')}")
        assert (refused.status, refused.json["errors"][0]["field"]) == (422, field), query


def test_a_webhook_gets_a_name_that_fits(webhooks: Served, receiver: Receiver) -> None:
    to = webhook(webhooks, receiver, url=f"{receiver.url}/{'a' * 1000}")
    assert re.fullmatch(r"127\.0\.0\.1 [0-9a-f]{8}", to["name"])
    refused = webhooks.program.post("/webhooks", {"url": "https://[/"})
    assert (refused.status, refused.json["errors"][0]["field"]) == (422, "url")
    assert webhooks.program.post("/webhooks", {"url": 1}, key="unknown-key").status == 401


@fact("found by webhook")
def test_deliveries_are_found_by_their_webhook(webhooks: Served, receiver: Receiver) -> None:
    one, other = webhook(webhooks, receiver), webhook(webhooks, receiver)
    send(webhooks, one)
    ended(webhooks, one, "success")
    assert deliveries(webhooks, other) == []
    everything = webhooks.program.get("/webhook-deliveries?limit=100").json["deliveries"]
    assert one["webhook_id"] in {each["webhook_id"] for each in everything}


@fact("pages of 10, until there are no more")
def test_deliveries_are_listed_in_pages(webhooks: Served, receiver: Receiver) -> None:
    to = webhook(webhooks, receiver)
    sent = [send(webhooks, to, n) for n in range(12)]
    wait_for(lambda: len(deliveries(webhooks, to, status="success", limit=100)) == 12)
    found: list[Json] = []
    cursor = ""
    while True:
        page = webhooks.program.get(f"/webhook-deliveries?webhook_id={to['webhook_id']}&status=success{cursor}").json
        assert len(page["deliveries"]) <= 10
        found += page["deliveries"]
        if not page["pagination"]["has_more"]:
            break
        cursor = f"&cursor={page['pagination']['cursor']}"
    assert sorted(one["event_id"] for one in found) == sorted(sent)


@fact("event_id may be gone")
def test_a_delivery_outlives_its_event(webhooks: Served, receiver: Receiver) -> None:
    to = webhook(webhooks, receiver)
    event_id = send(webhooks, to)
    delivery_id = ended(webhooks, to, "success")["delivery_id"]
    assert webhooks.program.request("DELETE", f"/v1/events/{event_id}").status == 204
    one = webhooks.program.get(f"/webhook-deliveries/{delivery_id}").json
    assert (one["event_id"], one["payload"], one["status"]) == (None, None, "success")
    (row,) = webhooks.rows(f"SELECT event_id, payload FROM webhook_deliveries WHERE {_of(to)}")
    assert row == {"event_id": None, "payload": None}


def _of(to: Json) -> str:
    return f"webhook_id = '{to['webhook_id']}'"


# -- retries -------------------------------------------------------------------------------------------------------------


@fact("every failure is retried", "status is failed after the fourth attempt, with the error as a sentence")
@pytest.mark.parametrize("answer", [301, 400, 404, 410, 422, 429, 500])
def test_every_failure_is_tried_four_times(webhooks: Served, receiver: Receiver, answer: int) -> None:
    to = webhook(webhooks, receiver)
    one = failed(webhooks, to, receiver, answer)
    assert (one["attempts"], one["response_code"], one["next_retry_at"]) == (4, answer, None)
    assert one["error_message"] and one["error_message"].endswith(".")
    assert webhooks.program.get(f"/webhook-deliveries/{one['delivery_id']}").json == one
    assert webhooks.program.get(f"/webhooks/{to['webhook_id']}").json["enabled"] is True


async def starts(stage: Theatre) -> list[float]:
    (delivery,) = await stage.api.deliveries.page()
    attempts = await stage.api.deliveries.attempts(delivery.delivery_id)
    return [(one.started_at - attempts.items[0].started_at).total_seconds() for one in attempts]


@fact("tried at once, then after 1, 5 and 15 minutes", "due deliveries are picked up within a second")
async def test_the_tries_follow_the_schedule(stage: Theatre) -> None:
    """On a simulated clock."""
    stage.receiver.behaves(status(500))
    await stage.api.endpoints.create(name="billing", url=stage.receiver.url(), event_types=["order.*"])
    await stage.api.send("order.paid", {})
    await stage.pass_time(1_260)
    assert await starts(stage) == [0, 60, 360, 1_260]


# -- cleanup -------------------------------------------------------------------------------------------------------------


@fact("all deliveries older than 7 days are removed, failed ones too", "the count is logged", "the period is a setting")
def test_old_deliveries_are_removed(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver) -> None:
    """With a period of 0.01 days, and deliveries that are made an hour older in the database."""
    assert profile.app.settings.retention_days == profile.app.settings.dead_retention_days == 7
    days = {"DOORSTEP_RETENTION_DAYS": "0.01", "DOORSTEP_DEAD_RETENTION_DAYS": "0.01", "DOORSTEP_RETRY_DELAYS": "0.1"}
    folder = tmp_path_factory.mktemp("old")
    with profile_served("webhooks", "sqlite", folder, None, **days) as served:
        to = webhook(served, receiver)
        send(served, to)
        ended(served, to, "success")
        failed(served, to, receiver)
        older = "settled_at = settled_at - 3600000000, created_at = created_at - 3600000000"
        with sqlite3.connect(folder / "doorstep.db", timeout=30) as database:
            database.execute(f"UPDATE doorstep_deliveries SET {older}")
    with profile_served("webhooks", "sqlite", folder, None, **days) as served:
        wait_for(lambda: not served.rows("SELECT * FROM webhook_deliveries"))
        (line,) = wait_for(lambda: [one for one in served.facts("notice") if one["message"] == "cleaned"])
        counts = {name: line[name] for name in ("deliveries", "dead_letters")}
        assert counts == {"deliveries": 1, "dead_letters": 1}


# -- circuit ---------------------------------------------------------------------------------------------------------------


@fact(
    "5 failures in a row close the webhook to deliveries",
    "for 5 minutes",
    "SQL: a view webhooks with consecutive_failures and circuit_open_until",
)
def test_five_failures_open_the_circuit_for_five_minutes(webhooks: Served, receiver: Receiver) -> None:
    to = webhook(webhooks, receiver)
    failed(webhooks, to, receiver)
    assert webhooks.program.get(f"/webhooks/{to['webhook_id']}").json["consecutive_failures"] == 4
    send(webhooks, to)
    seen = wait_for(lambda: opened(webhooks, to))
    until = datetime.fromisoformat(seen["circuit_open_until"])
    assert seen["consecutive_failures"] == 5
    assert 280 < (until - datetime.now(UTC)).total_seconds() <= 300
    (row,) = webhooks.rows(f"SELECT consecutive_failures, circuit_open_until FROM webhooks WHERE {_of(to)}")
    assert row["consecutive_failures"] == 5 and _instant(row["circuit_open_until"]) == until
    before = len(receiver.received)
    send(webhooks, to)
    assert [one["attempts"] for one in deliveries(webhooks, to, status="pending")] == [0, 1]
    assert len(receiver.received) == before


def opened(served: Served, to: Json) -> Json | None:
    seen = served.program.get(f"/webhooks/{to['webhook_id']}").json
    return seen if seen["circuit_open_until"] is not None else None


@fact("a success resets the count")
def test_a_success_resets_the_count(webhooks: Served, receiver: Receiver) -> None:
    to = webhook(webhooks, receiver)
    failed(webhooks, to, receiver)
    receiver.status = 200
    send(webhooks, to)
    ended(webhooks, to, "success")
    wait_for(lambda: webhooks.program.get(f"/webhooks/{to['webhook_id']}").json["consecutive_failures"] == 0)


# -- safety ----------------------------------------------------------------------------------------------------------------


@fact("the secret is read at each try")
def test_a_new_secret_is_used_from_the_next_try_on(webhooks: Served, receiver: Receiver) -> None:
    to = webhook(webhooks, receiver)
    secrets = [to["secret"], "whsec_" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo="]
    for number, secret in enumerate(secrets):
        if number:
            assert webhooks.program.request("PATCH", f"/webhooks/{to['webhook_id']}", {"secret": secret}).status == 200
        send(webhooks, to, number)
        wait_for(lambda: len(deliveries(webhooks, to, status="success")) == number + 1)  # noqa: B023  called at once
        request = receiver.received[-1]
        Webhook(secret).verify(request.headers, request.body)


@fact("a disabled webhook is not called")
def test_a_disabled_webhook_is_not_called(webhooks: Served, receiver: Receiver) -> None:
    to = webhook(webhooks, receiver, enabled=False)
    assert to["enabled"] is False
    before = len(receiver.received)
    send(webhooks, to)
    (one,) = deliveries(webhooks, to)
    assert (one["status"], one["attempts"]) == ("pending", 0)
    enabled = webhooks.program.request("PATCH", f"/webhooks/{to['webhook_id']}", {"enabled": True})
    assert enabled.json["enabled"] is True
    ended(webhooks, to, "success")
    assert len(receiver.received) == before + 1


@fact("a deleted webhook ends its deliveries as failed")
def test_a_deleted_webhook_ends_its_deliveries(webhooks: Served, receiver: Receiver) -> None:
    to = webhook(webhooks, receiver, enabled=False)
    send(webhooks, to)
    assert webhooks.program.request("DELETE", f"/webhooks/{to['webhook_id']}").status == 204
    one = ended(webhooks, to, "failed")
    assert (one["attempts"], "deleted" in one["error_message"]) == (0, True)
    assert webhooks.program.get(f"/webhooks/{to['webhook_id']}").status == 404


# -- SQL -------------------------------------------------------------------------------------------------------------------


@fact(
    "SQL: a view webhook_deliveries with a numeric id and the fields of a delivery",
    "SQL: timestamps are timestamps, and the payload is JSON",
)
def test_people_see_deliveries_with_sql(webhooks: Served, receiver: Receiver) -> None:
    to = webhook(webhooks, receiver)
    send(webhooks, to, {"long": "x" * 2_000})
    one = ended(webhooks, to, "success")
    columns = ", ".join(["id", *FIELDS])
    (row,) = webhooks.rows(f"SELECT {columns} FROM webhook_deliveries WHERE {_of(to)}")
    assert isinstance(row["id"], int)
    assert {name: str(row[name]) for name in ("delivery_id", "webhook_id", "event_id")} == {
        name: one[name] for name in ("delivery_id", "webhook_id", "event_id")
    }
    payload = json.loads(row["payload"]) if isinstance(row["payload"], str) else row["payload"]
    assert payload == one["payload"] == {"long": "x" * 2_000}
    same = ("event_type", "status", "attempts", "response_code", "error_message", "next_retry_at")
    assert {name: row[name] for name in same} == {name: one[name] for name in same}
    for name in ("created_at", "last_attempt_at"):
        assert _instant(row[name]) == datetime.fromisoformat(one[name])
    later = "SELECT count(*) AS n FROM webhook_deliveries WHERE created_at > '2026-01-01'"
    assert webhooks.rows(later)[0]["n"] >= 1


@fact("SQL: people with logins of their own read the views, each of one organization")
def test_people_with_logins_read_the_views_of_their_organization(
    webhooks: Served, receiver: Receiver, request: pytest.FixtureRequest
) -> None:
    if webhooks.database_url.startswith("sqlite"):
        return  # it has no logins
    to = webhook(webhooks, receiver)
    send(webhooks, to, "of the first organization")
    ended(webhooks, to, "success")
    other = webhooks.program.post("/v1/orgs", {"name": "another"}).json
    body = {"url": receiver.url, "event_types": ["of.another"]}
    theirs = webhooks.program.post("/webhooks", body, key=other["admin_key"]["key"]).json["webhook_id"]
    group, mark = f"people_{uuid4().hex}", uuid4().hex
    people = {"ada": (DEFAULT_ORG, "viewer"), "ben": (other["org_id"], "viewer"), "cara": (DEFAULT_ORG, "consumer")}
    server: PostgresServer = request.getfixturevalue("postgres_server")
    database = webhooks.database_url.rpartition("/")[2]
    logins = {person: f"{person}_{mark}" for person in people}
    server.sql(f"CREATE ROLE {group} NOLOGIN")
    try:
        for login in logins.values():
            server.sql(f"CREATE ROLE {login} LOGIN IN ROLE {group}")
        granted = doorstep("migrate", "--grant-users", group, "--database", webhooks.database_url)
        assert granted.code == 0, granted.err
        with psycopg.connect(webhooks.database_url, autocommit=True) as owner:
            owner.execute(f"GRANT SELECT ON webhook_deliveries, webhooks TO {group}")  # type: ignore[arg-type]
            for person, (org_id, role) in people.items():
                entry = "INSERT INTO doorstep_logins (login, identity, org_id, role) VALUES (%s, 'login', %s, %s)"
                owner.execute(entry, [logins[person], org_id, role])
        seen = {person: _seen(webhooks, login) for person, login in logins.items()}
    finally:
        server.sql(f"DROP OWNED BY {group}", database=database)
        for role in (*logins.values(), group):
            server.sql(f"DROP ROLE IF EXISTS {role}")
    mine = to["webhook_id"]
    assert mine in seen["ada"].webhooks and mine in seen["ada"].deliveries and theirs not in seen["ada"].webhooks
    assert (seen["ben"].webhooks, seen["ben"].deliveries) == ({theirs}, set())
    assert (seen["cara"].webhooks, seen["cara"].deliveries) == (set(), set()), "consumers read the inbox only"
    assert "of the first organization" in seen["ada"].told
    assert seen["ben"].told == seen["cara"].told == "", "a function in the query is shown no row of others"


class _Seen(NamedTuple):
    """What somebody reads in the two views, and the payloads that a function in the query was shown."""

    webhooks: set[str]
    deliveries: set[str]
    told: str


_LEAK = """CREATE FUNCTION pg_temp.leak(payload json) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS
$$ BEGIN RAISE NOTICE '%', payload; RETURN true; END $$"""


def _seen(webhooks: Served, login: str) -> _Seen:
    url = re.sub(r"//[^@]*@", f"//{login}@", webhooks.database_url)
    told: list[str] = []
    with psycopg.connect(url, autocommit=True) as connection:
        connection.add_notice_handler(lambda notice: told.append(notice.message_primary or ""))
        for attack in ("SET doorstep.org = '*'", "SET row_security = off", _LEAK):
            with suppress(psycopg.Error):
                connection.execute(attack)
        with suppress(psycopg.Error):
            connection.execute("SELECT count(*) FROM webhook_deliveries WHERE pg_temp.leak(payload)").fetchall()
        with suppress(psycopg.Error):
            connection.execute("SET row_security = on")
        read = [
            {str(row[0]) for row in connection.execute(f"SELECT webhook_id FROM {view}")}  # type: ignore[arg-type]
            for view in ("webhooks", "webhook_deliveries")
        ]
        connection.execute("SELECT count(*) FROM webhook_deliveries WHERE pg_temp.leak(payload)").fetchall()
    return _Seen(*read, "".join(told))


def _instant(value: Any) -> datetime:
    return value if isinstance(value, datetime) else datetime.fromisoformat(value)
