"""A lock on a task that only one process at a time should run. It only avoids duplicate work: running the task twice at
once does no harm."""

from __future__ import annotations

from doorstep.clock import Clock, Instant, seconds
from doorstep.stores.store import Store, Task


class TaskLock:
    """A lock with a lease, so that another process can take over from one that was killed."""

    def __init__(self, store: Store, task: Task, holder: str, clock: Clock, lease_seconds: float) -> None:
        self.task = task
        self._store = store
        self._holder = holder
        self._clock = clock
        self._lease: Instant = seconds(lease_seconds)
        self._held_until: Instant = 0
        self.held_at: Instant = 0
        """When this process last had the lock; 0 if never."""

    @property
    def is_held(self) -> bool:
        """Whether the last `acquire` succeeded and no `release` followed; the lease may have expired since."""
        return self._held_until > 0

    @property
    def has_expired(self) -> bool:
        """Whether another process may have had the lock since the last `acquire`."""
        return self._held_until <= self._clock.now()

    async def acquire(self) -> bool:
        """Take the lock, or renew its lease once half of it is over. False while another process has the lock."""
        now = self._clock.now()
        if self._held_until - now <= self._lease // 2:
            until = now + self._lease
            self._held_until = until if await self._store.acquire_lock(self.task, self._holder, now, until) else 0
        if self.is_held:
            self.held_at = now
        return self.is_held

    async def release(self) -> None:
        """Let another process take the lock at once. Does nothing if the lock is not held."""
        if self.is_held:
            self._held_until = 0
            await self._store.release_lock(self.task, self._holder)
