"""Handlers in separate processes: if a process crashes, only its current attempt fails.

`pool.py` manages the processes of one handler, and `child.py` runs inside each of them. This module defines the
settings of isolated handlers, the place from which a process imports its function, and the messages between worker and
process. Each message is a length followed by msgpack:

worker  → process   Orders, once                    the function to load, and its limits
process → worker    Report, once                    the process is ready, or why it could not start
worker  → process   Received, one at a time         an attempt
process → worker    Report                          the result of the attempt
"""

from __future__ import annotations

import importlib
import os
import socket
import sys
from collections.abc import Callable, Mapping
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from operator import attrgetter
from types import ModuleType
from typing import Any, TypeVar

import msgspec

from doorstep.errors import ConfigError
from doorstep.model.record import Record
from doorstep.transports.handler_replies import Ending

T = TypeVar("T")

_MEMORY_MB_MIN = 32
"""The smallest limit allowed. A Python process with no application loaded needs 10 MB."""


class Isolation(Record, frozen=True, kw_only=True):
    """The settings for the processes of an isolated handler."""

    place: Place
    processes_max: int
    folder: str | None = None
    """The working directory of the processes, for relative paths of the application. None means the worker's."""
    memory_mb_max: int | None = None


class IsolationOptions(Record, frozen=True):
    """The options that the application sets for the processes of one handler."""

    processes_max: int | None = None
    memory_mb_max: int | None = None


def _cores() -> int:
    """The number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def isolation_options(
    name: str, isolated: bool, processes_max: int | None, memory_mb_max: int | None
) -> IsolationOptions | None:
    """Check the options of a handler and return them; None if it is not isolated and runs in the worker itself."""
    if memory_mb_max is not None and not isolated:
        raise ConfigError(f"memory_mb_max of handler {name!r} only limits separate processes; also set isolated=True")
    if memory_mb_max is not None and memory_mb_max < _MEMORY_MB_MIN:
        raise ConfigError(f"memory_mb_max of handler {name!r} must be {_MEMORY_MB_MIN} or more, got {memory_mb_max}")
    return IsolationOptions(processes_max, memory_mb_max) if isolated else None


def isolations(
    handlers: Mapping[str, object], options: Mapping[str, IsolationOptions], owner: object, app: str | None
) -> dict[str, Isolation]:
    """The isolation settings of each handler in `options`. Raises ConfigError if another process could not import a
    handler."""
    return {
        name: Isolation(
            place=place_of(name, handlers[name], owner, app),
            processes_max=chosen.processes_max or _cores(),
            folder=_folder(),
            memory_mb_max=chosen.memory_mb_max,
        )
        for name, chosen in options.items()
    }


def _folder() -> str | None:
    """The working directory of the worker; None if it no longer exists."""
    try:
        return os.getcwd()
    except OSError:
        return None


_SCRIPT = "__doorstep_main__"
"""The module name under which a handler process loads the main script. It is not `__main__`, so that the code under
`if __name__ == "__main__"` does not run."""


class Place(Record, frozen=True, kw_only=True):
    """Where a handler process finds its function: in a module, or through the Doorstep object that registered it."""

    module: str
    script: str | None = None
    """The file of the main script, if the module is a script that cannot be imported by name."""
    attribute: str
    """The name of the attribute in the module, with dots if it belongs to a class."""
    handler: str | None = None
    """The name of the handler, if the attribute is a Doorstep object or a function that creates one."""


def place_of(name: str, function: object, owner: object, app: str | None) -> Place:
    """The place from which to import the function: `app` if it is given, otherwise the module that defines the
    function. Raises ConfigError if another process could not import the function."""
    if app is not None:
        module, _, attribute = app.partition(":")
        return Place(module=module, attribute=attribute, handler=name)
    home = sys.modules.get(getattr(function, "__module__", None) or "")
    if home is None:
        raise ConfigError(_nowhere(name))
    if _reaches(home, path := getattr(function, "__qualname__", ""), function):
        return _in(home, name, attribute=path)
    for attribute, value in vars(home).items():
        if value is owner:
            return _in(home, name, attribute=attribute, handler=name)
    raise ConfigError(_nowhere(name))


def find(place: Place) -> Callable[..., Any]:
    """Import the function. Exceptions that the application's code raises are not caught."""
    module = importlib.import_module(place.module) if place.script is None else _load_script(place.script)
    found = attrgetter(place.attribute)(module)
    if place.handler is None:
        return found  # type: ignore[no-any-return]
    owner = found if hasattr(found, "registry") else found()
    return owner.registry.handlers[place.handler]  # type: ignore[no-any-return]


def _reaches(home: ModuleType, path: str, function: object) -> bool:
    try:
        return attrgetter(path)(home) is function
    except AttributeError:
        return False


def _in(home: ModuleType, name: str, **rest: Any) -> Place:
    """A place in this module. A main program started with `python -m package.module` is imported by its name; a script
    is loaded from its file."""
    if home.__name__ != "__main__":
        return Place(module=home.__name__, **rest)
    if home.__spec__ is not None:
        return Place(module=home.__spec__.name, **rest)
    if script := getattr(home, "__file__", None):
        return Place(module=_SCRIPT, script=script, **rest)
    raise ConfigError(_nowhere(name))


def _load_script(path: str) -> ModuleType:
    loader = SourceFileLoader(_SCRIPT, path)
    spec = spec_from_loader(_SCRIPT, loader)
    assert spec is not None
    module = sys.modules[_SCRIPT] = module_from_spec(spec)
    loader.exec_module(module)
    return module


def _nowhere(name: str) -> str:
    return (
        f"handler {name!r} cannot be isolated: a separate process cannot import it; define it at the top of a "
        "module, or start the program with doorstep worker --app module:name"
    )


# -- messages --------------------------------------------------------------------------------------------------

HEAD_BYTES = 4
FRAME_BYTES_MAX = 1024 * 1024
"""The maximum size of a report. Its body is cut at 16 KiB, and its traceback at 8,000 characters."""


class Orders(Record, frozen=True, kw_only=True):
    """The first message to a process: where to find its function, and its limits."""

    isolation: Isolation
    search_path: list[str]


class Report(Ending, frozen=True):
    """The result of an attempt, or of starting the process."""

    worn: bool = False
    """Whether the process must be replaced: it ran out of memory, could not load its function, or has crashed."""


def framed(message: object) -> bytes:
    content = msgspec.msgpack.encode(message)
    return len(content).to_bytes(HEAD_BYTES, "big") + content


def decoded(content: bytes, type: type[T]) -> T:
    return msgspec.msgpack.decode(content, type=type)


def read_frame(link: socket.socket) -> bytes:
    """Wait for the next frame and return its content; empty if the other side has closed the connection."""
    size = int.from_bytes(_read(link, HEAD_BYTES), "big")
    return _read(link, size) if size else b""


def _read(link: socket.socket, size: int) -> bytes:
    content = bytearray()
    while len(content) < size:
        part = link.recv(size - len(content))
        if not part:
            return b""
        content += part
    return bytes(content)
