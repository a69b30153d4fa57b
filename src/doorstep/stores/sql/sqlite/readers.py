"""Reading beside the writer: a few threads, each with a connection of its own."""

from __future__ import annotations

import asyncio
import queue
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from doorstep.stores.sql.sqlite.connections import connect_reader, unavailable
from doorstep.stores.sql.sqlite.forking import using_sqlite

T = TypeVar("T")

READERS = 3
"""Reads seldom wait for the disk, so more threads would only take turns."""


class Readers:
    """Runs functions of a reading connection, each in one consistent picture of the file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._threads = ThreadPoolExecutor(READERS, thread_name_prefix="doorstep-reader")
        self._idle: queue.SimpleQueue[sqlite3.Connection] = queue.SimpleQueue()
        using_sqlite.owned_by(self)

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._read, work)

    async def stop(self) -> None:
        await asyncio.to_thread(self._threads.shutdown)
        with using_sqlite:
            self.let_go()

    def let_go(self) -> None:
        while not self._idle.empty():
            self._idle.get().close()

    def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with using_sqlite, unavailable(self._path):
            connection = self._take()
            try:
                connection.execute("BEGIN")
                result = work(connection)
                connection.execute("COMMIT")
            except sqlite3.Error:
                connection.close()
                raise
            except BaseException:
                connection.execute("ROLLBACK")
                self._idle.put(connection)
                raise
            self._idle.put(connection)
            return result

    def _take(self) -> sqlite3.Connection:
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            return connect_reader(self._path)
