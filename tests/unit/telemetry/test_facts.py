"""Telemetry passes facts to all subscribers, and a subscriber's error does not reach the engine."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from uuid import UUID

import pytest

from doorstep.telemetry.facts import Fact, Notice, StatusTransition, Telemetry, json_format
from doorstep.telemetry.tracing import Tracing

NOTICE = Notice(at=1, level="info", message="something happened")


def test_what_a_subscriber_raises_reaches_neither_the_engine_nor_the_others(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[Fact] = []

    def clumsy(_: Sequence[Fact]) -> None:
        raise ValueError("of its own")

    Telemetry(clumsy, heard.extend).emit(NOTICE)
    assert heard == [NOTICE]
    assert "clumsy" in caplog.text and "of its own" in caplog.text


def test_spans_that_cannot_be_made_or_taken_cost_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> Iterator[bytes]:
        yield b"a span"
        raise ValueError("no span")

    taken: list[bytes] = []
    Tracing(taken.extend).record(broken())
    assert taken == []
    assert "no span" in caplog.text


def test_a_program_names_its_service_and_changes_its_lines() -> None:
    failure = Notice(at="2026-01-01T00:00:00.000000Z", level="info", message="started", fields={"service": "no"})
    transition = StatusTransition(
        at="2026-01-01T00:00:00.000000Z",
        event_id=UUID(int=1),
        old_status=None,
        new_status="failed",
        retry_attempts=3,
        correlation_id="c",
        org_id=UUID(int=2),
        user_id="ada",
        failed_at="2026-01-01T00:00:00.000000Z",
        last_error="It is down.",
    )
    lines = json_format("shop", {"status_transition": lambda line: {**line, "org_id": None}})([failure, transition])
    first, second = map(json.loads, lines.splitlines())
    assert (first["service"], first["message"]) == ("shop", "started")
    assert (second["service"], second["user_id"], second["org_id"]) == ("shop", "ada", None)
    assert (second["failed_at"], second["last_error"]) == ("2026-01-01T00:00:00.000000Z", "It is down.")
