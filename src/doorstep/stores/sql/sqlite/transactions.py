"""Cold verbs on a SQLite connection: runs a script to its end."""

from __future__ import annotations

import sqlite3
from typing import TypeVar
from uuid import UUID

from sqlalchemy.dialects import sqlite

from doorstep.stores.sql.queries.transaction import Prepared, Row, Rows, Step, Transaction, prepare

T = TypeVar("T")

_DIALECT = sqlite.dialect(paramstyle="qmark")


def run_transaction(connection: sqlite3.Connection, script: Transaction[T]) -> T:
    """Run a script inside the transaction that `connection` is in."""
    try:
        step = next(script)
        while True:
            step = script.send(_rows(connection, step))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def _rows(connection: sqlite3.Connection, step: Step) -> Rows:
    prepared = prepare(step, _DIALECT)
    if len(prepared.arguments) == 1:
        rows = _fetched(connection, prepared.text, _driver_values(prepared.arguments[0]))
        return [_model_values(row, prepared) for row in rows] if prepared.uid_columns or prepared.bool_columns else rows
    if prepared.arguments:
        connection.executemany(prepared.text, map(_driver_values, prepared.arguments))
    return []


def _fetched(connection: sqlite3.Connection, text: str, arguments: tuple[object, ...]) -> Rows:
    """SQLite takes any bytes for text. A row of the outbox that somebody wrote so must not keep the others from being
    read: it comes as text that nobody could have meant, and is set aside for that."""
    try:
        return connection.execute(text, arguments).fetchall()
    except sqlite3.OperationalError as error:
        if "decode to UTF-8" not in str(error) or not text.startswith("SELECT"):
            raise
    connection.text_factory = _any_text
    try:
        return connection.execute(text, arguments).fetchall()
    finally:
        connection.text_factory = str


def _any_text(written: bytes) -> str:
    return written.decode(errors="backslashreplace")


def _driver_values(arguments: tuple[object, ...]) -> tuple[object, ...]:
    return tuple(value.bytes if isinstance(value, UUID) else value for value in arguments)


def _model_values(row: Row, prepared: Prepared) -> Row:
    values = list(row)
    for place in prepared.uid_columns:
        if values[place] is not None:
            values[place] = UUID(bytes=values[place])
    for place in prepared.bool_columns:
        values[place] = bool(values[place])
    return tuple(values)
