"""The register of workers."""

from __future__ import annotations

from doorstep.clock import Instant
from doorstep.model.worker import WorkerEntry
from doorstep.stores.sql.queries import workers as worker_scripts
from doorstep.stores.sql.queries.verbs.scripted import Scripted


class WorkerVerbs(Scripted):
    async def beat(self, worker: WorkerEntry) -> None:
        await self._write(None, worker_scripts.beat, worker)

    async def workers(self, seen_after: Instant, limit: int) -> list[WorkerEntry]:
        return await self._read(None, worker_scripts.seen, seen_after, limit)

    async def forget_worker(self, name: str) -> None:
        await self._write(None, worker_scripts.forget, name)

    async def forget_workers(self, seen_before: Instant, limit: int) -> int:
        return await self._write(None, worker_scripts.forget_old, seen_before, limit)
