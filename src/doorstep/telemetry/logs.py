"""Writes the log: a telemetry subscriber with its own thread.

The thread encodes and writes the lines, so that a slow or closed reader of the output can neither block nor crash the
engine. Lines that do not fit into the queue or cannot be written are counted, and the count is logged later. Uncaught
errors and the records of the standard library's logging are also written to this log, in the form of notices.
"""

from __future__ import annotations

import logging
import os
import re
import select
import stat
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple, cast
from weakref import WeakSet

from msgspec import UNSET
from msgspec.structs import replace

from doorstep.clock import SECOND, to_iso
from doorstep.telemetry.facts import RANKS, Fact, Format, Level, Notice, Subscriber, json_lines, text_format
from doorstep.telemetry.redaction import NONE, Secrets, safe_message, scrubbed, traceback_of

WAITING_MAX = 200_000
"""The maximum number of facts that wait for a slow reader (about 60 MiB). Further facts are dropped."""
LINGER_SECONDS = 0.05
"""How long the thread collects facts before it writes them. Without this pause, it woke up for each step of each event,
which at 100 events a second took 0.12 ms of CPU per event."""
_INFO = RANKS["info"]


class LogWriter:
    """A telemetry subscriber that queues facts and writes them soon after.

    After `close`, and in a forked process, facts are written immediately, because the thread is not running and the
    process may end at any moment.
    """

    dropped_ever: ClassVar[int] = 0
    """The number of lines that were dropped or could not be written, in all logs of this process."""

    def __init__(
        self,
        format: Format,
        *,
        level: Level = "info",
        output: int = 1,
        waiting_max: int = WAITING_MAX,
        secrets: Secrets = NONE,
    ) -> None:
        self._format = format
        self._secrets = secrets
        self._rank = RANKS[level]
        self._output = LogOutput(output)
        self._waiting_max = waiting_max
        self._reset()
        self._thread: threading.Thread | None = threading.Thread(target=self._run, name="doorstep-logs", daemon=True)
        self._thread.start()
        _writers.add(self)

    def _reset(self) -> None:
        """Set the initial state. This is also called in a forked process, where the parent's locks might never be
        released. Facts that were waiting at the time of the fork are written by the parent."""
        self._batches: deque[Sequence[Fact]] = deque()
        self._lock = threading.RLock()  # re-entrant, because garbage collection may run a finalizer that logs
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
                self._count_lost(LinesLost(len(facts), "the reader is too slow"))
                return
            self._waiting += len(facts)
            self._batches.append(facts)
        if not self._awake.is_set():
            self._awake.set()
        if not self.alive:
            self._write_waiting()

    def close(self, timeout_seconds: float = 2.0) -> None:
        """Write the facts that are still waiting. If the reader is slow, stop waiting for it after
        `timeout_seconds`."""
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
            self._stopping.wait(LINGER_SECONDS)
            self._awake.clear()
            self._write_waiting()
        self._write_waiting()

    def _write_waiting(self) -> None:
        while facts := self._next():
            logged = [fact for fact in facts if RANKS.get(fact.level, _INFO) >= self._rank]
            try:
                self._output.write(self._lines(logged))
                self._report_lost(facts[-1].at)
            except LinesLost as lost:  # the store still has the full history
                with self._lock:
                    self._count_lost(lost)

    def _next(self) -> Sequence[Fact]:
        with self._lock:
            facts = self._batches.popleft() if self._batches else ()
            self._waiting -= len(facts)
        return facts

    # -- lost lines ----------------------------------------------------------------------------------------

    def _count_lost(self, lost: LinesLost) -> None:
        LogWriter.dropped_ever += lost.count
        self._lost = LinesLost(self._lost.count + lost.count, lost.why)

    def _report_lost(self, at: str) -> None:
        with self._lock:
            lost, self._lost = self._lost, LinesLost(0, "")
        if not lost.count:
            return
        message = f"log lines were lost: {lost.why}"
        notice = Notice(at=at, level="warning", message=message, fields={"count": lost.count})
        try:
            self._output.write(self._format([notice]))
        except LinesLost:
            with self._lock:
                self._lost = LinesLost(self._lost.count + lost.count, lost.why)

    # -- formatting ----------------------------------------------------------------------------------------

    def _lines(self, facts: Sequence[Fact]) -> bytes:
        try:
            return self._formatted(facts)
        except Exception:  # noqa: BLE001  one fact cannot be formatted; a notice about it is logged instead
            if len(facts) > 1:
                return b"".join(self._lines([fact]) for fact in facts)
            message = f"cannot format this fact: {type(facts[0]).__name__}"
            return self._format([Notice(at=facts[0].at, level="error", message=message)])

    def _formatted(self, facts: Sequence[Fact]) -> bytes:
        lines = self._format(facts)
        if self._secrets.found_in(lines):
            return self._format([without(fact, self._secrets) for fact in facts])
        return lines


