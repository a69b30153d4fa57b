"""What a worker and a handler's process say to each other: a length, then msgpack.

worker  → process   Orders, once                    what to load, and what it may use
process → worker    Report, once                    it is ready, or why it cannot be
worker  → process   Received, one at a time
process → worker    Report                          how it went
"""

from __future__ import annotations

import socket
from typing import TypeVar

import msgspec

from doorstep.model.noun import Noun
from doorstep.model.outcome import Failure
from doorstep.wire.isolation.places import Place

HEAD_BYTES = 4
FRAME_BYTES_MAX = 1024 * 1024
"""Of a report: its body is cut at 16 KiB and its traceback at 8,000 characters, so more than this is no report."""

T = TypeVar("T")


class Orders(Noun, frozen=True, kw_only=True):
    """The first thing that a process is told."""

    place: Place
    search_path: list[str]
    folder: str | None
    memory_mb_max: int | None
    body_bytes_max: int


class Report(Noun, frozen=True):
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
