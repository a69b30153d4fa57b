"""Many rows in one statement: whatever their values, they are read exactly as they were written."""

from __future__ import annotations

import sqlite3
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doorstep.stores.sql.sqlite.batches import (
    ROWS_MAX,
    Blobs,
    Column,
    Numbers,
    Texts,
    Uids,
    as_list,
    packed,
    unpacked,
    write_rows,
)

COLUMNS: tuple[Column, ...] = (Numbers("n"), Numbers("maybe"), Texts("t"), Uids("u"), Blobs("b"))
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)))
UIDS = st.uuids().map(lambda uid: uid.bytes)
ROWS = st.lists(st.tuples(INT64, st.none() | INT64, TEXT, UIDS, st.none() | st.binary()))


def table() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, n INTEGER, maybe INTEGER, t TEXT, u BLOB, b BLOB)")
    return connection


@given(ROWS)
def test_rows_come_out_of_one_packed_row_as_they_went_in(
    rows: list[tuple[int, int | None, str, bytes, bytes | None]],
) -> None:
    connection = table()
    assert write_rows(connection, "INSERT INTO rows (n, maybe, t, u, b) VALUES {rows}", rows) == len(rows)
    row = connection.execute(packed(COLUMNS, "FROM rows ORDER BY id LIMIT ?"), (len(rows),)).fetchone()
    expected = [(n, maybe, text, UUID(bytes=uid), blob) for n, maybe, text, uid, blob in rows]
    assert list(zip(*unpacked(COLUMNS, row), strict=True)) == expected


def test_bytes_that_are_no_text_are_packed_unchanged() -> None:
    connection = table()
    blobs = [bytes(range(256)), b"", b"\0", b"\xff\xfe\x00", b"\xed\xa0\x80", b"\xf0\x9f"]
    rows = [(1, None, "", bytes(16), blob) for blob in blobs]
    write_rows(connection, "INSERT INTO rows (n, maybe, t, u, b) VALUES {rows}", rows)
    row = connection.execute(packed((Blobs("b"),), "FROM rows ORDER BY id LIMIT 100")).fetchone()
    assert unpacked((Blobs("b"),), row) == [blobs]


@pytest.mark.parametrize("count", [0, 1, 2, 3, ROWS_MAX - 1, ROWS_MAX, ROWS_MAX + 1, 3 * ROWS_MAX + 77])
def test_any_number_of_rows_is_written_in_order(count: int) -> None:
    connection = table()
    assert write_rows(connection, "INSERT INTO rows (n) VALUES {rows}", [(n,) for n in range(count)]) == count
    assert [n for (n,) in connection.execute("SELECT n FROM rows ORDER BY id")] == list(range(count))


def test_a_statement_has_at_most_eight_texts_whatever_the_number_of_rows() -> None:
    connection = table()
    texts: set[str] = set()
    connection.set_trace_callback(lambda text: texts.add(text.split("VALUES")[1].count("(") * "x"))
    for count in range(1, 3 * ROWS_MAX):
        write_rows(connection, "INSERT INTO rows (n) VALUES {rows}", [(1,)] * count)
    assert len(texts) <= 8


def test_keys_are_one_parameter() -> None:
    connection = table()
    write_rows(connection, "INSERT INTO rows (n) VALUES {rows}", [(n,) for n in range(10)])
    found = connection.execute("SELECT id FROM rows WHERE id IN (SELECT value FROM json_each(?))", (as_list([2, 5]),))
    assert found.fetchall() == [(2,), (5,)]
