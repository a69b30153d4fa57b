"""What a worker and a handler's process say to each other: a length, then msgpack.

worker  → process   Orders, once                    what to load, and what it may use
process → worker    Report, once                    it is ready, or why it cannot be
worker  → process   Received, one at a time
process → worker    Report                          how it went
"""

from __future__ import annotations

import importlib
import socket
import sys
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from operator import attrgetter
from types import ModuleType
from typing import Any, TypeVar

import msgspec

from doorstep.errors import ConfigError
from doorstep.model.attempt import Failure
from doorstep.model.record import Record

HEAD_BYTES = 4
FRAME_BYTES_MAX = 1024 * 1024
"""Of a report: its body is cut at 16 KiB and its traceback at 8,000 characters, so more than this is no report."""

T = TypeVar("T")


class Orders(Record, frozen=True, kw_only=True):
    """The first thing that a process is told."""

    place: Place
    search_path: list[str]
    folder: str | None
    memory_mb_max: int | None
    body_bytes_max: int


class Report(Record, frozen=True):
    """How an attempt went, or the start of the process."""

    body: bytes = b""
    failure: Failure | None = None
    worn: bool = False
    """The process has come to the end of its memory, and should be replaced."""
    begun: bool = True
    """False where the process died before it had heard of the attempt."""


def framed(message: object) -> bytes:
    content = msgspec.msgpack.encode(message)
    return len(content).to_bytes(HEAD_BYTES, "big") + content


def decoded(content: bytes, type: type[T]) -> T:
    return msgspec.msgpack.decode(content, type=type)


def read_frame(link: socket.socket) -> bytes:
    """The next frame, waited for; empty when the other side is gone."""
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


_SCRIPT = "__doorstep_main__"
"""The name under which a script is loaded again; not `__main__`, so that it does not start itself."""


class Place(Record, frozen=True, kw_only=True):
    """A function, or the Doorstep that has it as a handler."""

    module: str
    script: str | None = None
    """The file, where the module is the program itself."""
    attribute: str
    """Of the module, with dots where it is of a class."""
    handler: str | None = None
    """The name among the handlers, where the attribute is a Doorstep (or makes one)."""


def place_of(name: str, function: object, owner: object, app: str | None) -> Place:
    """Where the function is to be found: in the application that was named, else in the module that defines it."""
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
    """Import what the place says and take the function from it; whatever their module raises comes out."""
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
    """A program that was started as `python -m package.module` can be imported; one that is a script is loaded."""
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
        f"handler {name!r} cannot be isolated: a process of its own has no way to import it; define it at the top of a "
        "module, or start the program with doorstep worker --app module:name"
    )
