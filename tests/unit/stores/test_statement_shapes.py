"""Statements with list parameters: few distinct SQL texts for all lengths, and the same rows."""

from __future__ import annotations

import sqlite3

import pytest
from sqlalchemy import ColumnClause, column, select, table
from sqlalchemy.dialects import sqlite
from sqlalchemy.sql.expression import bindparam

from doorstep.stores.sql.queries.transaction import execute, prepare

_N: ColumnClause[int] = column("n")
_NUMBERS = select(_N).select_from(table("numbers")).where(_N.in_(bindparam("keys", expanding=True)))
_DIALECT = sqlite.dialect()


def test_lists_of_a_thousand_lengths_have_a_dozen_texts_at_most() -> None:
    texts = {prepare(execute(_NUMBERS, keys=list(range(length))), _DIALECT).text for length in range(1_001)}
    assert len(texts) <= 12


@pytest.mark.parametrize("length", [0, 1, 2, 3, 5, 8, 9, 100])
def test_a_list_of_any_length_finds_its_rows_once_and_no_others(length: int) -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE numbers (n INTEGER)")
    connection.executemany("INSERT INTO numbers VALUES (?)", [(n,) for n in range(200)])
    step = prepare(execute(_NUMBERS, keys=list(range(length))), _DIALECT)
    assert sorted(connection.execute(step.text, step.arguments[0])) == [(n,) for n in range(length)]
    connection.close()
