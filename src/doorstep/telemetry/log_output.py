"""Where the log goes: a file handle that others may have made non-blocking, whose disk may be full, whose reader gone."""

from __future__ import annotations

import os
import select
import stat
from collections.abc import Iterable, Iterator

from doorstep.telemetry.scrubbing import said_by


class LinesLost(Exception):
    """So many lines could not be written."""

    def __init__(self, count: int, why: str) -> None:
        super().__init__(count, why)
        self.count = count
        self.why = why


class LogOutput:
    """Writes whole lines."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._torn = False
        """The last line was written in part, when it failed."""

    def write(self, lines: bytes) -> None:
        """LinesLost with those that could not be written, the torn one among them."""
        done = 0
        try:
            if self._torn:
                self._torn = not any(_written(self._handle, b"\n"))
            for chunk in _chunks(lines, self._handle):
                for count in _written(self._handle, chunk):
                    done += count
                    self._torn = lines[done - 1 : done] != b"\n"
        except OSError as error:
            raise LinesLost(lines.count(b"\n", done), said_by(error)) from None


def _written(handle: int, data: bytes) -> Iterator[int]:
    """How much was written, each time that something was. A view: a slow reader takes a large text bit by bit, and the
    rest of it must not be copied each time."""
    left = memoryview(data)
    while left:
        try:
            count = os.write(handle, left)
        except (
            BlockingIOError
        ):  # the reader is slow, and whoever shares this handle with us does not want to wait for it
            _wait(handle)
            continue
        yield count
        left = left[count:]


def _wait(handle: int) -> None:
    room = select.poll()
    room.register(handle, select.POLLOUT)
    room.poll()


def _chunks(data: bytes, handle: int) -> Iterable[bytes]:
    """Whole, except into a pipe: there only writes up to PIPE_BUF are never mixed with those of other workers."""
    if len(data) <= select.PIPE_BUF or not stat.S_ISFIFO(os.fstat(handle).st_mode):
        return (data,)
    return _cut_at_lines(data, select.PIPE_BUF)


def _cut_at_lines(data: bytes, size: int) -> Iterator[bytes]:
    start = 0
    while start < len(data):
        end = data.rfind(b"\n", start, start + size) + 1 or data.find(b"\n", start) + 1
        yield data[start:end]
        start = end
