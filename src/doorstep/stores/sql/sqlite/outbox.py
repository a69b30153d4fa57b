"""The outbox on the writing connection: what the forwarder does for every batch. Nothing of it need be durable."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from uuid import UUID

from doorstep.clock import Instant
from doorstep.stores.sql.schema import POSTED

ANY = f"SELECT 1 FROM doorstep_outbox WHERE {POSTED} LIMIT 1"
CLEAR = "DELETE FROM doorstep_outbox WHERE uid = ?"
HOLD = "UPDATE doorstep_marks SET value = ? WHERE name = 'outbox' AND (value <= ? OR value = ?)"
LEAVE = "UPDATE doorstep_marks SET value = 0 WHERE name = 'outbox' AND value = ?"


def any_posted(connection: sqlite3.Connection) -> bool:
    return connection.execute(ANY).fetchone() is not None


def clear(connection: sqlite3.Connection, event_ids: Sequence[UUID]) -> None:
    connection.executemany(CLEAR, [(event_id.bytes,) for event_id in event_ids])


class Holding:
    """Until when somebody holds the outbox is a mark. One's own is told by its end: no other has it to the microsecond."""

    def __init__(self) -> None:
        self._until: dict[str, Instant] = {}

    def take(self, connection: sqlite3.Connection, holder: str, now: Instant, until: Instant) -> bool:
        mine = self._until.get(holder, 0)
        held = connection.execute(HOLD, (until, now, mine)).rowcount == 1
        self._until[holder] = until if held else 0
        return held

    def leave(self, connection: sqlite3.Connection, holder: str) -> None:
        connection.execute(LEAVE, (self._until.pop(holder, 0),))
