"""Writes the log: a subscriber of telemetry with a thread of its own.

The thread encodes and writes, so that a slow or closed reader of our output can neither stop nor crash the
engine. Lines that find no room, or cannot be written, are counted, and the count is told once that is over.
"""

from __future__ import annotations

import os
import select
import stat
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar
from weakref import WeakSet

from doorstep.telemetry.facts import Fact, Notice
from doorstep.telemetry.logs import RANKS, Level, Words, json_lines, loud_enough, text_words, without
from doorstep.telemetry.redaction import NONE, Secrets, safe_message
from doorstep.telemetry.standard_logging import Routing, crash_notice, route_standard_logging

WAITING_MAX = 200_000
"""Facts that may wait for a slow reader before more are dropped: about 60 MiB of them."""
_TOO_SLOW = "the reader is too slow"


class LogWriter:
    """A subscriber of telemetry: takes facts at once, writes them soon after.

    When it is closed, and in a process that was forked, it writes them at once: there is no thread, and such a process
    may end without a word.
    """

    dropped_ever: ClassVar[int] = 0
    """Lines that found no room or could not be written, in all logs of this process."""

    def __init__(
        self,
        words: Words,
        *,
        level: Level = "info",
        output: int = 1,
        waiting_max: int = WAITING_MAX,
        secrets: Secrets = NONE,
    ) -> None:
        self._words = words
        self._secrets = secrets
        self._rank = RANKS[level]
        self._output = LogOutput(output)
        self._waiting_max = waiting_max
        self._begin_anew()
        self._thread: threading.Thread | None = threading.Thread(target=self._run, name="doorstep-logs", daemon=True)
        self._thread.start()
        _writers.add(self)

    def _begin_anew(self) -> None:
        """Here, and in a forked process: what waits is for the parent to write, and its locks may never be let go."""
        self._batches: deque[Sequence[Fact]] = deque()
        self._lock = threading.RLock()  # the garbage collector may run within it, and what it ends may log
        self._waiting = 0
        self._lost = LinesLost(0, "")
        self._stopping = threading.Event()
        self._awake = threading.Event()
        self._thread = None

    def __call__(self, facts: Sequence[Fact]) -> None:
        if not facts:
            return
        with self._lock:
            if self._waiting + len(facts) > self._waiting_max:
                self._count_lost(LinesLost(len(facts), _TOO_SLOW))
                return
            self._waiting += len(facts)
            self._batches.append(facts)
        self._awake.set()
        if not self.alive:
            self._write_waiting()

    def close(self, timeout_seconds: float = 2.0) -> None:
        """Write what is waiting, but do not wait for a reader that does not read."""
        self._stopping.set()
        self._awake.set()
        if self._thread is not None:
            self._thread.join(timeout_seconds)

    @property
    def alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._awake.wait()
            self._awake.clear()
            self._write_waiting()
        self._write_waiting()

    def _write_waiting(self) -> None:
        while facts := self._next():
            worth_it = loud_enough(facts, self._rank)
            try:
                self._output.write(self._lines(worth_it))
                self._tell_lost(facts[-1].at)
            except LinesLost as lost:  # the history in the store still tells it all
                with self._lock:
                    self._count_lost(lost)

    def _next(self) -> Sequence[Fact]:
        with self._lock:
            facts = self._batches.popleft() if self._batches else ()
            self._waiting -= len(facts)
        return facts

    # -- what is lost --------------------------------------------------------------------------------------

    def _count_lost(self, lost: LinesLost) -> None:
        LogWriter.dropped_ever += lost.count
        self._lost = LinesLost(self._lost.count + lost.count, lost.why)

    def _tell_lost(self, at: str) -> None:
        with self._lock:
            lost, self._lost = self._lost, LinesLost(0, "")
        if lost.count:
            try:
                self._output.write(self._words([_lost_notice(at, lost)]))
            except LinesLost:
                with self._lock:
                    self._lost = LinesLost(self._lost.count + lost.count, lost.why)

    # -- words ---------------------------------------------------------------------------------------------

    def _lines(self, facts: Sequence[Fact]) -> bytes:
        try:
            return self._worded(facts)
        except Exception:  # noqa: BLE001  one of them cannot be worded: the others can
            return b"".join(self._line(fact) for fact in facts)

    def _line(self, fact: Fact) -> bytes:
        try:
            return self._worded([fact])
        except Exception:  # noqa: BLE001  told in its place
            message = f"cannot word this fact: {type(fact).__name__}"
            return self._words([Notice(at=fact.at, level="error", message=message)])

    def _worded(self, facts: Sequence[Fact]) -> bytes:
        lines = self._words(facts)
        if self._secrets.found_in(lines):
            return self._words([without(fact, self._secrets) for fact in facts])
        return lines


def open_log(level: Level, log_format: str, output: int = 1, secrets: Secrets = NONE) -> LogWriter:
    """The log of this process, with the standard library's logging routed into it, and without these secrets."""
    words = text_words(colour=os.isatty(output)) if _is_text(log_format, output) else json_lines
    writer = LogWriter(words, level=level, output=output, secrets=secrets)
    route_standard_logging(writer, level)
    return writer


@contextmanager
def log_of_a_guest(level: Level, log_format: str, secrets: Secrets = NONE) -> Iterator[LogWriter]:
    """`open_log` in a program that is not ours: logging that it has set up by itself stays its own, and afterwards all
    is as it was. An error that ends what is done here is a line of the log, if that is JSON: what the program, or Python,
    says of it is none."""
    routing, log = Routing.present(), open_log(level, log_format, secrets=secrets)
    try:
        if routing.handlers:
            routing.restore_logging()
        yield log
    except Exception as error:
        if not _is_text(log_format, 1):
            log((crash_notice(error),))
        raise
    finally:
        log.close()
        routing.restore()


def _is_text(log_format: str, output: int) -> bool:
    return log_format == "text" or (log_format == "auto" and os.isatty(output))


def _lost_notice(at: str, lost: LinesLost) -> Notice:
    return Notice(at=at, level="warning", message=f"log lines were lost: {lost.why}", fields={"count": lost.count})


_writers: WeakSet[LogWriter] = WeakSet()


def _begin_anew() -> None:
    LogWriter.dropped_ever = 0
    for writer in list(_writers):
        writer._begin_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


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
            raise LinesLost(lines.count(b"\n", done), safe_message(error)) from None


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
