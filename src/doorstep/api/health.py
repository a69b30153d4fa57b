"""Whether the process lives, whether it can be sent work, its metrics, and which processes deliver."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.responses import Response

from doorstep.api.answers import shape, whole
from doorstep.api.routing import Caller, Routes
from doorstep.app import Doorstep
from doorstep.clock import Instant
from doorstep.errors import StoreUnavailable
from doorstep.model.worker import WorkerEntry
from doorstep.operations import prometheus
from doorstep.schemas.accounts import Health
from doorstep.schemas.workers import Worker, WorkerPage

_STORE_SECONDS_MAX = 2.0
_OK = Health("ok")


def health_routes(doorstep: Doorstep) -> Routes:
    """Open to everyone; they tell nothing else. Monitors ask with HEAD too."""
    routes = Routes("", "health", is_open=True)

    @routes.get("/healthz")
    async def live() -> Health:
        """The process answers. Says nothing about its store: restarting would not help that."""
        return _OK

    @routes.get("/readyz")
    async def ready() -> Health:
        """The store answers too; 503 otherwise."""
        try:
            await asyncio.wait_for(doorstep.components.store.time(), _STORE_SECONDS_MAX)
        except TimeoutError:
            raise StoreUnavailable("the store does not answer") from None
        return _OK

    @routes.get("/metrics", more={200: _TEXT})
    async def read_metrics() -> Response:
        """Counters, gauges and histograms of the whole installation in the text format of Prometheus, read from the store at most once a second; while that does not answer, they are as they were."""
        seen = await doorstep.components.sampler.snapshot()
        return Response(
            prometheus.text(seen, doorstep.components.load(), doorstep.clock.now()), media_type=prometheus.CONTENT_TYPE
        )

    return routes


def worker_routes(doorstep: Doorstep) -> Routes:
    routes = Routes("/v1/workers", "workers")

    @routes.get()
    async def list_workers(caller: Caller) -> WorkerPage:
        """The processes that deliver, for all organizations: those that live, and those that were lost within a day."""
        now = doorstep.clock.now()
        workers = tuple(_worker_shown(one, now) for one in await doorstep.components.reader.workers())
        return WorkerPage(workers, whole(workers))

    return routes


def _worker_shown(worker: WorkerEntry, now: Instant) -> Worker:
    return shape(Worker, worker, state="lost" if worker.is_lost(now) else "alive")


_TEXT: dict[str, Any] = {
    "description": "Metrics",
    "content": {
        "text/plain": {
            "schema": {"type": "string"},
            "example": "# TYPE doorstep_events_created_total counter\ndoorstep_events_created_total 42.0\n",
        }
    },
}
