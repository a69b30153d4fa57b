"""No payload and no secret is found where it does not belong, after a whole story at the most talkative log level.

Canaries are planted as payloads, keys, secrets, headers and passwords; then logs, answers, metrics, spans and every
column of every table are searched for them. `MAY_HOLD` says which columns may hold what. A story told by a program that
was broken on purpose shows that the search finds what it looks for.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping

import pytest

from tests.postgres_server import PostgresServer
from tests.security.canary_story import Told, tell
from tests.security.conftest import STORES

_PAYLOADS = {"payloadvalue", "payloadkey", "longpayload", "editedpayload", "outboxpayload", "batchpayload"}
MAY_HOLD: Mapping[str, set[str]] = {
    "doorstep_events.payload": _PAYLOADS,
    "doorstep_payloads.payload": _PAYLOADS,
    "doorstep_deliveries.payload": _PAYLOADS,
    "doorstep_outbox.payload": _PAYLOADS,
    "doorstep_events.metadata": {"metadata"},
    "doorstep_idempotency.key": {"idempotencykey"},
    "doorstep_attempts.response_body": {"responsebody"},
    "doorstep_attempts.response_headers": {"responseheader", "responsebody"},
    "doorstep_endpoints.document": {"urlquery"},
}
"""Payloads are kept to be delivered, answers of receivers for operators, and the URL of an endpoint is what its owner
made it: only the log and the spans never show its query. Everything else is sealed, hashed or not kept at all."""


@pytest.fixture(scope="module", params=STORES)
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Told:
    server: PostgresServer | None = None
    if request.param == "postgresql":
        server = request.getfixturevalue("postgres_server")
    return tell(tmp_path_factory.mktemp("canaries"), server, "canaries")


def test_no_canary_gets_into_logs_answers_metrics_spans_or_commands(told: Told) -> None:
    found = {place: leaked for place, content in told.places.items() if (leaked := leaks(told.canaries, content))}
    assert found == {}


def test_tables_hold_payloads_and_answers_in_their_columns_and_no_secret_anywhere(told: Told) -> None:
    found = {column: set(leaks(told.canaries, content)) for column, content in told.columns.items()}
    astray = {column: leaked - MAY_HOLD.get(column, set()) for column, leaked in found.items()}
    assert {column: leaked for column, leaked in astray.items() if leaked} == {}
    held = {"doorstep_events.payload", "doorstep_deliveries.payload", "doorstep_attempts.response_body"}
    assert {column for column in held if not found[column]} == set(), (
        "where nothing belongs there, nothing was searched"
    )


def test_the_search_finds_what_a_careless_program_lets_out(tmp_path_factory: pytest.TempPathFactory) -> None:
    told = tell(tmp_path_factory.mktemp("leaking"), None, "leaking", leak=True)
    assert "payloadvalue" in leaks(told.canaries, told.places["the log"])
    assert "payloadvalue" in leaks(told.canaries, told.places["spans"])
    assert "payloadvalue" in leaks(told.canaries, told.columns["doorstep_attempts.detail"])
    assert "payloadvalue" in leaks(told.canaries, told.columns["doorstep_attempts.reason"])


def leaks(canaries: Mapping[str, str], content: bytes) -> list[str]:
    """Which canaries are in there, as they are or in one of the usual encodings."""
    return [
        name
        for name, canary in canaries.items()
        for form in (canary.encode(), canary.encode().hex().encode(), base64.b64encode(canary.encode()))
        if form.strip(b"=") in content
    ]
