"""The one connection that writes: opened when it is needed, thrown away when something is wrong, healed before use.

What could not be synced is in doubt from then on, whatever later syncs say: after a failed sync Linux forgets what it
could not write, and calls the next one a success. So it is written again, and nothing is done before.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable

from doorstep.stores.sql.sqlite.checkpoints import Checkpointer
from doorstep.stores.sql.sqlite.connections import connect, disk_failed, disk_full, rewrite_log

_PAUSE_SECONDS = 0.05
_PAUSE_SECONDS_MAX = 1.0
"""Between tries to heal, doubled each time; and never shorter than the last try took, for that may be minutes."""


class WritingConnection:
    """Belongs to the thread of the writer."""

    def __init__(self, path: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._monotonic = monotonic
        self._connection: sqlite3.Connection | None = None
        self._checkpointer = Checkpointer(path)
        self._relaxed = False
        self._log_doubtful = False
        self._file_doubtful = False
        self._pause_seconds = 0.0
        self._heal_at = 0.0
        self._trouble = ""

    @property
    def rewriting(self) -> bool:
        """The whole file is to be written again, for which nobody should be kept waiting."""
        return self._file_doubtful and self._checkpointer.every_page

    def opened(self) -> sqlite3.Connection:
        """The connection, opened if need be, and fit to be used."""
        if self._monotonic() < self._heal_at:
            raise sqlite3.OperationalError(self._trouble)
        if self._connection is None:
            self._connection = connect(self._path)
            self._relaxed = False
        if self._log_doubtful or self._file_doubtful:
            self._heal(self._connection)
        return self._connection

    def relax(self, relaxed: bool) -> None:
        """The log is written in order, so a later durable commit makes the relaxed ones before it durable too."""
        if relaxed is not self._relaxed:
            self.opened().execute(f"PRAGMA synchronous = {'NORMAL' if relaxed else 'FULL'}")
            self._relaxed = relaxed

    def failed(self, error: BaseException) -> None:
        """Something went wrong: whatever it was, the next use gets a new connection."""
        self._log_doubtful |= disk_failed(error)
        self._discard()

    def checkpoint(self) -> None:
        """Move the log into the file if it has grown enough. If that fails the file is in doubt, which `opened` tells."""
        self._move_log(self._checkpointer.run_if_due)

    def let_go(self) -> None:
        """Close it for now. The log is moved first: SQLite would do it by itself, and say nothing if the disk failed."""
        self._move_log(self._checkpointer.run)
        self._discard()

    def close(self) -> None:
        """Move the log into the file, so that the next start finds it whole, or raise what is still in doubt."""
        self._move_log(self._checkpointer.run)
        self._heal_at = 0.0  # there will be no later
        try:
            if self._log_doubtful or self._file_doubtful:
                self.opened()
        finally:
            self._discard()

    def _heal(self, connection: sqlite3.Connection) -> None:
        begun = self._monotonic()
        try:
            self._write_again(connection)
        except sqlite3.Error as error:
            self._pause(self._monotonic() - begun)
            self._trouble = str(error)
            raise
        self._pause_seconds = 0.0

    def _write_again(self, connection: sqlite3.Connection) -> None:
        if self._log_doubtful:
            # Relaxed commits before the failed sync may be missing for good, and with them all that follows.
            rewrite_log(connection, self._path)
            self._log_doubtful = False
        if self._file_doubtful:
            self._checkpointer.heal(connection)
            self._file_doubtful = False

    def _pause(self, taken_seconds: float) -> None:
        self._pause_seconds = min(max(_PAUSE_SECONDS, 2 * self._pause_seconds), _PAUSE_SECONDS_MAX)
        self._heal_at = self._monotonic() + max(self._pause_seconds, taken_seconds)

    def _move_log(self, move: Callable[[sqlite3.Connection], None]) -> None:
        if self._connection is None:
            return
        try:
            move(self._connection)
        except sqlite3.Error as error:
            if not disk_full(error):  # without room nothing is lost: commits go on while the log has some
                self._file_doubtful |= disk_failed(error)
                self.failed(error)

    def _discard(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except sqlite3.Error:
                pass  # it is being thrown away because something is wrong with it
