"""Writes and reads many rows in one step of SQLite.

The standard library's sqlite3 module releases the global interpreter lock (GIL) on every step, that is, for every row.
It may then wait a long time to get the lock back. Measured times:

- Reading 500 rows while two other threads are busy with sockets takes 60 µs per row if rows are fetched one by one. It
  takes 2.4 µs per row if the columns are packed into one row.
- Writing while another thread is always busy takes 3,900 µs per row with executemany, and 28 µs with statements of 128
  rows. Without other threads, these take 14 µs and 8 µs per row.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import accumulate, chain, pairwise
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from doorstep.clock import Instant
from doorstep.model.rollup import FIGURES, Span
from doorstep.stores.sql.queries.figures import counters_sql
from doorstep.stores.tally import Tally

ROWS_MAX = 128
"""The number of rows per statement. Larger statements gain nothing (measured: 8.8 µs per row with 16 rows, 7.9 µs with
128)."""

_numbers = msgspec.json.Decoder(list[Any]).decode


# -- writing -----------------------------------------------------------------------------------------------


def write_rows(connection: sqlite3.Connection, statement: str, rows: Sequence[tuple[object, ...]]) -> int:
    """Run a statement in which `{rows}` stands for a list of VALUES. Returns the number of changed rows.

    Rows are written in portions of 128, 64, … 1. So each statement has only eight different SQL texts, and all of them
    stay prepared.
    """
    changed = 0
    for part in _portions(rows):
        text = _text(statement, len(part), len(part[0]))
        changed += connection.execute(text, tuple(chain.from_iterable(part))).rowcount
    return changed


def _portions(rows: Sequence[tuple[object, ...]]) -> Iterator[Sequence[tuple[object, ...]]]:
    start = 0
    while start < len(rows):
        size = min(ROWS_MAX, 1 << ((len(rows) - start).bit_length() - 1))
        yield rows[start : start + size]
        start += size


@cache
def _text(statement: str, rows: int, width: int) -> str:
    row = f"({', '.join('?' * width)})"
    return statement.format(rows=", ".join([row] * rows))


def as_list(keys: Iterable[object]) -> str:
    """Keys as a JSON array, to pass as the parameter of `IN (SELECT value FROM json_each(?))`."""
    return f"[{','.join(map(str, keys))}]"


ADD_HISTORY = (
    "INSERT INTO doorstep_history (delivery_id, move, org_id, at, old_state, new_state, attempt, note) VALUES {rows}"
)

# -- counters ----------------------------------------------------------------------------------------------

ADD_COUNTS = counters_sql("VALUES {rows}")
"""Writes all counters, although most are 0, in 4 µs per row. A statement with only the nonzero counters would take 3
µs, but its text would differ each time, so it would have to be prepared each time."""
_SHARD = 0


def add_counts(connection: sqlite3.Connection, tally: Tally, at: Instant) -> None:
    """Add the changes of this transaction to the counters of the minute that contains `at`."""
    minute = Span.MINUTE.start(at)
    rows = [
        (*owner, minute, _SHARD, *[figures.get(name, 0) for name in FIGURES]) for owner, figures in tally.rows.items()
    ]
    write_rows(connection, ADD_COUNTS, rows)


# -- reading -----------------------------------------------------------------------------------------------


class Numbers(NamedTuple):
    """A column of integers, of text that needs no escaping in JSON, or of NULLs."""

    expression: str


class Texts(NamedTuple):
    """A column of text that is never NULL and contains no NUL character (stores/limits.py ensures that)."""

    expression: str


class Uids(NamedTuple):
    """A column of 16 bytes."""

    expression: str


class Blobs(NamedTuple):
    """A column of any bytes, or NULLs."""

    expression: str


Column = Numbers | Texts | Uids | Blobs


def packed(columns: Sequence[Column], source: str) -> str:
    """A query that returns columns of `source` (the FROM clause and everything after it) packed into one row.

    Pass that row to `unpacked`.

    If the order matters, `source` needs a LIMIT in addition to ORDER BY: without a LIMIT, SQLite may drop the order.
    """
    named = ", ".join(f"{column.expression} AS c{number}" for number, column in enumerate(columns))
    packs = chain.from_iterable(_packs(column, f"c{number}") for number, column in enumerate(columns))
    return f"SELECT {', '.join(packs)} FROM (SELECT {named} {source})"


def unpacked(columns: Sequence[Column], row: Sequence[Any]) -> list[list[Any]]:
    """The columns of a packed row as lists, all of the same length."""
    values = iter(row)
    return [_unpack(column, values) for column in columns]


def _packs(column: Column, name: str) -> tuple[str, ...]:
    match column:
        case Numbers():
            return (f"json_group_array({name})",)
        case Texts():
            return (f"count({name})", f"group_concat({name}, char(0))")
        case Uids():
            return (f"CAST(group_concat({name}, '') AS BLOB)",)
        case Blobs():
            return (f"json_group_array(length({name}))", f"CAST(group_concat({name}, '') AS BLOB)")


def _unpack(column: Column, values: Iterator[Any]) -> list[Any]:
    match column:
        case Numbers():
            return _numbers(next(values))
        case Texts():
            count, text = next(values), next(values)
            return text.split("\0") if count else []
        case Uids():
            whole = next(values) or b""
            # msgspec creates a UUID in 0.13 µs; UUID's own constructor takes 0.9 µs.
            return msgspec.convert([whole[start : start + 16] for start in range(0, len(whole), 16)], list[UUID])
        case Blobs():
            lengths, whole = _numbers(next(values)), next(values) or b""
            ends = accumulate((length or 0 for length in lengths), initial=0)
            parts = zip(lengths, pairwise(ends), strict=True)
            return [None if length is None else whole[start:end] for length, (start, end) in parts]
