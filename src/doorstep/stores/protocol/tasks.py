"""Tasks that one process at a time should do."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from doorstep.clock import Instant


class Task(StrEnum):
    """What one process at a time should do."""

    OUTBOX = "outbox"
    ROLLER = "roller"
    WATCH = "watch"
    METER = "meter"


class TaskStore(Protocol):
    """Who has the right to which."""

    async def hold(self, task: Task, holder: str, now: Instant, until: Instant) -> bool:
        """Take or keep the right to a task, unless somebody else has it. It ends with `leave`, at `until` (by the store's
        own time), or earlier when the process is gone. Only a way to save work: two who do it at once do no harm."""

    async def leave(self, task: Task, holder: str) -> None:
        """Let go of that right, if one has it."""
