"""How the command line parses and prints durations, shares and times."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import typer

from doorstep.cli.options import duration_seconds, future, option_parser, past, share
from doorstep.cli.output import duration
from doorstep.clock import from_datetime

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "value"),
    [("5", 5), ("5s", 5), ("500ms", 0.5), ("2m", 120), ("2min", 120), ("1.5h", 5_400), ("7d", 604_800), (" 3 s ", 3)],
)
def test_a_span_is_a_number_with_a_unit(text: str, value: float) -> None:
    assert duration_seconds(text) == value


@pytest.mark.parametrize("text", ["", "s", "-5s", "5 weeks", "1e3", "nan", "5s5s"])
def test_what_is_no_span_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="such as 5s"):
        duration_seconds(text)


@pytest.mark.parametrize(("text", "value"), [("30%", 0.3), ("0.3", 0.3), ("0%", 0), ("100%", 1), ("1", 1)])
def test_a_share_is_a_percentage_or_a_fraction(text: str, value: float) -> None:
    assert share(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "%", "130%", "-1%", "30", "nan", "half"])
def test_what_is_no_share_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="such as 30%"):
        share(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2026-11-15T12:00:00Z", NOON),
        ("2026-11-15T13:00:00+01:00", NOON),
        ("2026-11-15 12:00", NOON),
        ("2026-11-15", NOON.replace(hour=0)),
        ("2h", NOON.replace(hour=10)),
        ("2h ago", NOON.replace(hour=10)),
    ],
)
def test_a_time_is_iso_8601_or_a_span_before_now(text: str, value: datetime) -> None:
    assert past(text, from_datetime(NOON)) == value


@pytest.mark.parametrize(("text", "value"), [("2026-11-15T12:00:00Z", NOON), ("1h", NOON.replace(hour=13))])
def test_a_time_to_come_counts_a_span_on_from_now(text: str, value: datetime) -> None:
    assert future(text, from_datetime(NOON)) == future(f"in {text}" if text == "1h" else text, from_datetime(NOON))
    assert future(text, from_datetime(NOON)) == value


@pytest.mark.parametrize("text", ["", "yesterday", "12:00", "5"])
def test_what_is_no_time_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="such as 2h"):
        past(text, from_datetime(NOON))


@pytest.mark.parametrize(
    ("value", "words"),
    [(0, "0 s"), (0.5, "0.5 s"), (45, "45 s"), (300, "5 min"), (5_400, "1 h 30 min"), (187_200, "2 d 4 h")],
)
def test_spans_are_shown_in_two_units_at_most(value: float, words: str) -> None:
    assert duration(value) == words


def test_an_option_that_cannot_be_read_is_wrong_usage_in_the_words_of_its_parser() -> None:
    with pytest.raises(typer.BadParameter, match="such as 5s"):
        option_parser(duration_seconds)("soon")
