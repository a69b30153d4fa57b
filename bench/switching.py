"""One worker that works off a slice of deliveries at a time, and from slice to slice tells more or less about itself.

The slices of one process are seconds apart and take turns, so that whatever else the machine does comes to all alike:
two processes, one after the other, were seen to differ by a fifth where nothing differed.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from enum import Enum
from typing import NamedTuple
from uuid import UUID

import psutil

from bench.setting import settings_for
from bench.timing import Stopwatch, cpu_seconds_of
from bench.uncounted import uncounted
from doorstep.app import Doorstep
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.cli.running import spare_collector
from doorstep.clock import Instant
from doorstep.model.settlement import Settled, Settlement
from doorstep.telemetry import metrics
from doorstep.telemetry.facts import Fact, Telemetry
from doorstep.telemetry.log_writer import open_log

_SECONDS_MAX = 60
_AFTERWARDS_SECONDS = 0.3
"""In which the last lines are written and the last spans sent; part of every slice."""


class Mode(Enum):
    """How much is told during a slice."""

    UNCOUNTED = "nothing is told, and the store does not count"
    SILENT = "nothing is told"
    TELLING = "log, metrics, as many traces as are begun unasked"
    TRACING = "log, metrics, a trace of every event"

    @property
    def tells(self) -> bool:
        return self in (Mode.TELLING, Mode.TRACING)


class Slice(NamedTuple):
    """The deliveries of one endpoint, which is paused until then."""

    event_type: str
    mode: Mode


class Spent(NamedTuple):
    """Microseconds of CPU for each delivery."""

    worker: float
    server: float
    """Of the database's own processes, where it has any."""


async def work_off_slices(url: str, slices: Sequence[Slice], count: int, server_pid: int | None) -> list[Spent]:
    """What each of them took, where `count` deliveries wait for each."""
    with tempfile.TemporaryFile() as file:
        log = open_log("info", "json", file.fileno())
        telemetry = _Switch(log)
        doorstep = Doorstep(settings_for(url), telemetry=telemetry)
        await doorstep.open(migrate=False)
        worker = _Worker(doorstep, telemetry, server_pid)
        spare_collector()
        doorstep.start()
        spent = [await worker.work_off(one, count) for one in slices]
        await doorstep.close()
        log.close()
        told = sum(one.mode.tells for one in slices) * count
        assert os.fstat(file.fileno()).st_size > 4 * 100 * told, "every delivery has four lines"
    return spent


class _Switch(Telemetry):
    """Turned off it is as one that nobody listens to."""

    on = True

    @property
    def heard(self) -> bool:
        return self.on and super().heard

    def emit_all(self, facts: Iterable[Fact]) -> None:
        if self.on:
            super().emit_all(facts)


class _Worker:
    def __init__(self, doorstep: Doorstep, telemetry: _Switch, server_pid: int | None) -> None:
        self._doorstep = doorstep
        self._telemetry = telemetry
        self._tracing = telemetry.tracing
        self._server = server_pid and psutil.Process(server_pid)
        self._settled = _Settled(doorstep)
        endpoints = doorstep.directory.endpoints
        self._endpoints = {kind: one.endpoint_id for one in endpoints for kind in one.event_types}

    async def work_off(self, one: Slice, count: int) -> Spent:
        self._telemetry.on = one.mode.tells
        self._telemetry.tracing = self._tracing if one.mode.tells else None
        endpoint_id = self._endpoints[one.event_type]
        with uncounted() if one.mode is Mode.UNCOUNTED else nullcontext():
            watch, before = Stopwatch(), self._server_seconds()
            await self._deliver(endpoint_id, count, scraped=one.mode.tells)
            return Spent(1e6 * watch.cpu_seconds / count, 1e6 * (self._server_seconds() - before) / count)

    async def _deliver(self, endpoint_id: UUID, count: int, scraped: bool) -> None:
        complete = self._settled.after(count)
        await self._doorstep.resume_endpoint(DEFAULT_ORG, endpoint_id, "bench")
        if scraped:
            metrics.text(await self._doorstep.sampler.snapshot(), self._doorstep.load(), self._doorstep.clock.now())
        await asyncio.wait_for(complete.wait(), _SECONDS_MAX)
        await asyncio.sleep(_AFTERWARDS_SECONDS)

    def _server_seconds(self) -> float:
        return cpu_seconds_of(self._server) if self._server else 0.0


class _Settled:
    """Counts what is settled at the store: to listen to facts would be to have them told."""

    def __init__(self, doorstep: Doorstep) -> None:
        self._settle = doorstep.store.settle
        self._left = 0
        self._complete = asyncio.Event()
        doorstep.store.settle = self._counting  # type: ignore[method-assign]

    def after(self, count: int) -> asyncio.Event:
        """Set when so many more are settled."""
        self._left, self._complete = count, asyncio.Event()
        return self._complete

    async def _counting(self, settlements: Sequence[Settlement], now: Instant) -> Settled:
        result = await self._settle(settlements, now)
        self._left -= len(settlements)
        if self._left <= 0:
            self._complete.set()
        return result
