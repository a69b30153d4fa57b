"""Connections of asyncpg, and those that its pools hand out."""

from __future__ import annotations

from typing import Any

from doorstep.stores.sql.posting.row import POSTGRESQL, Letter
from doorstep.stores.transactions import check_transaction

_MARKS = ("$1", "$2", "$3", "$4", "$5", "$6")


async def insert(connection: Any, letter: Letter) -> None:
    letter.check_dialect(POSTGRESQL)
    check_transaction(connection)
    await connection.execute(letter.statement(*_MARKS), *letter.values())
    letter.wake()
