"""Whether memory and SQLite's file stay constant over a million deliveries, with sending, delivering and cleaning."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import psutil
import uvloop

from bench.databases import StoreName
from bench.delivered import Delivered
from bench.figures import Figure, at_most
from bench.setting import Setting, settings_for
from bench.stock import Wanted, drafts, stock
from bench.timing import in_own_process, slope
from doorstep.app import Doorstep
from doorstep.services.maintenance import Cleaner
from doorstep.services.worker import keep_running
from doorstep.telemetry.facts import Telemetry
from doorstep.telemetry.logs import open_log

MIB = 1024 * 1024
TARGET = at_most(10.0)
_SAMPLES = 50
_WARM_UP = 150_000
"""The first deliveries do not count, because caches and the allocator still grow, by 60 MiB in all."""
_AHEAD_MAX = 4_000
_RETENTION_SECONDS = 3.0


@dataclass(frozen=True)
class Sample:
    delivered: int
    memory_bytes: int
    file_bytes: int


def measure(setting: Setting) -> Iterator[Figure]:
    for store in setting.stores:
        yield from _measure_store(setting, store)


def _measure_store(setting: Setting, store: StoreName) -> Iterator[Figure]:
    count = setting.scaled(1_000_000, 100_000)
    with setting.databases.fresh(store) as database:
        stock(database, Wanted(setting.receiver.url("ok")))
        samples = in_own_process(live_through, database.url, str(database.path), count)
    counted = [sample for sample in samples if sample.delivered >= min(_WARM_UP, 0.6 * count)]
    words = f"over {counted[-1].delivered - counted[0].delivered:,} deliveries, fitted"
    yield Figure(f"{store}: memory of the process at the end", samples[-1].memory_bytes / MIB, "MiB")
    yield Figure(f"{store}: growth {words}", _growth(counted, "memory_bytes"), "MiB", TARGET)
    if store == "sqlite":
        yield Figure("the largest size of the file", max(sample.file_bytes for sample in counted) / MIB, "MiB")
        yield Figure(f"the file's growth {words}", _growth(counted, "file_bytes"), "MiB")


def _growth(samples: Sequence[Sample], what: str) -> float:
    """The growth of a fitted line, so that the ups and downs of cleaning and garbage collection do not count."""
    span = samples[-1].delivered - samples[0].delivered
    return slope([(sample.delivered, getattr(sample, what)) for sample in samples]) * span / MIB


def live_through(url: str, path: str, count: int) -> list[Sample]:
    return uvloop.run(_live_through(url, Path(path), count))


async def _live_through(url: str, path: Path, count: int) -> list[Sample]:
    delivered = Delivered(count)
    telemetry = Telemetry(open_log("info", "json", os.open(os.devnull, os.O_WRONLY)), delivered)
    doorstep = Doorstep(settings_for(url), telemetry=telemetry)
    doorstep._tuning = msgspec.structs.replace(doorstep._tuning, retention_days=_RETENTION_SECONDS / 86_400)
    async with doorstep:
        parts = doorstep.components
        cleaner = Cleaner(parts.store, doorstep.clock, parts.tuning, telemetry, parts.wake_dispatcher)
        cleaning = asyncio.create_task(keep_running(cleaner, doorstep.clock, telemetry))
        samples = await _send_and_sample(doorstep, delivered, path, count, cleaner.wake.set)
        cleaning.cancel()
        return samples


async def _send_and_sample(
    doorstep: Doorstep, delivered: Delivered, path: Path, count: int, clean: Callable[[], None]
) -> list[Sample]:
    """Send events and take samples. `clean` wakes a second cleaner: the worker's cleaner runs only once a minute."""
    process = psutil.Process()
    samples: list[Sample] = []
    sent = 0
    while delivered.count < count:
        if sent < count and sent - delivered.count < _AHEAD_MAX:
            await doorstep.components.accepter.accept(drafts(100))
            sent += 100
        else:
            await asyncio.sleep(0.005)
        if delivered.count >= len(samples) * count // _SAMPLES:
            file_bytes = sum(file.stat().st_size for file in path.parent.glob(path.name + "*"))
            samples.append(Sample(delivered.count, process.memory_info().rss, file_bytes))
            clean()
    return samples
