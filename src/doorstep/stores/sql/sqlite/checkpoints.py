"""Checkpoints: moving the write-ahead log into the database file between commits, so that errors are noticed.

By default SQLite runs checkpoints inside a commit and ignores their errors, because the commit itself is safe in the
log. But if a sync of the file fails, pages may be lost, and no later sync reports that.
"""

from __future__ import annotations

import os
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from doorstep.stores.sql.sqlite.connections import PAGE_BYTES, disk_failed

LOG_PAGES = 4 * 2**20 // PAGE_BYTES
"""4 MiB of log between checkpoints. On a busy disk, the slowest of 1,000 accepts takes 12 to 22 ms; with 16 MiB it
takes 17 to 34 ms (five runs each). The p99 (7 to 9 ms) and the CPU time are the same with both."""
LOG_PAGES_MAX = 16 * LOG_PAGES
"""64 MiB. Readers can prevent the log from being restarted; once it has this size, a checkpoint waits for them."""
WAIT_MILLISECONDS = 50
"""How long a checkpoint waits for readers. Doorstep's own readers finish sooner, but another program may have left a
transaction open."""


class Checkpoint(NamedTuple):
    """The result of a checkpoint, from SQLite."""

    log_pages: int
    """-1 if another process was running a checkpoint."""
    moved_pages: int

    @property
    def complete(self) -> bool:
        """Whether the whole log is in the file. Only then has SQLite synced the file."""
        return self.moved_pages == self.log_pages >= 0


class Checkpointer:
    """Runs checkpoints when they are due, and rewrites pages that may have been lost in a disk error."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._salt = b""
        self._due_pages = LOG_PAGES
        self._unsynced = False
        """The file may contain unsynced pages, from an incomplete checkpoint or a checkpoint of another process."""
        self._others = _OtherWriters(path)
        self.rewrite_needed = False
        """Unsynced pages may have been lost, because syncing them failed. SQLite does not move a page twice, so the
        whole file must be rewritten."""

    def run_if_due(self, connection: sqlite3.Connection) -> None:
        """Run a checkpoint if enough has been written since the last one. Raises SQLite's errors."""
        if self._is_due():
            self.run(connection)

    def run(self, connection: sqlite3.Connection) -> None:
        """Run a checkpoint. If readers prevent it, the next one is not due until the log has grown by a quarter."""
        waiting = self._due_pages >= LOG_PAGES_MAX
        self._due_pages += max(LOG_PAGES, self._due_pages // 4)
        done = self._move(connection, "TRUNCATE" if waiting else "PASSIVE")
        self._due_pages = max(self._due_pages, done.log_pages + LOG_PAGES)

    def repair(self, connection: sqlite3.Connection) -> None:
        """Rewrite and sync all pages that may have been lost. If this raises an error, it must be called again."""
        if self.rewrite_needed:
            rewrite_every_page(connection)
            self.rewrite_needed = self._unsynced = False  # now the log contains every page again
            self._others.have_written(connection)
        if not self._move(connection, "FULL").complete:
            raise sqlite3.OperationalError(
                "the log cannot be moved into the file after a disk error: another connection is reading"
            )

    def _move(self, connection: sqlite3.Connection, mode: str) -> Checkpoint:
        try:
            self._unsynced |= self._others.have_written(connection)
            done = checkpoint(connection, mode)
        except sqlite3.Error as error:
            self.rewrite_needed |= self._unsynced and disk_failed(error)
            raise
        self._unsynced = not done.complete
        return done

    def _is_due(self) -> bool:
        try:
            with reading_log(self._path) as log:
                if log.salt != self._salt:
                    self._salt, self._due_pages = log.salt, LOG_PAGES
                return log.has(self._due_pages)
        except OSError:
            return True  # SQLite will report the error


class _OtherWriters:
    """Detects commits made by other processes, because those processes may also have run checkpoints that failed.

    Other workers run checkpoints after their commits, and other programs run them inside their commits. A process that
    commits nothing moves no pages.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._version = 0
        self._end: tuple[bytes, int] | None = None

    def have_written(self, connection: sqlite3.Connection) -> bool:
        """Whether other processes have written since the last call.

        The data_version of a new connection cannot be compared with that of the last one, so the end of the log is
        compared instead. Our own writes cannot have moved the end of the log: after an error, we write nothing until
        the repair is done.
        """
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
    """Run a checkpoint. PASSIVE moves as much as it can without waiting for readers; FULL and TRUNCATE wait briefly."""
    (usual,) = connection.execute("PRAGMA busy_timeout").fetchone()
    connection.execute(f"PRAGMA busy_timeout = {WAIT_MILLISECONDS}")
    try:
        _, log_pages, moved_pages = connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        return Checkpoint(log_pages, moved_pages)
    finally:
        connection.execute(f"PRAGMA busy_timeout = {usual}")


def rewrite_every_page(connection: sqlite3.Connection) -> None:
    """Write every page into the log. For this, SQLite makes a temporary copy of the whole file, which is therefore kept
    on disk and not in memory."""
    connection.execute("PRAGMA temp_store = FILE")
    try:
        connection.execute("VACUUM")
    finally:
        connection.execute("PRAGMA temp_store = MEMORY")


_HEADER = struct.Struct(">8xI4x8s8x")
"""Reads the page size and the salt. Every frame contains this salt until the log is restarted."""
_FRAME_HEADER_BYTES = 24
_FRAME_SALT_OFFSET = 8


class Log(NamedTuple):
    handle: int
    page_bytes: int
    salt: bytes
    """Empty if nothing has been written to the log yet."""

    def has(self, number: int) -> bool:
        """Whether the current log has at least `number` pages.

        The file size does not show this, because SQLite restarts the log without truncating the file: pages at its end
        may be left over from an earlier, longer log.
        """
        offset = _HEADER.size + (number - 1) * (_FRAME_HEADER_BYTES + self.page_bytes) + _FRAME_SALT_OFFSET
        return bool(self.salt) and os.pread(self.handle, len(self.salt), offset) == self.salt

    def end(self) -> tuple[bytes, int]:
        """The salt and the number of pages; at least one of them changes with every write."""
        low, high = 0, 1
        while self.has(high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.has(middle) else (low, middle)
        return self.salt, low


@contextmanager
def reading_log(path: str) -> Iterator[Log]:
    """Open the log of the database at this path. Raises OSError if there is none."""
    handle = os.open(f"{path}-wal", os.O_RDONLY)
    try:
        header = os.pread(handle, _HEADER.size, 0)
        yield Log(handle, *(_HEADER.unpack(header) if len(header) == _HEADER.size else (0, b"")))
    finally:
        os.close(handle)  # this releases none of SQLite's locks, which are on the other two files
