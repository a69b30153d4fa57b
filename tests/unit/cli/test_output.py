"""Command output: tables for people, JSON for programs, and no control sequences that a terminal would execute."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from uuid import UUID

import pytest
from rich.console import Console

from doorstep.cli.output import Column, Output, cell, visible
from doorstep.model.record import Record


class Thing(Record, frozen=True, kw_only=True):
    thing_id: UUID
    name: str
    at: datetime | None = None


THING = Thing(thing_id=UUID(int=7), name="shop", at=datetime(2026, 11, 15, 12, 0, 1, 5, tzinfo=UTC))
COLUMNS = (Column("id", "thing_id", whole=True), Column("name", "name"), Column("twice", lambda one: one.name * 2))


def written(*, as_json: bool, terminal: bool = False) -> tuple[Output, io.StringIO]:
    file = io.StringIO()
    console = Console(file=file, width=120, highlight=False, markup=False, emoji=False, force_terminal=terminal)
    return Output(as_json=as_json, console=console), file


def test_a_list_is_one_json_document_and_nothing_else() -> None:
    output, file = written(as_json=True)
    output.listing({"things": [THING]}, [THING], COLUMNS, "none")
    output.text("words for people")
    assert json.loads(file.getvalue()) == {
        "things": [{"thing_id": str(THING.thing_id), "name": "shop", "at": "2026-11-15T12:00:01.000005Z"}]
    }


def test_a_list_is_a_table_with_whole_ids() -> None:
    output, file = written(as_json=False)
    output.listing(None, [THING], COLUMNS, "none")
    assert str(THING.thing_id) in file.getvalue()
    assert "shopshop" in file.getvalue()


@pytest.mark.parametrize(("width", "shown"), [(80, False), (200, True)])
def test_a_narrow_terminal_is_shown_less(width: int, shown: bool) -> None:
    file = io.StringIO()
    output = Output(console=Console(file=file, width=width))
    output.listing(None, [THING], (*COLUMNS, Column("spare", lambda _: "spare-value", spare=True)), "none")
    assert ("spare-value" in file.getvalue()) == shown
    assert str(THING.thing_id) in file.getvalue()


def test_an_empty_list_is_said_beside_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    output, file = written(as_json=False)
    output.listing(None, [], COLUMNS, "No things.")
    assert file.getvalue() == ""
    assert capsys.readouterr().err == "No things.\n"


def test_one_thing_shows_each_field_on_a_line() -> None:
    output, file = written(as_json=False)
    output.answer(THING)
    assert [line.split() for line in file.getvalue().splitlines()] == [
        ["thing_id", str(THING.thing_id)],
        ["name", "shop"],
        ["at", "2026-11-15T12:00:01Z"],
    ]


def test_nothing_from_outside_reaches_the_terminal_as_a_command() -> None:
    output, file = written(as_json=False, terminal=True)
    hostile = "a\x1b]0;owned\x07b\x9b31m\u202e[red]c"
    output.listing(None, [{"name": hostile}], (Column("name", "name"),), "none")
    output.answer({"name": hostile})
    output.line(None, hostile)
    output.text(hostile)
    shown = file.getvalue()
    assert "\x1b]0" not in shown
    assert "\x9b" not in shown
    assert "\u202e" not in shown
    assert "[red]c" in shown, "and it is no markup of ours either"


def test_control_characters_are_shown_as_escapes_and_text_is_left_alone() -> None:
    assert visible("tab\tline\nbell\x07") == "tab\tline\nbell\\x07"
    assert visible("Zürich 東京 ✓") == "Zürich 東京 ✓"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "–"),
        ("", "–"),
        (True, "yes"),
        (2.0, "2"),
        (("a", "b"), "a, b"),
        ((), "–"),
        ({"a": 1}, '{"a":1}'),
        (datetime(2026, 11, 15, 12, tzinfo=UTC), "2026-11-15T12:00:00Z"),
    ],
)
def test_values_are_shown_as_people_write_them(value: object, words: str) -> None:
    assert cell(value).plain == words
