"""The outbox on the writing connection: what the forwarder does for every batch. Nothing of it need be durable."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from uuid import UUID

from doorstep.stores.sql.schema import POSTED

ANY = f"SELECT 1 FROM doorstep_outbox WHERE {POSTED} LIMIT 1"
CLEAR = "DELETE FROM doorstep_outbox WHERE uid = ?"


def any_posted(connection: sqlite3.Connection) -> bool:
    return connection.execute(ANY).fetchone() is not None


def clear(connection: sqlite3.Connection, event_ids: Sequence[UUID]) -> None:
    connection.executemany(CLEAR, [(event_id.bytes,) for event_id in event_ids])
