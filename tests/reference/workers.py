"""The register of workers."""

from __future__ import annotations

from doorstep.clock import Instant
from doorstep.model.worker import WorkerEntry
from tests.reference.tables import Tables


class WorkerVerbs:
    _tables: Tables

    async def beat(self, worker: WorkerEntry) -> None:
        self._tables.workers[worker.name] = worker

    async def workers(self, seen_after: Instant, limit: int) -> list[WorkerEntry]:
        found = [one for one in self._tables.workers.values() if one.seen_at > seen_after]
        return sorted(found, key=lambda one: (-one.seen_at, one.name))[:limit]

    async def forget_worker(self, name: str) -> None:
        self._tables.workers.pop(name, None)

    async def forget_workers(self, seen_before: Instant, limit: int) -> int:
        found = [one for one in self._tables.workers.values() if one.seen_at < seen_before]
        for one in sorted(found, key=lambda one: one.seen_at)[:limit]:
            del self._tables.workers[one.name]
        return min(len(found), limit)
