"""How soon failures are rescheduled: 1,000 requests that fail at the same moment.

The receiver waits until all requests have arrived, and then answers all of them with 503. For each failure, the time is
measured from the end of the attempt, when the worker has the complete response, until the store has written the retry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from uuid import UUID

import uvloop

from bench.figures import Figure, at_least, at_most
from bench.setting import Setting, settings_for
from bench.stock import Wanted, stock
from bench.timing import in_own_process, percentile
from doorstep.app import Doorstep
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.clock import MILLISECOND, Clock, Instant
from doorstep.telemetry.facts import DeliveryFailure, Fact, Telemetry

TARGET = at_most(1_000.0)
_FAILURES = 1_000
_ENDPOINTS = 20
_PLACES = 2_500
"""The slots of the worker. All failures must be in flight at the same time, and a single organization may use only
three sevenths of the slots."""
_SECONDS_MAX = 60
_SCHEDULED = "SELECT count(*) FROM doorstep_deliveries WHERE state = 'pending' AND attempt = 1 AND due_at IS NOT NULL"


def measure(setting: Setting) -> Iterator[Figure]:
    url = setting.receiver.url(f"together/{_FAILURES}")
    for store in setting.stores:
        with setting.databases.fresh(store) as database:
            stock(database, *(Wanted(url, _FAILURES // _ENDPOINTS, f"bench.{n}") for n in range(_ENDPOINTS)))
            waits = in_own_process(fail_together, database.url)
            ((scheduled,),) = database.ask(_SCHEDULED)
        yield Figure(f"{store}: failures scheduled again, of {_FAILURES:,}", scheduled, "", at_least(_FAILURES))
        yield Figure(f"{store}: from failure to scheduled, p50", percentile(waits, 0.5), "ms", note=f"N={len(waits):,}")
        yield Figure(f"{store}: from failure to scheduled, p95", percentile(waits, 0.95), "ms", TARGET)
        yield Figure(f"{store}: from failure to scheduled, the last", max(waits), "ms")


def fail_together(url: str) -> list[float]:
    """Deliver until all attempts have failed. Returns, for each failure, the milliseconds until it was rescheduled."""
    return uvloop.run(_fail_together(url))


async def _fail_together(url: str) -> list[float]:
    telemetry = Telemetry()
    doorstep = Doorstep(settings_for(url, concurrency=_PLACES), telemetry=telemetry)
    await doorstep.open(migrate=False)
    scheduled = _Scheduled(doorstep.clock)
    telemetry.subscribe(scheduled)
    doorstep.start()
    await asyncio.wait_for(scheduled.complete.wait(), _SECONDS_MAX)
    waits = [await _waited_ms(doorstep, delivery_id, at) for delivery_id, at in scheduled.at.items()]
    await doorstep.close()
    return waits


async def _waited_ms(doorstep: Doorstep, delivery_id: UUID, scheduled_at: Instant) -> float:
    (attempt,) = await doorstep.components.reader.attempts(DEFAULT_ORG, delivery_id)
    return (scheduled_at - attempt.finished_at) / MILLISECOND


class _Scheduled:
    """A subscriber that records failures. Facts are emitted after the commit, so the store has written each failure."""

    def __init__(self, clock: Clock) -> None:
        self.at: dict[UUID, Instant] = {}
        self.complete = asyncio.Event()
        self._clock = clock

    def __call__(self, facts: Sequence[Fact]) -> None:
        now = self._clock.now()
        for fact in facts:
            if type(fact) is DeliveryFailure:
                self.at.setdefault(fact.delivery_id, now)
        if len(self.at) >= _FAILURES:
            self.complete.set()
