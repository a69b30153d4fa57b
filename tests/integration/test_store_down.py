"""The program on PostgreSQL, during a database outage and after it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.http_calls import Answer
from tests.support.postgres_server import PostgresServer
from tests.support.program import Program, serving, wait_for
from tests.support.receiver import Receiver
from tests.support.stretching import stretched

SECRET_KEY = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
EVENT = {"event_type": "order.paid", "payload": {"order": 1}}


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A PostgreSQL server for this test alone, because the test stops it."""
    server = PostgresServer(durable=False).start()
    server.create_database("program")
    yield server
    server.destroy()


def test_while_the_database_is_away_events_are_refused_with_a_503_and_afterwards_everything_goes_on(
    tmp_path: Path, server: PostgresServer, receiver: Receiver
) -> None:
    environment = {"DOORSTEP_DATABASE_URL": server.url("program"), "DOORSTEP_SECRET_KEY": SECRET_KEY}
    with serving(tmp_path, environment=environment) as program:
        program.post("/v1/endpoints", {"name": "shop", "url": receiver.url})
        before = program.post("/v1/events", EVENT).json["event_id"]
        wait_for(lambda: is_delivered(program, before))
        server.stop("immediate")
        refused = program.post("/v1/events", EVENT)
        check_refused(refused)
        check_refused(program.get(f"/v1/events/{before}"))
        check_refused(program.get("/readyz"))
        assert program.get("/healthz").status == 200
        server.start()
        after = wait_for(lambda: accepted(program.post("/v1/events", EVENT)))
        wait_for(lambda: is_delivered(program, after))
        assert program.get("/readyz").status == 200
        assert not [line for line in program.out if "Traceback" in line]


def test_while_the_database_is_frozen_senders_are_refused_as_soon_as_that_is_known(
    tmp_path: Path, server: PostgresServer
) -> None:
    environment = {"DOORSTEP_DATABASE_URL": server.url("program"), "DOORSTEP_SECRET_KEY": SECRET_KEY}
    with serving(tmp_path, environment=environment) as program:
        assert accepted(program.post("/v1/events", EVENT))
        server.freeze()
        try:
            began = time.monotonic()
            check_refused(program.post("/v1/events", EVENT))
            first = time.monotonic() - began
            check_refused(program.post("/v1/events", EVENT))
            second = time.monotonic() - began - first
        finally:
            server.thaw()
        assert first < stretched(6), "a command may take 15 s"
        assert second < stretched(1)
        wait_for(lambda: accepted(program.post("/v1/events", EVENT)))


def check_refused(answer: Answer) -> None:
    assert answer.status == 503, answer.body
    assert answer.headers["retry-after"] == "1"
    assert answer.json["type"] == "urn:doorstep:problem:store_unavailable"
    assert b"127.0.0.1" not in answer.body, "nothing about the inside is told"


def accepted(answer: Answer) -> str | None:
    return answer.json["event_id"] if answer.status == 202 else None


def is_delivered(program: Program, event_id: str) -> bool:
    answer = program.get(f"/v1/events/{event_id}/status")
    return answer.status == 200 and answer.json["status"] == "delivered"
