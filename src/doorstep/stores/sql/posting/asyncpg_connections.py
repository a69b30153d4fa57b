"""Connections of asyncpg, and those that its pools hand out."""

from __future__ import annotations

from typing import Any

from doorstep.stores.foreign import no_transaction
from doorstep.stores.sql.posting.row import POSTGRESQL, Letter

_MARKS = ("$1", "$2", "$3", "$4", "$5", "$6")


async def insert(connection: Any, letter: Letter) -> None:
    letter.check_dialect(POSTGRESQL)
    if not connection.is_in_transaction():
        raise no_transaction()
    await connection.execute(letter.statement(*_MARKS), *letter.values())
    letter.wake()
