"""A ledger in an SQLite file: survives restarts, and is shared by the processes of one machine."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from doorstep.receiver.once import DAY_SECONDS, Standing

_CREATE = """
CREATE TABLE IF NOT EXISTS webhook (
  webhook_id TEXT PRIMARY KEY, until REAL NOT NULL, handled INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS webhook_until ON webhook (until);
"""
_FORGET = "DELETE FROM webhook WHERE webhook_id IN (SELECT webhook_id FROM webhook WHERE until <= ? LIMIT 100)"
"""A few with each claim, which is more than come in, so that the file stops growing."""
_CLAIM = """
INSERT INTO webhook (webhook_id, until, handled) VALUES (:webhook_id, :until, 0)
ON CONFLICT (webhook_id) DO UPDATE SET until = :until, handled = 0 WHERE until <= :now
"""
_FINISH = """
INSERT INTO webhook (webhook_id, until, handled) VALUES (:webhook_id, :until, 1)
ON CONFLICT (webhook_id) DO UPDATE SET until = :until, handled = 1
"""
_RELEASE = "DELETE FROM webhook WHERE webhook_id = ? AND until = ? AND NOT handled"


class SqliteLedger:
    """Safe from several threads and processes. After a loss of power the last ids may be handled once more."""

    def __init__(self, path: str | Path, *, keep_seconds: float = 7 * DAY_SECONDS) -> None:
        self._keep_seconds = keep_seconds
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=NORMAL")
        self._connection.executescript(_CREATE)

    def claim(self, webhook_id: str, now: float, until: float) -> Standing:
        """See `Ledger`."""
        given = {"webhook_id": webhook_id, "now": now, "until": until}
        with self._writing() as connection:
            connection.execute(_FORGET, (now,))
            if connection.execute(_CLAIM, given).rowcount:
                return Standing.NEW
            (handled,) = connection.execute(
                "SELECT handled FROM webhook WHERE webhook_id = ?", (webhook_id,)
            ).fetchone()
            return Standing.HANDLED if handled else Standing.HANDLING

    def finish(self, webhook_id: str, now: float) -> None:
        """See `Ledger`."""
        with self._writing() as connection:
            connection.execute(_FINISH, {"webhook_id": webhook_id, "until": now + self._keep_seconds})

    def release(self, webhook_id: str, until: float) -> None:
        """See `Ledger`."""
        with self._writing() as connection:
            connection.execute(_RELEASE, (webhook_id, until))

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction; it takes the write lock at once, because a lock that is taken later can be refused."""
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")
