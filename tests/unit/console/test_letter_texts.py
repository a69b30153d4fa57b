"""Editing a payload must not change its meaning, and no exported cell may act as a spreadsheet formula."""

from __future__ import annotations

import csv
import io
import json

import pytest

from doorstep.console.formatting import LAYOUT_BYTES_MAX, pretty
from doorstep.console.pages.failed_deliveries import (
    COLUMNS,
    Difference,
    Line,
    compact,
    compared,
    csv_lines,
    inert,
    json_lines,
)


@pytest.mark.parametrize(
    "payload",
    [
        b'{"a":1.10}',
        b"[1e400,-0,12345678901234567890123]",
        b'{"a":1,"a":2}',
        b'"\\u00e9\\ud83d\\ude00"',
        b"{}",
        b"null",
    ],
)
def test_laying_out_a_payload_and_back_changes_nothing_of_it(payload: bytes) -> None:
    assert compact(pretty(payload)) == payload


def test_what_is_no_json_is_shown_and_sent_as_it_is() -> None:
    assert pretty(b"{half") == "{half"
    assert pretty(b"\xff") == "\ufffd"
    assert compact("{half") == b"{half"
    assert compact("[" * 5_000) == b"[" * 5_000


@pytest.mark.parametrize("depth", [1, 20, 400])
def test_no_payload_makes_a_page_of_many_megabytes_of_blanks(depth: int) -> None:
    payload = b"[" + b",".join([b"[" * depth + b"]" * depth] * (100_000 // depth)) + b"]"
    assert len(pretty(payload)) < 1.5 * LAYOUT_BYTES_MAX


def test_brackets_in_texts_are_no_levels() -> None:
    payload = b'{"a":"' + b"[" * 5_000 + b'\\"{","b":1}'
    assert "\n" in pretty(payload)


def test_a_comparison_has_the_lines_that_differ_and_some_around_them() -> None:
    before, after = pretty(b'{"a":1,"b":2,"c":3}'), pretty(b'{"a":1,"b":9,"c":3}')
    found = compared(before, after).lines
    assert Line("removed", '-  "b": 2,') in found
    assert Line("added", '+  "b": 9,') in found
    assert Line("same", '   "a": 1,') in found
    assert compared(before, before) == Difference([])


def test_texts_too_long_to_be_compared_are_not() -> None:
    assert compared("[]", "x\n" * 2_001).too_long


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", '=HYPERLINK("http://x")'])
def test_no_cell_is_a_formula(text: str) -> None:
    assert inert(text) == f"'{text}"


@pytest.mark.parametrize("text", ["order.paid", "a=b", "", "'x", "1"])
def test_other_cells_stay_as_they_are(text: str) -> None:
    assert inert(text) == text


def test_cells_with_commas_quotes_and_lines_stay_one_cell() -> None:
    row = dict.fromkeys(COLUMNS, 'a,"b"\nc')
    head, cells = csv.reader(io.StringIO(csv_lines([row], True).decode(), newline=""))
    assert head == list(COLUMNS)
    assert cells == ['a,"b"\nc'] * len(COLUMNS)


def test_a_letter_is_one_line_of_json() -> None:
    lines = json_lines([{"error_reason": "two\nlines"}, {"error_reason": None}], True).decode().splitlines()
    assert [json.loads(line) for line in lines] == [{"error_reason": "two\nlines"}, {"error_reason": None}]
