"""The one connection that writes: opened when it is needed, thrown away when something is wrong, healed before use.

What could not be synced is in doubt from then on, whatever later syncs say: after a failed sync Linux forgets what it
could not write, and calls the next one a success. So it is written again, and nothing is done before.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from doorstep.stores.sql.sqlite.checkpoints import Checkpointer, checkpoint_whole
from doorstep.stores.sql.sqlite.connections import connect, disk_failed, disk_full, rewrite_log


class WritingConnection:
    """Belongs to the thread of the writer."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._checkpointer = Checkpointer(path)
        self._relaxed = False
        self._log_doubtful = False
        self._file_doubtful = False

    def opened(self) -> sqlite3.Connection:
        """The connection, opened if need be, and fit to be used."""
        if self._connection is None:
            self._connection = connect(self._path)
            self._relaxed = False
        if self._log_doubtful:
            # Relaxed commits before the failed sync may be missing for good, and with them all that follows.
            rewrite_log(self._connection, self._path)
            self._log_doubtful = False
        if self._file_doubtful:
            checkpoint_whole(self._connection, every_page=self._checkpointer.halfway)
            self._file_doubtful = False
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

    def close(self) -> None:
        """Move the log into the file, so that the next start finds it whole, or raise what is still in doubt."""
        self._move_log(self._checkpointer.run)
        try:
            if self._log_doubtful or self._file_doubtful:
                self.opened()
        finally:
            self._discard()

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
