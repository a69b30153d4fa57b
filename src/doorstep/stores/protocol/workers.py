"""The register of workers."""

from __future__ import annotations

from typing import Protocol

from doorstep.clock import Instant
from doorstep.model.worker import WorkerEntry


class WorkerStore(Protocol):
    """Who delivers. It is only looked at by people: nothing that happens to a delivery depends on it."""

    async def beat(self, worker: WorkerEntry) -> None:
        """Enter a worker, or replace what it said before. Need not survive a crash."""

    async def workers(self, seen_after: Instant, limit: int) -> list[WorkerEntry]:
        """Those that were heard of after that, the latest first."""

    async def forget_worker(self, name: str) -> None:
        """It has left; harmless if it is not there."""

    async def forget_workers(self, seen_before: Instant, limit: int) -> int:
        """Remove up to `limit` of those that were not heard of since, the oldest first; returns how many."""
