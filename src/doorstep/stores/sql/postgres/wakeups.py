"""Wake-ups between processes, by LISTEN and NOTIFY on a separate connection. A process notifies the others after it has
written events, outbox messages or other changes.

Wake-ups are only hints. They are sent after the commit, not inside the transaction. PostgreSQL serializes the commits
of transactions that notify, including the flush to disk. With 32 writers, notifying inside the transaction would allow
only 2,500 commits per second instead of 9,300.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import monotonic
from typing import TypeAlias

import asyncpg

from doorstep.errors import StoreUnavailable
from doorstep.stores.sql.ddl import POSTED_CHANNEL
from doorstep.stores.sql.postgres.connections import unavailability

WORK, POSTED, CHANGED = "doorstep_work", POSTED_CHANNEL, "doorstep_changed"
"""The channels for due deliveries, for messages in the outbox, and for all other changes."""
SELDOM_SECONDS = 0.25
"""The minimum time between two notifications about changes, which services need not see at once."""
CHECK_SECONDS = 10.0
"""How often the connection is checked. The checks are needed because a machine that fails or leaves the network does
not close its connections."""
RECONNECT_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0)

END_UNRESPONSIVE_HOLDER = """
SELECT bool_or(pg_terminate_backend(pid)) FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE locktype = 'advisory' AND objsubid = 1 AND granted AND datname = current_database() AND database = datid
  AND (classid::bigint << 32) | objid::bigint = {lock}
  AND state_change < clock_timestamp() - interval '{seconds} seconds'
