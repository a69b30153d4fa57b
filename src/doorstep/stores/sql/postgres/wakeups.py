"""Wake-ups between processes: NOTIFY when work was accepted or posted, LISTEN on a connection of its own.

A hint and no more. It is sent after the commit, not inside it: PostgreSQL lets transactions that notify commit only
one after the other, flush included (32 writers fell from 9,300 to 2,500 commits a second).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import monotonic
from typing import TypeAlias

import asyncpg

from doorstep.errors import StoreUnavailable
from doorstep.stores.sql.postgres.connections import unavailability

WORK, POSTED = "doorstep_work", "doorstep_posted"
"""The channels: what is due, and what is in the outbox."""
CHECK_SECONDS = 10.0
"""How often the connection is asked whether it still lives: a machine that vanished closes nothing."""
RECONNECT_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0)

END_SILENT_HOLDER = """
SELECT bool_or(pg_terminate_backend(pid)) FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE locktype = 'advisory' AND objsubid = 1 AND granted AND datname = current_database() AND database = datid
  AND (classid::bigint << 32) | objid::bigint = {lock}
  AND state_change < clock_timestamp() - interval '{seconds} seconds'
"""

Listener: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


class Wakeups:
    """One connection that listens and notifies, made again whenever it is lost."""

    def __init__(self, connect: Callable[[], Awaitable[Listener]], elapsed: Callable[[], float] = monotonic) -> None:
        self._connect = connect
        self._wakes: dict[str, list[Callable[[], None]]] = {WORK: [], POSTED: []}
        self._connection: Listener | None = None
        self._busy = asyncio.Lock()
        self._lost = asyncio.Event()
        self._listening: asyncio.Task[None] | None = None
        self._notifying: asyncio.Task[None] | None = None
        self._untold: set[str] = set()
        self._held: set[str] = set()
        self._elapsed = elapsed
        self._look_at: dict[str, float] = {}

    def add(self, wake: Callable[[], None], channel: str = WORK) -> None:
        self._wakes[channel].append(wake)

    def start(self) -> None:
        """In this event loop, which need not be the one of the last time: what was waited on there cannot be here."""
        self._busy, self._lost = asyncio.Lock(), asyncio.Event()
        self._listening = asyncio.create_task(self._listen(), name="doorstep-postgres-wakeups")

    async def stop(self) -> None:
        for task in (self._listening, self._notifying):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        self._listening = self._notifying = None
        self._drop()

    def notify(self, channel: str = WORK) -> None:
        """Tell the other processes, soon; calls that come while one is under way are told together."""
        self._untold.add(channel)
        if self._connection is not None and (self._notifying is None or self._notifying.done()):
            self._notifying = asyncio.create_task(self._notify())

    async def _notify(self) -> None:
        while self._untold:
            await self._ask(f"NOTIFY {self._untold.pop()}")

    async def hold(self, lock: str, span_seconds: float) -> bool:
        """Take an advisory lock that lives as long as the connection; True also without one, for it guards nothing.

        `lock` is the lock's key, as an expression. Whoever has it must ask again within the span: a process that is
        frozen, or a machine that vanished, keeps its connection for hours.
        """
        if lock in self._held:
            await self._ask("SELECT 1")  # a sign of life
            return True
        taken = await self._ask(f"SELECT pg_try_advisory_lock({lock})")
        if taken:
            self._held.add(lock)
        return taken is not False or await self._freed(lock, span_seconds)

    async def _freed(self, lock: str, span_seconds: float) -> bool:
        """Whether its holder gave no sign of life for so long; its connection is ended. Looked at once a span."""
        if self._elapsed() < self._look_at.get(lock, 0.0):
            return False
        self._look_at[lock] = self._elapsed() + span_seconds
        try:
            return bool(await self._ask(END_SILENT_HOLDER.format(lock=lock, seconds=span_seconds)))
        except asyncpg.InsufficientPrivilegeError:
            return True  # it is silent, but not ours to end; two may do its work

    async def leave(self, lock: str) -> None:
        if lock in self._held:
            self._held.discard(lock)
            await self._ask(f"SELECT pg_advisory_unlock({lock})")

    async def _listen(self) -> None:
        failures = 0
        while True:
            try:
                await self._attach()
                failures = 0
                for channel in self._wakes:
                    self._wake(channel)  # whatever was told meanwhile went unheard
                await self._stay()
            except Exception:  # noqa: BLE001  away, or no longer let in: wake-ups are hints, and worth asking for again
                pause = RECONNECT_SECONDS[min(failures, len(RECONNECT_SECONDS) - 1)]
                failures += 1
                await asyncio.sleep(pause)
            finally:
                self._drop()

    async def _attach(self) -> None:
        with unavailability():
            connection = await self._connect()
            self._lost.clear()
            connection.add_termination_listener(lambda _: self._lost.set())
            self._connection = connection
            async with self._busy:  # a notice that is due already waits: a connection does one thing at a time
                for channel in self._wakes:
                    await connection.add_listener(channel, self._hear)

    async def _stay(self) -> None:
        """Return when the connection is lost, or does not answer any more."""
        while not self._lost.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._lost.wait(), CHECK_SECONDS)
                return
            await self._ask("SELECT 1")

    async def _ask(self, statement: str) -> object:
        """The one value of its answer; None if there is no connection. Failures drop it, which wakes `_stay`."""
        try:
            async with self._busy:
                if self._connection is not None:
                    with unavailability():
                        return await self._connection.fetchval(statement)
        except StoreUnavailable:
            self._drop()
        return None

    def _drop(self) -> None:
        self._lost.set()
        self._held.clear()
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    def _hear(self, connection: object, sender: int, channel: str, payload: object) -> None:
        if self._connection is not None and sender != self._connection.get_server_pid():
            self._wake(channel)

    def _wake(self, channel: str) -> None:
        for wake in self._wakes[channel]:
            wake()