_FREE_TEXT = frozenset({"message", "fields", "error", "error_reason", "reason", "traceback"})
"""Fields with free text, in which secrets are hidden. The values of all other fields are created by Doorstep itself. If
a secret were a common word, hiding it in these values would garble them."""


def without(fact: Fact, secrets: Secrets) -> Fact:
    """The fact with the secrets hidden in its free text."""
    given = {name: getattr(fact, name) for name in fact.__struct_fields__ if name in _FREE_TEXT}
    hidden = secrets.hidden_in({name: value for name, value in given.items() if value is not UNSET})
    return replace(fact, **cast(dict[str, Any], hidden))


def open_log(
    level: Level, log_format: str, output: int = 1, secrets: Secrets = NONE, lines: Format = json_lines
) -> LogWriter:
    """Open the log of this process and route the standard library's logging into it. The log hides the `secrets`. Unless
    it is text, `lines` formats it."""
    format = text_format(colour=os.isatty(output)) if _is_text(log_format, output) else lines
    writer = LogWriter(format, level=level, output=output, secrets=secrets)
    route_standard_logging(writer, level)
    return writer


@contextmanager
def embedded_log(
    level: Level, log_format: str, secrets: Secrets = NONE, lines: Format = json_lines
) -> Iterator[LogWriter]:
    """`open_log` for a program that embeds Doorstep. If the program has configured logging, its configuration stays in
    effect. Everything is restored at the end.

    With JSON, an error that leaves this block is also logged, because the program or Python prints it only as text.
    """
    routing, log = Routing.current(), open_log(level, log_format, secrets=secrets, lines=lines)
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


_writers: WeakSet[LogWriter] = WeakSet()


def _reset() -> None:
    LogWriter.dropped_ever = 0
    for writer in list(_writers):
        writer._reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset)


class LinesLost(Exception):
    """Some lines could not be written; `count` is their number."""

    def __init__(self, count: int, why: str) -> None:
        super().__init__(count, why)
        self.count = count
        self.why = why


