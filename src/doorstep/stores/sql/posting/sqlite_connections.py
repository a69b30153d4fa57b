"""Connections of sqlite3, and of aiosqlite."""

from __future__ import annotations

from typing import Any

from doorstep.stores.foreign import no_transaction
from doorstep.stores.sql.posting.row import SQLITE, Letter

_MARKS = ("?",) * 6


def insert(connection: Any, letter: Letter) -> None:
    _check(connection, letter)
    connection.execute(letter.statement(*_MARKS), letter.values())
    letter.wake()


async def insert_async(connection: Any, letter: Letter) -> None:
    _check(connection, letter)
    async with connection.execute(letter.statement(*_MARKS), letter.values()):
        letter.wake()


def _check(connection: Any, letter: Letter) -> None:
    """In most modes the insert itself begins a transaction, where none has been."""
    letter.check_dialect(SQLITE)
    commits_each = connection.isolation_level is None or getattr(connection, "autocommit", None) is True
    if commits_each and not connection.in_transaction:
        raise no_transaction()
