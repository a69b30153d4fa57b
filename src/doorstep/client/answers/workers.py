"""Workers."""

from __future__ import annotations

from datetime import datetime

from doorstep.client.answers.answer import Answered


class Worker(Answered, frozen=True, kw_only=True):
    """A process that delivers, as it last said of itself."""

    name: str
    state: str
    """`alive`, or `lost`: not heard of for more than 35 seconds."""
    host: str
    pid: int
    version: str
    started_at: datetime
    seen_at: datetime
    places: int
    places_in_use: int
    handlers: tuple[str, ...]
    tasks: tuple[str, ...]
