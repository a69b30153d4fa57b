"""The standard library's logging, and what Python itself says of errors that nobody caught: as notices of our log."""

from __future__ import annotations

import logging
import re
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from doorstep.clock import SECOND, to_iso
from doorstep.telemetry.facts import Fact, Notice
from doorstep.telemetry.logs import RANKS, Level
from doorstep.telemetry.redaction import safe_message, scrubbed, traceback_of

Write = Callable[[Sequence[Fact]], None]
_OURS = "doorstep"
_log = logging.getLogger(_OURS)


class NoticeHandler(logging.Handler):
    """Turns log records of other libraries (uvicorn, alembic, asyncio) into notices, so that all lines look alike."""

    def __init__(self, write: Write) -> None:
        super().__init__()
        self._write = write

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._write((_notice_of(record),))
        except Exception:  # noqa: BLE001  the library that logs must never see our trouble with it
            self.handleError(record)


def route_standard_logging(write: Write, level: Level) -> None:
    root = logging.getLogger()
    root.handlers[:] = [NoticeHandler(write)]
    # Others' libraries speak up at warnings only, even at debug: their informative lines are about themselves, and may
    # quote anything. SQLAlchemy's show the parameters of every statement.
    root.setLevel(RANKS["error" if level == "error" else "warning"])
    _log.setLevel(RANKS[level])
    threading.excepthook = _Hook(_tell_thread_death, threading.excepthook, threading.__excepthook__)
    sys.unraisablehook = _Hook(_tell_unraisable, sys.unraisablehook, sys.__unraisablehook__)


class Routing(NamedTuple):
    """What a program has set up of all this."""

    handlers: list[logging.Handler]
    level: int
    level_of_ours: int
    tell_thread_death: Callable[[threading.ExceptHookArgs], Any]
    tell_unraisable: Callable[[Any], Any]

    @classmethod
    def present(cls) -> Routing:
        root = logging.getLogger()
        return cls(root.handlers[:], root.level, _log.level, threading.excepthook, sys.unraisablehook)

    def restore_logging(self) -> None:
        logging.getLogger().handlers[:] = self.handlers
        logging.getLogger().setLevel(self.level)
        _log.setLevel(self.level_of_ours)

    def restore(self) -> None:
        self.restore_logging()
        threading.excepthook, sys.unraisablehook = self.tell_thread_death, self.tell_unraisable


class _Hook:
    """Tells in our log what Python would write to standard error, in its own words; then it is for the hook that was
    there before, unless that was Python's own."""

    def __init__(
        self, tell: Callable[[Any], None], before: Callable[[Any], Any], pythons: Callable[[Any], Any]
    ) -> None:
        self._tell = tell
        self._before: Callable[[Any], Any] | None = before._before if isinstance(before, _Hook) else before
        if self._before is pythons:
            self._before = None

    def __call__(self, failed: Any) -> None:
        self._tell(failed)
        if self._before is not None:
            self._before(failed)


def crash_notice(error: Exception) -> Notice:
    """Of an error that ends all delivering, and perhaps the whole program."""
    told: dict[str, object] = {"error": safe_message(error), "traceback": traceback_of(error)}
    message = "delivering was ended by an error"
    return Notice(at=to_iso(int(time.time() * SECOND)), level="critical", message=message, fields=told)


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
    if death.exc_value is not None and not isinstance(death.exc_value, SystemExit):
        name = death.thread.name if death.thread is not None else "unknown"
        _log.error("the thread %s died", name, exc_info=death.exc_value)


def _tell_unraisable(failed: Any) -> None:
    """An error where none can be raised: in `__del__`, in a callback of the garbage collector. No `repr` of whose."""
    if failed.exc_value is not None:
        name = getattr(failed.object, "__qualname__", type(failed.object).__qualname__)
        _log.error("an error was ignored in %s", name, exc_info=failed.exc_value)
