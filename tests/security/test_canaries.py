"""No payload or secret appears where it does not belong, after a full story at the most verbose log level.

Canaries are planted as payloads, keys, secrets, headers and passwords. Then logs, answers, metrics, spans and every
column of every table are searched for them. `MAY_HOLD` lists which columns may contain which canaries. A story with a
deliberately broken program shows that the search finds leaks.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import quote

import pytest

from doorstep.encryption import new_secret_key
from tests.security.canary_story import CANARIES, Told, tell
from tests.security.conftest import IN_TIERS
from tests.support.postgres_server import PostgresServer

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
    "doorstep_endpoints.document": {"urlquery", "slackurl"},
    "doorstep_entities.data": {"entitydata"},
}
"""Payloads are stored for delivery, and receivers' answers for operators. The URL of an endpoint is stored as its owner
gave it; only logs and spans never show its query. Everything else is sealed, hashed or not stored."""


@pytest.fixture(scope="module", params=IN_TIERS)
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


@pytest.mark.full
def test_the_search_finds_what_a_careless_program_lets_out(tmp_path_factory: pytest.TempPathFactory) -> None:
    told = tell(tmp_path_factory.mktemp("leaking"), None, "leaking", leak=True)
    assert {"payloadvalue", "adminkey", "smtppassword", "sealingkey"} <= set(found_in(told, told.places["the log"]))
    assert "payloadvalue" in found_in(told, told.places["spans"])
    for column in ("detail", "reason", "code"):
        assert {"payloadvalue", "entitydata"} <= set(found_in(told, told.columns[f"doorstep_attempts.{column}"])), (
            column
        )
    assert "entitydata" in found_in(told, told.columns["doorstep_entities.error_reason"])


WRITTEN: Mapping[str, Callable[[str], bytes]] = {
    "as it is": str.encode,
    "hexadecimal": lambda text: text.encode().hex().encode(),
    "HEXADECIMAL": lambda text: text.encode().hex().upper().encode(),
    "base64": lambda text: base64.b64encode(text.encode()),
    "base64 behind a user": lambda text: base64.b64encode(f"u:{text}".encode()),
    "base64 within a text": lambda text: base64.b64encode(f"{{{text}, and so on".encode()),
    "base64 for URLs": lambda text: base64.urlsafe_b64encode(f"user:{text}:".encode()),
    "percent": lambda text: quote(text, safe="").encode(),
    "percent within percent": lambda text: quote(quote(text, safe=""), safe="").encode(),
    "JSON": lambda text: json.dumps(text).encode(),
    "JSON with slashes": lambda text: json.dumps(text).replace("/", "\\/").encode(),
    "JSON within JSON": lambda text: json.dumps(json.dumps(text)).encode(),
    "Python": lambda text: repr(text).encode(),
}


def test_the_search_finds_every_canary_in_every_usual_encoding(subtests: pytest.Subtests) -> None:
    """The canaries include secrets as programs generate them, with characters that some formats escape."""
    for way in WRITTEN:
        with subtests.test(way=way):
            planted = dict(CANARIES) | {"sealingkey": new_secret_key(), "odd": "a/b+c=\"d'é\\%40?"}
            for name, canary in planted.items():
                middle = len(canary) // 2
                another = canary[:middle] + ("x" if canary[middle] != "x" else "y") + canary[middle + 1 :]
                for text, found in ((canary, [name]), (another, [])):
                    assert leaks({name: canary}, b"before " + WRITTEN[way](text) + b" after") == found


def found_in(told: Told, content: bytes) -> list[str]:
    return leaks(told.canaries, content)


def leaks(canaries: Mapping[str, str], content: bytes) -> list[str]:
    """The canaries that the content contains, as they are or in a usual encoding."""
    return [name for name, canary in canaries.items() if any(form in content for form in _forms(canary))]


def _forms(canary: str) -> set[bytes]:
    escaped = {canary, quote(canary, safe=""), quote(quote(canary, safe=""), safe=""), repr(canary)[1:-1]}
    for text in (json.dumps(canary), json.dumps(canary, ensure_ascii=False)):
        escaped |= {text[1:-1], text[1:-1].replace("/", "\\/"), json.dumps(text[1:-1])[1:-1]}
    plain = canary.encode()
    encoded = {plain.hex().encode(), plain.hex().upper().encode(), *_in_base64(plain)}
    return {text.encode() for text in escaped} | encoded


def _in_base64(data: bytes) -> Iterator[bytes]:
    """The part of the base64 text that does not depend on the surrounding bytes, for each of the three alignments."""
    for before in range(3):
        sure = slice((before * 8 + 5) // 6, (before + len(data)) * 8 // 6)
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(bytes(before) + data)[sure]
