"""Telemetry passes facts to all subscribers, and a subscriber's error does not reach the engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from doorstep.telemetry.facts import Fact, Notice, Telemetry
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
