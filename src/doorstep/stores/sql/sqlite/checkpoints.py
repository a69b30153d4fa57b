"""Moving the log into the database file when it has grown: between commits, and where errors are seen.

SQLite by itself does so inside a commit, and is silent about what goes wrong there: the commit is safe in the log. But
a sync of the file that fails unnoticed is the last that anyone hears of the pages it should have covered.
"""

from __future__ import annotations

import os
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from doorstep.stores.sql.sqlite.connections import disk_failed

LOG_PAGES = 1_000
"""4 MiB of log between checkpoints: the accept that waits longest for one waits 12 to 22 ms, with 16 MiB 17 to 34 (on a
busy disk, the worst of 1,000, five runs each). The p99, 7 to 9 ms, and the CPU are the same with either."""
LOG_PAGES_MAX = 16_000
"""64 MiB: from here on it is worth waiting for the readers who keep the log from being begun anew."""
WAIT_MILLISECONDS = 50
"""For so long: our own take less; a foreign one may have forgotten to end its transaction."""


class Checkpoint(NamedTuple):
    """What SQLite tells of one."""

    busy: bool
    log_pages: int
    """-1 if another process was at it."""
    moved_pages: int

    @property
    def whole(self) -> bool:
        """All of the log is in the file, and the file is synced: SQLite does not sync one that still lacks pages."""
        return self.moved_pages == self.log_pages >= 0


class Checkpointer:
    """Knows when the log has grown enough, and what is in doubt when the disk fails."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._salt = b""
        self._due_pages = LOG_PAGES
        self._unsynced = False
        """Pages were moved by a checkpoint that readers stopped halfway, or maybe by others: nobody has synced them."""
        self._others = _Others(path)
        self.every_page = False
        """The disk failed to sync such pages. SQLite moves nothing twice, so the whole file must be written again."""

    def run_if_due(self, connection: sqlite3.Connection) -> None:
        """Move what can be moved, if so much has been written since the last time. Raises what SQLite does."""
        if self._is_due():
            self.run(connection)

    def run(self, connection: sqlite3.Connection) -> None:
        """The same in any case. A log that readers hold back is tried again when it has grown by a quarter."""
        waiting = self._due_pages >= LOG_PAGES_MAX
        self._due_pages += max(LOG_PAGES, self._due_pages // 4)
        done = self._move(connection, "TRUNCATE" if waiting else "PASSIVE")
        self._due_pages = max(self._due_pages, done.log_pages + LOG_PAGES)

    def heal(self, connection: sqlite3.Connection) -> None:
        """All of the log, synced, and with it whatever else is in doubt; or an error, and then again."""
        if self.every_page:
            write_every_page(connection)
            self.every_page = self._unsynced = False  # it is all in the log once more
            self._others.look(connection)
        if not self._move(connection, "FULL").whole:
            raise sqlite3.OperationalError(
                "the log cannot be moved into the file after a disk error: someone is reading"
            )

    def _move(self, connection: sqlite3.Connection, mode: str) -> Checkpoint:
        try:
            self._unsynced |= self._others.look(connection)
            done = checkpoint(connection, mode)
        except sqlite3.Error as error:
            self.every_page |= self._unsynced and disk_failed(error)
            raise
        self._unsynced = not done.whole
        return done

    def _is_due(self) -> bool:
        try:
            with reading_log(self._path) as log:
                return self._has_grown(log)
        except OSError:
            return True  # SQLite will say what is wrong with it

    def _has_grown(self, log: Log) -> bool:
        if log.salt != self._salt:
            self._salt, self._due_pages = log.salt, LOG_PAGES
        return log.has(self._due_pages)


class _Others:
    """Notices that somebody else has written: they may have moved pages too, and nobody tells us how that went.

    Other workers move the log after their commits, foreign connections within them: no commits, no pages moved.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._version = 0
        self._end: tuple[bytes, int] | None = None

    def look(self, connection: sqlite3.Connection) -> bool:
        """Whether they have since the last look. After a failure we write nothing before all is well, so that a new
        connection, which knows nothing of the past, can go by the end of the log."""
        before = (self._connection, self._version, self._end)
        (self._version,) = connection.execute("PRAGMA data_version").fetchone()
        self._connection, self._end = connection, self._log_end()
        if before[0] is connection:
            return before[1] != self._version
        return before[2] is None or before[2] != self._end

    def _log_end(self) -> tuple[bytes, int] | None:
        try:
            with reading_log(self._path) as log:
                return log.end()
        except OSError:
            return None


def checkpoint(connection: sqlite3.Connection, mode: str) -> Checkpoint:
    """PASSIVE does what can be done beside readers; FULL and TRUNCATE wait for them, but briefly."""
    (usual,) = connection.execute("PRAGMA busy_timeout").fetchone()
    connection.execute(f"PRAGMA busy_timeout = {WAIT_MILLISECONDS}")
    try:
        busy, log_pages, moved_pages = connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        return Checkpoint(bool(busy), log_pages, moved_pages)
    finally:
        connection.execute(f"PRAGMA busy_timeout = {usual}")


def write_every_page(connection: sqlite3.Connection) -> None:
    """Into the log, which takes time and room as the file does: not in memory, where a large file has none."""
    connection.execute("PRAGMA temp_store = FILE")
    try:
        connection.execute("VACUUM")
    finally:
        connection.execute("PRAGMA temp_store = MEMORY")


_HEADER = struct.Struct(">8xI4x8s8x")
"""The size of a page, and the salt that its frames carry until it is begun anew."""
_FRAME_HEADER_BYTES = 24
_FRAME_SALT_OFFSET = 8


class Log(NamedTuple):
    handle: int
    page_bytes: int
    salt: bytes
    """Empty as long as nothing has been written."""

    def has(self, number: int) -> bool:
        """Whether its n-th page, from 1, belongs to it, or is left over from an earlier, longer one.

        The file's size does not tell: SQLite begins the log anew without cutting it.
        """
        offset = _HEADER.size + (number - 1) * (_FRAME_HEADER_BYTES + self.page_bytes) + _FRAME_SALT_OFFSET
        return bool(self.salt) and os.pread(self.handle, len(self.salt), offset) == self.salt

    def end(self) -> tuple[bytes, int]:
        """Where it ends, which moves whenever anybody writes."""
        low, high = 0, 1
        while self.has(high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.has(middle) else (low, middle)
        return self.salt, low


@contextmanager
def reading_log(path: str) -> Iterator[Log]:
    """The log of this database. Raises OSError where there is none."""
    handle = os.open(f"{path}-wal", os.O_RDONLY)
    try:
        header = os.pread(handle, _HEADER.size, 0)
        yield Log(handle, *(_HEADER.unpack(header) if len(header) == _HEADER.size else (0, b"")))
    finally:
        os.close(handle)  # no lock is lost by that: SQLite's are on the other two files
