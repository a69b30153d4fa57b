"""Connections of psycopg 3, blocking and asyncio ones."""

from __future__ import annotations

from typing import Any

from doorstep.stores.sql.posting.row import POSTGRESQL, Letter
from doorstep.stores.transactions import check_transaction

_MARKS = ("%s",) * 6


def insert(connection: Any, letter: Letter) -> None:
    letter.check_dialect(POSTGRESQL)
    check_transaction(connection)
    connection.execute(letter.statement(*_MARKS), letter.values())
    letter.wake()


async def insert_async(connection: Any, letter: Letter) -> None:
    letter.check_dialect(POSTGRESQL)
    check_transaction(connection)
    await connection.execute(letter.statement(*_MARKS), letter.values())
    letter.wake()
