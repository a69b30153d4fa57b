"""Who does a task that one process at a time should do: until when somebody holds it is a mark."""

from __future__ import annotations

import sqlite3

from doorstep.clock import Instant
from doorstep.stores.store import Task

HOLD = "UPDATE doorstep_marks SET value = ? WHERE name = ? AND (value <= ? OR value = ?)"
LEAVE = "UPDATE doorstep_marks SET value = 0 WHERE name = ? AND value = ?"


class Locks:
    """One's own mark is told by its end: no other has it to the microsecond."""

    def __init__(self) -> None:
        self._until: dict[tuple[Task, str], Instant] = {}

    def take(self, connection: sqlite3.Connection, task: Task, holder: str, now: Instant, until: Instant) -> bool:
        mine = self._until.get((task, holder), 0)
        held = connection.execute(HOLD, (until, task.value, now, mine)).rowcount == 1
        self._until[task, holder] = until if held else 0
        return held

    def leave(self, connection: sqlite3.Connection, task: Task, holder: str) -> None:
        if mine := self._until.pop((task, holder), 0):
            connection.execute(LEAVE, (task.value, mine))
