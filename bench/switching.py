"""One worker that delivers continuously with telemetry alternately on and off, to compare their cost in one run.

Each turn takes a fraction of a second, so that other load affects both alike. Longer measurements were too noisy: two
identical processes, one after the other, differed by a fifth, and so did turns of a second.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from enum import Enum
from itertools import cycle
from typing import NamedTuple

import psutil

from bench.setting import settings_for
from bench.timing import cpu_seconds_of
from bench.uncounted import uncounted
from doorstep.app import Doorstep
from doorstep.cli.run import freeze_startup_objects
from doorstep.clock import Instant
from doorstep.model.claim import Settled, Settlement
from doorstep.telemetry import prometheus
from doorstep.telemetry.facts import Fact, Telemetry
from doorstep.telemetry.logs import open_log

_SECONDS_MAX = 300
_TURN_SECONDS = 0.2
_WARMING_UP = 8
"""The number of warm-up turns, in which connections are opened and statements prepared."""
_SCRAPED_EVERY = 10
"""The time between scrapes in turns with telemetry; 15 seconds is usual."""
_TELLERS = ("doorstep-logs", "doorstep-spans")
"""Threads that work only for telemetry. They lag behind, so their work may fall into a turn without telemetry."""
_LAG_SECONDS = 1.0


class Mode(Enum):
    """How much telemetry is on during a turn."""

    UNCOUNTED = "telemetry is off, and the store does not count"
    SILENT = "telemetry is off"
    TELLING = "log, metrics, as many traces as by default"
    TRACING = "log, metrics, a trace for every event"

    @property
    def tells(self) -> bool:
        return self in (Mode.TELLING, Mode.TRACING)


class Spent(NamedTuple):
    """Microseconds of CPU for each delivery."""

    worker: float
    server: float
    """The CPU of the database's own processes, if it has any."""


async def work_off(url: str, modes: tuple[Mode, Mode], count: int, server_pid: int | None) -> dict[Mode, Spent]:
    """The cost of a delivery in each mode, with `count` waiting deliveries."""
    with tempfile.TemporaryFile() as file:
        log = open_log("info", "json", file.fileno())
        telemetry = _Switch(log)
        doorstep = Doorstep(settings_for(url), telemetry=telemetry)
        await doorstep.open(migrate=False)
        freeze_startup_objects()
        worker = _Worker(doorstep, telemetry, server_pid)
        doorstep.start()
        async with asyncio.timeout(_SECONDS_MAX):
            spent = await worker.work_off(modes, count)
        await doorstep.close()
        log.close()
        told = worker.told * 4 * 100
        assert os.fstat(file.fileno()).st_size > told > 0, "every delivery must have four lines in the log"
    return spent


class _Switch(Telemetry):
    """When turned off, it behaves as if it had no subscribers."""

    on = True

    @property
    def has_subscribers(self) -> bool:
        return self.on and super().has_subscribers

    def emit_all(self, facts: Iterable[Fact]) -> None:
        if self.on:
            super().emit_all(facts)


class _Reading(NamedTuple):
    """The CPU used and the deliveries made so far."""

    worker: float
    server: float
    settled: int


class _Worker:
    def __init__(self, doorstep: Doorstep, telemetry: _Switch, server_pid: int | None) -> None:
        self._doorstep = doorstep
        self._telemetry = telemetry
        self._tracing = telemetry.tracing
        self._server = server_pid and psutil.Process(server_pid)
        self._settled = _Settled(doorstep)
        self._used: dict[Mode, defaultdict[str, float]] = {}
        self._turns: Counter[Mode] = Counter()

    async def work_off(self, modes: tuple[Mode, Mode], count: int) -> dict[Mode, Spent]:
        """Alternate the modes, in an order in which neither mode always follows the other.

        The last tenth of the deliveries is not measured, because fewer and fewer attempts are in flight then.
        """
        told_before = 0.0
        for number, mode in enumerate(cycle((*modes, *reversed(modes)))):
            if self._settled.count > 0.9 * count:
                break
            if number in (0, _WARMING_UP):
                self._used, told_before = {mode: defaultdict(float) for mode in modes}, _seconds_of_tellers()
            await self._turn(mode)
        await asyncio.sleep(_LAG_SECONDS)
        return self._spent(_seconds_of_tellers() - told_before)

    @property
    def told(self) -> float:
        """The number of deliveries made with telemetry on."""
        return sum(used["settled"] for mode, used in self._used.items() if mode.tells)

    async def _turn(self, mode: Mode) -> None:
        self._telemetry.on = mode.tells
        self._telemetry.tracing = self._tracing if mode.tells else None
        with uncounted() if mode is Mode.UNCOUNTED else nullcontext():
            before = self._reading()
            if mode.tells and self._turns[mode] % _SCRAPED_EVERY == 0:
                await self._scrape()
            await asyncio.sleep(_TURN_SECONDS)
            after = self._reading()
        self._turns[mode] += 1
        for name, start, end in zip(_Reading._fields, before, after, strict=True):
            self._used[mode][name] += end - start

    async def _scrape(self) -> None:
        prometheus.text(
            await self._doorstep.components.sampler.snapshot(),
            self._doorstep.components.load(),
            self._doorstep.clock.now(),
        )

    def _reading(self) -> _Reading:
        server = cpu_seconds_of(self._server) if self._server else 0.0
        return _Reading(time.process_time() - _seconds_of_tellers(), server, self._settled.count)

    def _spent(self, tellers: float) -> dict[Mode, Spent]:
        return {
            mode: Spent(
                1e6 * (used["worker"] + (tellers if mode.tells else 0)) / used["settled"],
                1e6 * used["server"] / used["settled"],
            )
            for mode, used in self._used.items()
        }


def _seconds_of_tellers() -> float:
    found = [one.ident for one in threading.enumerate() if one.name in _TELLERS]
    return sum(time.clock_gettime(time.pthread_getcpuclockid(one)) for one in found if one is not None)


class _Settled:
    """Counts settlements in the store's `settle` method. Subscribing to facts would turn telemetry on."""

    def __init__(self, doorstep: Doorstep) -> None:
        self._settle = doorstep.components.store.settle
        self.count = 0
        doorstep.components.store.settle = self._counting  # type: ignore[method-assign]

    async def _counting(self, settlements: Sequence[Settlement], now: Instant) -> Settled:
        result = await self._settle(settlements, now)
        self.count += len(settlements)
        return result
