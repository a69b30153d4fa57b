"""Tells the event loop that a file is written, so that an idle process need not check it at intervals.

It uses inotify, which exists only on Linux. The kernel reports writes of every process, also those of this one, so the
watch is set only while this process itself writes nothing.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import struct
from collections.abc import Callable
from contextlib import suppress

_MODIFIED = 0x2
"""IN_MODIFY of inotify(7)."""
_EVENT = struct.Struct("=iIII")
_EVENTS_BYTES = 256 * _EVENT.size


class FileWatch:
    """While it is set, calls `changed` in the event loop after a write to the file."""

    def __init__(self, path: str, loop: asyncio.AbstractEventLoop, changed: Callable[[], None]) -> None:
        self._path = os.fsencode(path)
        self._loop = loop
        self._changed = changed
        self._library = ctypes.CDLL(None, use_errno=True)
        self._watch = -1
        self._handle = -1
        if hasattr(self._library, "inotify_init1"):
            self._handle = self._library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._handle >= 0:
            loop.add_reader(self._handle, self._on_write)

    def set(self) -> bool:
        """Watch the file. Returns whether that is possible. May be called in any thread."""
        if self._handle < 0:
            return False
        if self._watch >= 0:
            return True
        self._watch = self._library.inotify_add_watch(self._handle, self._path, _MODIFIED)
        return self._watch >= 0

    def unset(self) -> None:
        """Watch no longer. May be called in any thread."""
        if self._watch >= 0:
            self._library.inotify_rm_watch(self._handle, self._watch)
            self._watch = -1

    def close(self) -> None:
        """Call this in the event loop."""
        if self._handle >= 0:
            with suppress(RuntimeError):  # the loop is closed, and reads nothing any more
                self._loop.remove_reader(self._handle)
            os.close(self._handle)
            self._handle = -1

    def _on_write(self) -> None:
        with suppress(BlockingIOError):
            events = os.read(self._handle, _EVENTS_BYTES)
            # The file is watched by its own name, so events have no name after them. One is reported for each `unset`.
            if any(mask & _MODIFIED for _, mask, _, _ in _EVENT.iter_unpack(events)):
                self._changed()
