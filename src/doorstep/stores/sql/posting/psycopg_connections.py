"""Connections of psycopg 3, blocking and asyncio ones."""

from __future__ import annotations

from typing import Any

from doorstep.stores.foreign import no_transaction
from doorstep.stores.sql.posting.row import POSTGRESQL, Letter

_MARKS = ("%s",) * 6
_IDLE = 0
"""What libpq calls a connection that is in no transaction."""


def insert(connection: Any, letter: Letter) -> None:
    _check(connection, letter)
    connection.execute(letter.statement(*_MARKS), letter.values())
    letter.wake()


async def insert_async(connection: Any, letter: Letter) -> None:
    _check(connection, letter)
    await connection.execute(letter.statement(*_MARKS), letter.values())
    letter.wake()


def _check(connection: Any, letter: Letter) -> None:
    """Unless it commits each statement by itself, the insert begins a transaction where none has been."""
    letter.check_dialect(POSTGRESQL)
    if connection.autocommit and connection.info.transaction_status == _IDLE:
        raise no_transaction()
