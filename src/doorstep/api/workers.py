"""Workers: which processes deliver."""

from __future__ import annotations

from fastapi import APIRouter

from doorstep.api.auth import Caller
from doorstep.api.routing import group
from doorstep.api.schemas import CountedPagination
from doorstep.api.worker_schemas import WorkerOut, WorkersOut
from doorstep.app import Doorstep


def worker_routes(doorstep: Doorstep) -> APIRouter:
    router = group("/v1/workers", "workers")

    @router.get("")
    async def list_workers(caller: Caller) -> WorkersOut:
        """The processes that deliver, for all organizations: those that live, and those that were lost within a day."""
        now = doorstep.clock.now()
        workers = [WorkerOut.of(one, now) for one in await doorstep.components.reader.workers()]
        return WorkersOut(workers=workers, pagination=CountedPagination.whole(workers))

    return router
