"""`doorstep listen` prints and verifies incoming requests, and answers them as its options specify."""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from standardwebhooks import Webhook

from tests.support.commands import doorstep
from tests.support.patience import PATIENCE_SECONDS
from tests.support.program import Program, running, wait_for

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@contextmanager
def listening(folder: Path, *arguments: str) -> Iterator[Program]:
    with running("listen", "--port", "0", *arguments, folder=folder) as program:
        wait_for(lambda: any("Listening at" in line for line in program.err))
        yield program


def url_of(program: Program) -> str:
    return next(line.split()[2] for line in program.err if "Listening at" in line)


def post(program: Program, body: bytes, headers: dict[str, str] | None = None) -> int:
    place = urlsplit(url_of(program))
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=PATIENCE_SECONDS)
    try:
        connection.request("POST", "/hook", body, headers or {})
        return connection.getresponse().status
    finally:
        connection.close()


def signed(body: bytes, secret: str = SECRET) -> dict[str, str]:
    """Webhook headers, signed by an independent library."""
    now = datetime.now(UTC)
    signature = Webhook(secret).sign("msg_1", now, body.decode())
    return {
        "webhook-id": "msg_1",
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": signature,
    }


def arrived(program: Program, count: int = 1) -> list[dict[str, Any]]:
    wait_for(lambda: len(program.out) >= count)
    return [json.loads(line) for line in program.out]


def test_what_arrives_is_printed_as_one_line_of_json_each(tmp_path: Path) -> None:
    with listening(tmp_path, "--json") as program:
        assert [post(program, b'{"n": 1}', {"X-Shop": "a"}), post(program, b"\xff\x00")] == [200, 200]
        first, second = arrived(program, 2)
    assert (first["method"], first["path"], first["body"]) == ("POST", "/hook", '{"n": 1}')
    assert first["headers"]["x-shop"] == "a"
    assert first["verified"] is None
    assert second["body"] == "\\xff\x00"


def test_a_right_signature_is_accepted_and_any_other_is_refused(tmp_path: Path) -> None:
    body = b'{"test": 2432232314}'
    other = "whsec_" + "A" * 32
    with listening(tmp_path, "--json", "--secret", SECRET) as program:
        assert post(program, body, signed(body)) == 200
        assert post(program, body, signed(body, other)) == 401
        assert post(program, body + b" ", signed(body)) == 401
        assert post(program, body) == 401
        assert [one["verified"] for one in arrived(program, 4)] == [True, False, False, False]


def test_several_secrets_are_tried_as_during_a_rotation(tmp_path: Path) -> None:
    other = "whsec_" + "A" * 32
    with listening(tmp_path, "--secret", other, "--secret", SECRET) as program:
        assert post(program, b"{}", signed(b"{}")) == 200


@pytest.mark.parametrize(
    ("arguments", "statuses"),
    [
        ((), {200}),
        (("--status", "503"), {503}),
        (("--fail", "100%"), {503}),
        (("--fail", "0%", "--status", "429"), {200}),
        (("--fail", "100%", "--status", "429"), {429}),
        (("--fail", "50%", "--status", "429"), {200, 429}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_it_fails_as_told(tmp_path: Path, arguments: tuple[str, ...], statuses: set[int]) -> None:
    with listening(tmp_path, *arguments) as program:
        assert {post(program, b"{}") for _ in range(40)} == statuses  # chance that one is missing: 1 in 500,000,000,000


def test_it_answers_as_late_as_told(tmp_path: Path) -> None:
    with listening(tmp_path, "--slow", "700ms") as program:
        started = datetime.now(UTC)
        post(program, b"{}")
        assert (datetime.now(UTC) - started).total_seconds() >= 0.7


def test_it_ends_after_so_many_requests(tmp_path: Path) -> None:
    with listening(tmp_path, "--count", "2") as program:
        post(program, b"{}")
        post(program, b"{}")
        assert program.wait() == 0


def test_it_ends_when_nobody_reads_any_more(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    with running("listen", "--port", "0", folder=tmp_path, output=writing) as program:
        os.close(writing)
        wait_for(lambda: any("Listening at" in line for line in program.err))
        os.close(reading)
        assert post(program, b"{}") == 200
        assert program.wait() == 0
    assert not any("Traceback" in line for line in program.err)


def test_what_a_sender_writes_cannot_take_over_the_terminal(tmp_path: Path) -> None:
    with listening(tmp_path, "--headers") as program:
        post(program, b"\x1b]0;owned\x07", {"X-Evil": "\x9b31m"})
        wait_for(lambda: len(program.out) > 1)
    assert not any("\x1b]" in line or "\x9b" in line for line in program.out)
    assert any("\\x1b]0;owned\\x07" in line for line in program.out)


def test_a_secret_that_cannot_be_one_is_refused_at_once(tmp_path: Path) -> None:
    ended = doorstep("listen", "--secret", "hunter2", folder=tmp_path)
    assert ended.code == 2
    assert "whsec_" in ended.err
    assert "hunter2" not in ended.err
