"""Connections of sqlite3, and of aiosqlite."""

from __future__ import annotations

from typing import Any

from doorstep.stores.sql.posting.row import SQLITE, Letter
from doorstep.stores.transactions import check_transaction

_MARKS = ("?",) * 6


def insert(connection: Any, letter: Letter) -> None:
    letter.check_dialect(SQLITE)
    check_transaction(connection)
    connection.execute(letter.statement(*_MARKS), letter.values())
    letter.wake()


async def insert_async(connection: Any, letter: Letter) -> None:
    letter.check_dialect(SQLITE)
    check_transaction(connection)
    async with connection.execute(letter.statement(*_MARKS), letter.values()):
        letter.wake()
