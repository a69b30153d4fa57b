"""Workers: the processes that deliver."""

from __future__ import annotations

from typing import Annotated

from doorstep.schemas.shape import Answer, CountedPagination, Listing, Time, choice


class Worker(Answer, frozen=True):
    """A process that delivers, as it last said of itself; it does so every 10 seconds."""

    name: str
    """As in the attempt log and in the logs; another one each time that a process starts."""
    state: Annotated[str, choice("alive", "lost")]
    """`lost`: not heard of for more than 35 seconds. What it held is due again when the leases end."""
    host: str
    pid: int
    version: str
    started_at: Time
    seen_at: Time
    places: int
    """How many attempts it runs at once, at most."""
    places_in_use: int
    handlers: tuple[str, ...]
    """The Python handlers that it can run."""
    tasks: tuple[str, ...]
    """Of what one process at a time does, what it did within the last minute and a half."""


class WorkerPage(Listing[Worker], frozen=True):
    """All of them."""

    workers: tuple[Worker, ...]
    pagination: CountedPagination
