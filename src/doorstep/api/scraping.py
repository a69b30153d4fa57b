"""/metrics, for Prometheus: the store's account of itself, the same from each process that is asked."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from doorstep.api.routing import group
from doorstep.app import Doorstep
from doorstep.telemetry import metrics


def metrics_routes(doorstep: Doorstep) -> APIRouter:
    router = group("", "health", strict=False)

    @router.get("/metrics", response_class=Response, responses=_TEXT)
    async def read_metrics() -> Response:
        """Counters, gauges and histograms of the whole installation in the text format of Prometheus.

        Read from the store at most once a second. While that does not answer, they are as they were.
        """
        seen = await doorstep.components.sampler.snapshot()
        return Response(
            metrics.text(seen, doorstep.components.load(), doorstep.clock.now()), media_type=metrics.CONTENT_TYPE
        )

    return router


_TEXT: dict[int | str, dict[str, object]] = {
    200: {
        "description": "Metrics",
        "content": {
            "text/plain": {
                "schema": {"type": "string"},
                "example": "# TYPE doorstep_events_created_total counter\ndoorstep_events_created_total 42.0\n",
            }
        },
    }
}
