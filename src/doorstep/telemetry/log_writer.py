"""Writes the log: a subscriber of telemetry with a thread of its own, and the standard library's logging beside it.

The thread encodes and writes, so that a slow or closed reader of our output can neither stop nor crash the
engine. When the reader is too slow, lines are dropped, counted, and the count is told once there is room.
"""

from __future__ import annotations

import logging
import os
import re
import select
import stat
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

from doorstep.clock import SECOND, Instant
from doorstep.telemetry.facts import Fact, Notice
from doorstep.telemetry.logs import RANKS, Level, Words, json_lines, level_of, text_words
from doorstep.telemetry.scrubbing import NONE, Secrets, scrubbed, traceback_of

WAITING_MAX = 200_000
"""Facts that may wait for a slow reader before more are dropped: about 60 MiB of them."""


class LogWriter:
    """A subscriber of telemetry: takes facts at once, writes them soon after."""

    dropped_ever: ClassVar[int] = 0
    """Facts that found no room, in all logs of this process."""

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
        self._output = output
        self._waiting_max = waiting_max
        self._batches: deque[Sequence[Fact]] = deque()
        self._lock = threading.Lock()
        self._waiting = 0
        self._dropped = 0
        self._stopping = threading.Event()
        self._awake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="doorstep-logs", daemon=True)
        self._thread.start()

    def __call__(self, facts: Sequence[Fact]) -> None:
        with self._lock:
            if self._waiting + len(facts) > self._waiting_max:
                self._dropped += len(facts)
                LogWriter.dropped_ever += len(facts)
                return
            self._waiting += len(facts)
            self._batches.append(facts)
        self._awake.set()

    def close(self, timeout_seconds: float = 2.0) -> None:
        """Write what is waiting, but do not wait for a reader that does not read."""
        self._stopping.set()
        self._awake.set()
        self._thread.join(timeout_seconds)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._awake.wait()
            self._awake.clear()
            self._write_waiting()
        self._write_waiting()

    def _write_waiting(self) -> None:
        while self._batches:
            facts, dropped = self._next()
            self._write([fact for fact in facts if RANKS[level_of(fact)] >= self._rank])
            if dropped:
                self._write([_dropped_notice(facts[-1].at, dropped)])

    def _next(self) -> tuple[Sequence[Fact], int]:
        """The next batch, and how many facts had no room since the last one."""
        with self._lock:
            facts = self._batches.popleft()
            self._waiting -= len(facts)
            dropped, self._dropped = self._dropped, 0
        return facts, dropped

    def _write(self, facts: Sequence[Fact]) -> None:
        if not facts:
            return
        try:
            for chunk in _chunks(self._secrets.hide(self._words(facts)), self._output):
                _write_all(self._output, chunk)
        except OSError:
            return  # nobody reads (EPIPE), or the disk is full: the history in the store still tells it all
        except Exception:  # noqa: BLE001  a fact that cannot be worded must not silence the ones after it
            self._fall_back(facts)

    def _fall_back(self, facts: Sequence[Fact]) -> None:
        for fact in facts:
            notice = Notice(at=fact.at, level="error", message=f"cannot word this fact: {type(fact).__name__}")
            try:
                _write_all(self._output, self._secrets.hide(self._words([notice])))
            except OSError:
                return


def open_log(level: Level, log_format: str, output: int = 1, secrets: Secrets = NONE) -> LogWriter:
    """The log of this process, with the standard library's logging routed into it, and without these secrets."""
    text = log_format == "text" or (log_format == "auto" and os.isatty(output))
    words = text_words(colour=os.isatty(output)) if text else json_lines
    writer = LogWriter(words, level=level, output=output, secrets=secrets)
    route_standard_logging(writer, level)
    return writer


