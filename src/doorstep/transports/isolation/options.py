"""Which handlers are to be isolated, as the program says it, and what that comes to when a worker starts."""

from __future__ import annotations

import os
from collections.abc import Mapping

from doorstep.errors import ConfigError
from doorstep.model.record import Record
from doorstep.transports.isolation.frames import place_of
from doorstep.transports.isolation.pool import Isolation, cores

_MEMORY_MB_MIN = 32
"""A Python with nothing loaded needs 10."""


class IsolationOptions(Record, frozen=True):
    """What the program says about the processes of one handler."""

    processes_max: int | None = None
    memory_mb_max: int | None = None


def isolation_options(
    name: str, isolated: bool, processes_max: int | None, memory_mb_max: int | None
) -> IsolationOptions | None:
    """None for a handler that may run in the worker itself."""
    if memory_mb_max is not None and not isolated:
        raise ConfigError(f"memory_mb_max of handler {name!r} needs a process to limit; say isolated=True too")
    if memory_mb_max is not None and memory_mb_max < _MEMORY_MB_MIN:
        raise ConfigError(f"memory_mb_max of handler {name!r} must be {_MEMORY_MB_MIN} or more, got {memory_mb_max}")
    return IsolationOptions(processes_max, memory_mb_max) if isolated else None


def isolations(
    handlers: Mapping[str, object], wishes: Mapping[str, IsolationOptions], owner: object, app: str | None
) -> dict[str, Isolation]:
    """How the handlers with a wish are isolated; ConfigError for one that no other process could import."""
    return {
        name: Isolation(
            place=place_of(name, handlers[name], owner, app),
            processes_max=wish.processes_max or cores(),
            folder=_folder(),
            memory_mb_max=wish.memory_mb_max,
        )
        for name, wish in wishes.items()
    }


def _folder() -> str | None:
    """Where the worker is when it starts; None where that is gone."""
    try:
        return os.getcwd()
    except OSError:
        return None
