"""Form and query fields are parsed from text to the expected type, or refused by field name."""

from __future__ import annotations

from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doorstep.console.fields import Fields
from doorstep.console.request import HOME, inside
from doorstep.errors import InvalidInput
from doorstep.model.event import EventStatus

READERS = ("id", "ids", "moment", "status", "number", "whole")


def read(kind: str, fields: Fields) -> object:
    match kind:
        case "status":
            return fields.choice("x", EventStatus)
        case "number" | "whole":
            return getattr(fields, kind)("x", 0, 100)
    return getattr(fields, kind)("x")


@given(st.text(), st.sampled_from(READERS))
def test_whatever_is_given_is_read_or_refused_by_its_name(text: str, kind: str) -> None:
    try:
        read(kind, Fields([("x", text)]))
    except InvalidInput as error:
        assert error.field == "x"


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "101", "1e999", "٣٤٥"])
def test_numbers_keep_within_their_bounds(text: str) -> None:
    with pytest.raises(InvalidInput):
        Fields([("x", text)]).number("x", 0, 100)


def test_an_empty_field_counts_as_not_given() -> None:
    fields = Fields([("x", "  "), ("y", "1")])
    assert fields.text("x") is None
    assert not fields.flag("x")
    assert fields.pairs == [("y", "1")]


def test_a_query_can_be_said_again_with_other_values() -> None:
    fields = Fields([("status", "failed"), ("cursor", "5")])
    assert fields.where(cursor=None) == "status=failed"
    assert fields.where(cursor="a b&c") == "status=failed&cursor=a+b%26c"


def test_ids_are_ids() -> None:
    one, other = uuid4(), uuid4()
    assert Fields([("id", str(one)), ("id", f" {other} ")]).ids("id") == [one, other]


def test_a_time_without_a_zone_is_in_utc() -> None:
    assert Fields([("x", "1970-01-01T00:00:01")]).moment("x") == 1_000_000
    assert Fields([("x", "1970-01-01T01:00:01+01:00")]).moment("x") == 1_000_000


@given(st.text())
def test_nobody_is_sent_away_from_the_console(path: str) -> None:
    assert inside(path) == HOME or inside(path).startswith((HOME + "/", HOME + "?"))


@pytest.mark.parametrize(
    "path", ["//evil.example", "https://evil.example/console", "/consolevil", "/console/\r\nX: y", "/console/\\evil"]
)
def test_what_only_looks_like_the_console_is_not_gone_to(path: str) -> None:
    assert inside(path) == HOME