"""

_NO_POSTERS = """
SELECT CASE WHEN pg_try_advisory_lock({lock}) THEN pg_advisory_unlock({lock}) ELSE false END
"""
"""Whether no transaction holds the lock."""

Listener: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


class Wakeups:
    """One connection that listens, notifies and holds the advisory locks of tasks. It is replaced whenever it is
    lost."""

    def __init__(self, connect: Callable[[], Awaitable[Listener]], elapsed: Callable[[], float] = monotonic) -> None:
        self._connect = connect
        self._wakes: dict[str, list[Callable[[], None]]] = {WORK: [], POSTED: [], CHANGED: []}
        self._connection: Listener | None = None
        self._busy = asyncio.Lock()
        self._lost = asyncio.Event()
        self._listening: asyncio.Task[None] | None = None
        self._notifying: asyncio.Task[None] | None = None
        self._pending: set[str] = set()
        self._asked_again: dict[str, bool] = {}
        """Whether `notify_seldom` was called again, by channel, since it last sent a notification."""
        self._held: set[str] = set()
        self._posters_left = False
        """Whether there may be transactions that have posted without looking for this process."""
        self._elapsed = elapsed
        self._check_at: dict[str, float] = {}

    def add(self, wake: Callable[[], None], channel: str = WORK) -> None:
        self._wakes[channel].append(wake)

    def start(self) -> None:
        """Start in the current event loop. This creates new asyncio locks and events, because those of a previous event
        loop cannot be used in the current one."""
        self._busy, self._lost = asyncio.Lock(), asyncio.Event()
        self._asked_again.clear()
        self._listening = asyncio.create_task(self._listen(), name="doorstep-postgres-wakeups")

    async def stop(self) -> set[str]:
        """Stop. Returns the channels whose notifications were not sent."""
        for task in (self._listening, self._notifying):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        self._listening = self._notifying = None
        self._drop()
        unsent = self._pending | {channel for channel, again in self._asked_again.items() if again}
        self._pending.clear()
        return unsent

    def notify(self, channel: str = WORK) -> None:
        """Notify the other processes soon. Calls that arrive while a notification is being sent are combined."""
        self._pending.add(channel)
        self._send_pending()

    def _send_pending(self) -> None:
        if self._pending and self._connection is not None and (self._notifying is None or self._notifying.done()):
            self._notifying = asyncio.create_task(self._notify())

    def notify_seldom(self, channel: str) -> None:
        """Notify the other processes now, or after a pause if they were notified a moment ago."""
        if channel in self._asked_again:
            self._asked_again[channel] = True
            return
        self._asked_again[channel] = False
        self.notify(channel)
        asyncio.get_running_loop().call_later(SELDOM_SECONDS, self._end_pause, channel)

    def _end_pause(self, channel: str) -> None:
        if self._asked_again.pop(channel, False):
            self.notify_seldom(channel)

    async def _notify(self) -> None:
        while self._pending and self._connection is not None:
            await self._fetch(f"NOTIFY {self._pending.pop()}")

    async def acquire(self, lock: str, span_seconds: float) -> bool:
        """Acquire an advisory lock, which lasts as long as the connection. Returns whether the caller may run the task.

        Also returns True if there is no connection, because the lock only avoids duplicate work. `lock` is an SQL
        expression for the lock's key. The holder must call this again within `span_seconds`: the connection of a frozen
        process or a failed machine can stay open for hours, so another process may terminate it if there is no call for
        that long.
        """
        if lock in self._held:
            await self._fetch("SELECT 1")  # shows other processes that the holder is alive
            return True
        taken = await self._fetch(f"SELECT pg_try_advisory_lock({lock})")
        if taken:
            self._held.add(lock)
        return taken is not False or await self._freed(lock, span_seconds)

    async def await_posts(self, sleeper: str, poster: str) -> bool:
        """Let posters notify from now on. Returns whether all of them will; the locks are described in ddl.py."""
        if sleeper not in self._held:
            if not await self._fetch(f"SELECT pg_try_advisory_lock_shared({sleeper})"):
                return False  # a poster is just looking for sleepers, or there is no connection
            self._held.add(sleeper)
            self._posters_left = True
        if self._posters_left:
            self._posters_left = not await self._fetch(_NO_POSTERS.format(lock=poster))
        return not self._posters_left and sleeper in self._held

    async def ignore_posts(self, sleeper: str) -> None:
        if sleeper in self._held:
            self._held.discard(sleeper)
            await self._fetch(f"SELECT pg_advisory_unlock_shared({sleeper})")

    async def _freed(self, lock: str, span_seconds: float) -> bool:
        """Terminate the lock holder's connection if it was inactive for the whole span. Returns whether the caller may
        do the task. Checks at most once per span."""
        if self._elapsed() < self._check_at.get(lock, 0.0):
            return False
        self._check_at[lock] = self._elapsed() + span_seconds
        try:
            return bool(await self._fetch(END_UNRESPONSIVE_HOLDER.format(lock=lock, seconds=span_seconds)))
        except asyncpg.InsufficientPrivilegeError:
            return True  # the holder is inactive, but we may not terminate it; two processes may do the task

    async def release(self, lock: str) -> None:
        if lock in self._held:
            self._held.discard(lock)
            await self._fetch(f"SELECT pg_advisory_unlock({lock})")

    async def _listen(self) -> None:
        failures = 0
        while True:
            try:
                await self._attach()
                failures = 0
                self._send_pending()
                self._wake_all()  # notifications may have been missed in the meantime
                await self._until_lost()
            except Exception:  # noqa: BLE001  the server is unavailable or rejects us: keep trying
                self._wake_all()  # without a connection, the services look at every try
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
            async with self._busy:  # a connection runs one statement at a time, and a notification may be in progress
                for channel in self._wakes:
                    await connection.add_listener(channel, self._on_notification)

    async def _until_lost(self) -> None:
        """Wait until the connection is lost or no longer responds."""
        while not self._lost.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._lost.wait(), CHECK_SECONDS)
                return
            await self._fetch("SELECT 1")

    async def _fetch(self, statement: str) -> object:
        """Run a statement and return its single value, or None if there is no connection. If the server is unavailable,
        the connection is dropped, which ends `_until_lost`."""
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

    def _on_notification(self, connection: object, sender: int, channel: str, payload: object) -> None:
        if self._connection is not None and sender != self._connection.get_server_pid():
            self._wake(channel)

    def _wake_all(self) -> None:
        for channel in self._wakes:
            self._wake(channel)

    def _wake(self, channel: str) -> None:
        for wake in self._wakes[channel]:
            wake()
