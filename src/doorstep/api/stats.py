"""How much there is, now: for people at /v1/stats, for Prometheus at /metrics."""

from __future__ import annotations

import asyncio
import contextlib

from fastapi import APIRouter
from starlette.responses import Response

from doorstep.api.auth import Caller
from doorstep.api.routing import StrictRoute
from doorstep.api.schemas import Shape, Timestamp, iso
from doorstep.app import Doorstep
from doorstep.clock import SECOND, Instant
from doorstep.errors import StoreUnavailable
from doorstep.metrics import CONTENT_TYPE, Metrics
from doorstep.path.reading import Stats

_SAMPLED_EVERY: Instant = SECOND
_STORE_SECONDS_MAX = 2.0


class DeliveryStats(Shape):
    retrying: int
    """Those that failed and will be tried again, or are being tried."""
    dead: int
    archived: int


class EventStats(Shape):
    inbox: int
    """Those that wait to be acknowledged."""
    failed: int


class StatsOut(Shape):
    """Counting stops at 10,000: what is named in `floors` is at least so much."""

    deliveries: DeliveryStats
    events: EventStats
    floors: list[str]
    oldest_due_at: Timestamp | None
    """Since when the first of the due deliveries has been due, but for those that are held."""

    @classmethod
    def of(cls, stats: Stats) -> StatsOut:
        counts = {name: getattr(stats, name) for name in ("retrying", "dead", "archived", "inbox", "failed")}
        return cls(
            deliveries=DeliveryStats(**{name: counts[name].value for name in DeliveryStats.model_fields}),
            events=EventStats(**{name: counts[name].value for name in EventStats.model_fields}),
            floors=[name for name, count in counts.items() if not count.exact],
            oldest_due_at=iso(stats.oldest_due_at),
        )


def stats_routes(doorstep: Doorstep) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["stats"], route_class=StrictRoute)

    @router.get("/stats")
    async def read_stats(caller: Caller) -> StatsOut:
        """How much waits for a retry, lies dead or waits in the inbox, and since when the oldest is due."""
        return StatsOut.of(await doorstep.reading.stats(caller.org_id))

    return router


def metrics_routes(doorstep: Doorstep) -> APIRouter:
    router = APIRouter(tags=["health"])
    sampler = _Sampler(doorstep)

    @router.get("/metrics", response_class=Response, responses=_TEXT)
    async def read_metrics() -> Response:
        """Counters and gauges of this process in the text format of Prometheus."""
        await sampler.sample()
        return Response(sampler.metrics.text(), media_type=CONTENT_TYPE)

    return router


class _Sampler:
    """Asks the store at most once a second, however often the page is fetched: it is open to everyone."""

    def __init__(self, doorstep: Doorstep) -> None:
        self.metrics = Metrics()
        doorstep.telemetry.subscribe(self.metrics.count)
        self._doorstep = doorstep
        self._sampled_at: Instant = 0

    async def sample(self) -> None:
        """Set the gauges. A store that does not answer leaves them as they were; the counters are shown all the same."""
        now = self._doorstep.clock.now()
        if now - self._sampled_at < _SAMPLED_EVERY:
            return
        self._sampled_at = now
        with contextlib.suppress(StoreUnavailable, TimeoutError):
            backlog = await asyncio.wait_for(self._doorstep.reading.backlog(), _STORE_SECONDS_MAX)
            due_at = backlog.oldest_due_at
            self.metrics.sample(backlog.endpoints, 0.0 if due_at is None else (now - due_at) / SECOND)


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