@contextmanager
def log_of_a_guest(level: Level, log_format: str, secrets: Secrets = NONE) -> Iterator[LogWriter]:
    """`open_log` in a program that is not ours: logging that it has set up by itself stays its own, and afterwards all
    is as it was."""
    root, hook = logging.getLogger(), threading.excepthook
    handlers, root_level = root.handlers[:], root.level
    log = open_log(level, log_format, secrets=secrets)
    try:
        if handlers:
            root.handlers[:] = handlers
            root.setLevel(root_level)
        yield log
    finally:
        log.close()
        root.handlers[:], threading.excepthook = handlers, hook
        root.setLevel(root_level)


# -- the standard library's logging ----------------------------------------------------------------------------


class NoticeHandler(logging.Handler):
    """Turns log records of other libraries (uvicorn, alembic, asyncio) into notices, so that all lines look alike."""

    def __init__(self, writer: Callable[[Sequence[Fact]], None]) -> None:
        super().__init__()
        self._writer = writer

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._writer((_notice_of(record),))
        except Exception:  # noqa: BLE001  the library that logs must never see our trouble with it
            self.handleError(record)


def route_standard_logging(writer: Callable[[Sequence[Fact]], None], level: Level) -> None:
    root = logging.getLogger()
    root.handlers[:] = [NoticeHandler(writer)]
    # Others' libraries speak up at warnings only, even at debug: their informative lines are about themselves, and may
    # quote anything. SQLAlchemy's show the parameters of every statement.
    root.setLevel(RANKS["error" if level == "error" else "warning"])
    logging.getLogger(_OURS).setLevel(RANKS[level])
    threading.excepthook = _tell_thread_death


_OURS = "doorstep"


def _notice_of(record: logging.LogRecord) -> Notice:
    ours = record.name.partition(".")[0] == _OURS
    fields: dict[str, object] = {"logger": record.name} | (getattr(record, "fields", {}) if ours else {})
    if correlation_id := getattr(record, "correlation_id", None):
        fields["correlation_id"] = correlation_id
    if record.exc_info and record.exc_info[1] is not None:
        fields["traceback"] = traceback_of(record.exc_info[1])
    level = record.levelname.lower()
    return Notice(
        at=int(record.created * SECOND),
        level=level if level in RANKS else "info",
        message=record.getMessage() if ours else _others_words(record),
        fields=fields,
    )


def _others_words(record: logging.LogRecord) -> str:
    """The first line, without keys; and of asyncio's no `repr` of a call or task, which shows its arguments."""
    line = record.getMessage().partition("\n")[0]
    if record.name == "asyncio":
        line = re.split(r"[(<]", line, maxsplit=1)[0].rstrip()
    return scrubbed(line)


def _tell_thread_death(death: threading.ExceptHookArgs) -> None:
    """Otherwise Python writes it to standard error, in its own words."""
    if death.exc_value is not None and not isinstance(death.exc_value, SystemExit):
        name = death.thread.name if death.thread is not None else "unknown"
        logging.getLogger(_OURS).error("the thread %s died", name, exc_info=death.exc_value)


# -- writing ---------------------------------------------------------------------------------------------------


def _chunks(data: bytes, output: int) -> Iterable[bytes]:
    """Whole, except into a pipe: there only writes up to PIPE_BUF are never mixed with those of other workers."""
    if len(data) <= select.PIPE_BUF or not stat.S_ISFIFO(os.fstat(output).st_mode):
        return (data,)
    return _cut_at_lines(data, select.PIPE_BUF)


def _cut_at_lines(data: bytes, size: int) -> Iterator[bytes]:
    start = 0
    while start < len(data):
        end = data.rfind(b"\n", start, start + size) + 1 or data.find(b"\n", start) + 1
        yield data[start:end]
        start = end


def _write_all(output: int, data: bytes) -> None:
    while data:
        data = data[os.write(output, data) :]


def _dropped_notice(at: Instant, count: int) -> Notice:
    return Notice(
        at=at, level="warning", message="log lines were dropped: the reader is too slow", fields={"count": count}
    )
