"""Writes the log: a subscriber of telemetry with a thread of its own, and the standard library's logging beside it.

The thread encodes and writes, so that a slow or closed reader of our output can neither stop nor crash the
engine. When the reader is too slow, lines are dropped, counted, and the count is told once there is room.
"""

from __future__ import annotations

import logging
import os
import select
import stat
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from doorstep.clock import SECOND, Instant
from doorstep.logs import RANKS, Level, Words, json_lines, level_of, text_words
from doorstep.telemetry import Fact, Notice

WAITING_MAX = 200_000
"""Facts that may wait for a slow reader before more are dropped: about 60 MiB of them."""


class LogWriter:
    """A subscriber of telemetry: takes facts at once, writes them soon after."""

    def __init__(self, words: Words, *, level: Level = "info", output: int = 1, waiting_max: int = WAITING_MAX) -> None:
        self._words = words
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
            for chunk in _chunks(self._words(facts), self._output):
                _write_all(self._output, chunk)
        except OSError:
            return  # nobody reads (EPIPE), or the disk is full: the history in the store still tells it all
        except Exception:  # noqa: BLE001  a fact that cannot be worded must not silence the ones after it
            self._fall_back(facts)

    def _fall_back(self, facts: Sequence[Fact]) -> None:
        for fact in facts:
            notice = Notice(at=fact.at, level="error", message=f"cannot word this fact: {type(fact).__name__}")
            try:
                _write_all(self._output, self._words([notice]))
            except OSError:
                return


def open_log(level: Level, log_format: str, output: int = 1) -> LogWriter:
    """The log of this process, with the standard library's logging routed into it."""
    text = log_format == "text" or (log_format == "auto" and os.isatty(output))
    writer = LogWriter(text_words(colour=os.isatty(output)) if text else json_lines, level=level, output=output)
    route_standard_logging(writer, level)
    return writer


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
    # Others' libraries speak up at warnings only: their informative lines are about themselves, not about deliveries.
    root.setLevel(RANKS["debug" if level == "debug" else "error" if level == "error" else "warning"])


def _notice_of(record: logging.LogRecord) -> Notice:
    fields: dict[str, object] = {"logger": record.name}
    if record.exc_info and record.exc_info[0] is not None:
        fields["traceback"] = "".join(traceback.format_exception(*record.exc_info))
    level = record.levelname.lower()
    return Notice(
        at=int(record.created * SECOND),
        level=level if level in RANKS else "info",
        message=record.getMessage(),
        fields=fields,
    )


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
