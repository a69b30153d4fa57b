"""Django's connections: `django.db.connection`, or one of `django.db.connections`."""

from __future__ import annotations

from typing import Any

from doorstep.stores.sql.posting.row import Letter
from doorstep.stores.transactions import check_transaction

_MARKS = ("%s",) * 6


def insert(connection: Any, letter: Letter) -> None:
    """Inside `transaction.atomic`, or with autocommit turned off."""
    letter.check_dialect(connection.vendor)
    check_transaction(connection)
    with connection.cursor() as cursor:
        cursor.execute(letter.statement(*_MARKS), letter.values())
    _wake_after_commit(connection, letter)


def _wake_after_commit(connection: Any, letter: Letter) -> None:
    """Django calls what is left with it after the outermost commit, and forgets it at a rollback; not outside atomic."""
    if connection.in_atomic_block:
        connection.on_commit(letter.wake, robust=True)
    else:
        letter.wake()