class LogOutput:
    """Writes lines, and starts a new line after a write that failed in the middle of one."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._torn = False
        """Whether the last write failed in the middle of a line."""

    def write(self, lines: bytes) -> None:
        """Write these lines. Raises LinesLost with the number of lines that were not written in full."""
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
    """Write the data; yields the number of bytes of each write.

    A slow reader takes large data in small pieces. The data is sliced as a memoryview, so that the rest is not copied
    for each piece.
    """
    left = memoryview(data)
    while left:
        try:
            count = os.write(handle, left)
        except BlockingIOError:  # the reader is slow, and another process has made this shared handle non-blocking
            _wait(handle)
            continue
        yield count
        left = left[count:]


def _wait(handle: int) -> None:
    room = select.poll()
    room.register(handle, select.POLLOUT)
    room.poll()


def _chunks(data: bytes, handle: int) -> Iterator[bytes]:
    """The data in one chunk or, for a pipe, in chunks of whole lines. For a pipe, a chunk has at most PIPE_BUF bytes,
    unless a single line is longer: larger writes could be interleaved with those of other workers."""
    if len(data) <= select.PIPE_BUF or not stat.S_ISFIFO(os.fstat(handle).st_mode):
        yield data
        return
    start = 0
    while start < len(data):
        end = data.rfind(b"\n", start, start + select.PIPE_BUF) + 1 or data.find(b"\n", start) + 1
        yield data[start:end]
        start = end


# -- the standard library's logging ----------------------------------------------------------------------------

_OURS = "doorstep"
_log = logging.getLogger(_OURS)


class NoticeHandler(logging.Handler):
    """Turns log records of other libraries (uvicorn, alembic, asyncio) into notices, so that all lines have one format."""

    def __init__(self, write: Subscriber) -> None:
        super().__init__()
        self._write = write

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._write((_notice_of(record),))
        except Exception:  # noqa: BLE001  the library that logs must never see our errors
            self.handleError(record)


def route_standard_logging(write: Subscriber, level: Level) -> None:
    root = logging.getLogger()
    root.handlers[:] = [NoticeHandler(write)]
    # For other libraries, only warnings and errors are logged, even at level debug. Their other messages may contain
    # anything: SQLAlchemy's contain the parameters of every statement.
    root.setLevel(RANKS["error" if level == "error" else "warning"])
    _log.setLevel(RANKS[level])
    threading.excepthook = _Hook(_log_thread_error, threading.excepthook, threading.__excepthook__)
    sys.unraisablehook = _Hook(_log_unraisable, sys.unraisablehook, sys.__unraisablehook__)


class Routing(NamedTuple):
    """The logging setup of a program, saved so that it can be restored later."""

    handlers: list[logging.Handler]
    level: int
    level_of_ours: int
    thread_hook: Callable[[threading.ExceptHookArgs], Any]
    unraisable_hook: Callable[[Any], Any]

    @classmethod
    def current(cls) -> Routing:
        root = logging.getLogger()
        return cls(root.handlers[:], root.level, _log.level, threading.excepthook, sys.unraisablehook)

    def restore_logging(self) -> None:
        logging.getLogger().handlers[:] = self.handlers
        logging.getLogger().setLevel(self.level)
        _log.setLevel(self.level_of_ours)

    def restore(self) -> None:
        self.restore_logging()
        threading.excepthook, sys.unraisablehook = self.thread_hook, self.unraisable_hook


class _Hook:
    """Logs an error that Python would print to standard error, then calls the previous hook, unless that is Python's
    default."""

    def __init__(
        self, log: Callable[[Any], None], previous: Callable[[Any], Any], builtin: Callable[[Any], Any]
    ) -> None:
        self._log = log
        original = previous._previous if isinstance(previous, _Hook) else previous
        self._previous: Callable[[Any], Any] | None = None if original is builtin else original

    def __call__(self, failed: Any) -> None:
        self._log(failed)
        if self._previous is not None:
            self._previous(failed)


def crash_notice(error: Exception) -> Notice:
    """A notice about an error that stops deliveries, and perhaps the whole program."""
    fields: dict[str, object] = {"error": safe_message(error), "traceback": traceback_of(error)}
    message = "delivery was stopped by an error"
    return Notice(at=to_iso(int(time.time() * SECOND)), level="critical", message=message, fields=fields)


def _notice_of(record: logging.LogRecord) -> Notice:
    ours = record.name.partition(".")[0] == _OURS
    fields: dict[str, object] = {"logger": record.name} | (getattr(record, "fields", {}) if ours else {})
    if correlation_id := getattr(record, "correlation_id", None):
        fields["correlation_id"] = correlation_id
    if record.exc_info and record.exc_info[1] is not None:
        fields["traceback"] = traceback_of(record.exc_info[1])
    level = record.levelname.lower()
    return Notice(
        at=to_iso(int(record.created * SECOND)),
        level=level if level in RANKS else "info",
        message=record.getMessage() if ours else _foreign_message(record),
        fields=fields,
    )


def _foreign_message(record: logging.LogRecord) -> str:
    """The first line of the message, with credentials removed. For asyncio, the `repr` of a call or task is removed
    too, because it shows arguments."""
    line = record.getMessage().partition("\n")[0]
    if record.name == "asyncio":
        line = re.split(r"[(<]", line, maxsplit=1)[0].rstrip()
    return scrubbed(line)


def _log_thread_error(failed: threading.ExceptHookArgs) -> None:
    if failed.exc_value is not None and not isinstance(failed.exc_value, SystemExit):
        name = failed.thread.name if failed.thread is not None else "unknown"
        _log.error("the thread %s died", name, exc_info=failed.exc_value)


def _log_unraisable(failed: Any) -> None:
    """Log an error that cannot be raised, such as one in `__del__` or a callback of the garbage collector. The object's
    `repr` is not logged."""
    if failed.exc_value is not None:
        name = getattr(failed.object, "__qualname__", type(failed.object).__qualname__)
        _log.error("an error was ignored in %s", name, exc_info=failed.exc_value)
