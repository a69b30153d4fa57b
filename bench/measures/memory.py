"""Whether memory stays flat over a million deliveries, and the file too: sent, delivered and cleaned all along."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import psutil
import uvloop

from bench.delivered import Delivered
from bench.figures import Figure, at_most
from bench.setting import Setting, settings_for
from bench.stock import Wanted, drafts, stock
from bench.timing import in_own_process, slope
from doorstep.app import Doorstep
from doorstep.log_writer import open_log
from doorstep.telemetry import Telemetry

MIB = 1024 * 1024
TARGET = at_most(10.0)
_SAMPLES = 50
_WARM_UP = 10
"""Samples that do not count: caches fill, the allocator finds its size, cleaning begins."""
_AHEAD_MAX = 4_000
_RETENTION_SECONDS = 3.0


@dataclass(frozen=True)
class Sample:
    delivered: int
    memory_bytes: int
    file_bytes: int


def measure(setting: Setting) -> Iterator[Figure]:
    count = setting.scaled(1_000_000, 100_000)
    with setting.databases.fresh("sqlite") as database:
        stock(database, Wanted(setting.receiver.url("ok")))
        samples = in_own_process(live_through, database.url, str(database.path), count)
    counted = samples[_WARM_UP:]
    yield Figure("memory of the process at the end", samples[-1].memory_bytes / MIB, "MiB")
    growth = slope([(sample.delivered, sample.memory_bytes) for sample in counted]) * count / MIB
    yield Figure(f"growth over {count:,} deliveries, fitted", growth, "MiB", TARGET)
    yield Figure("the file at its largest", max(sample.file_bytes for sample in counted) / MIB, "MiB")
    file_growth = slope([(sample.delivered, sample.file_bytes) for sample in counted]) * count / MIB
    yield Figure(f"the file's growth over {count:,} deliveries, fitted", file_growth, "MiB")


def live_through(url: str, path: str, count: int) -> list[Sample]:
    return uvloop.run(_live_through(url, Path(path), count))


async def _live_through(url: str, path: Path, count: int) -> list[Sample]:
    delivered = Delivered(count)
    telemetry = Telemetry(open_log("info", "json", os.open(os.devnull, os.O_WRONLY)), delivered)
    doorstep = Doorstep(settings_for(url), telemetry=telemetry)
    doorstep.tuning = msgspec.structs.replace(doorstep.tuning, retention_days=_RETENTION_SECONDS / 86_400)
    async with doorstep:
        return await _send_and_sample(doorstep, delivered, path, count)


async def _send_and_sample(doorstep: Doorstep, delivered: Delivered, path: Path, count: int) -> list[Sample]:
    process = psutil.Process()
    samples: list[Sample] = []
    sent = 0
    while delivered.count < count:
        if sent < count and sent - delivered.count < _AHEAD_MAX:
            await doorstep.send_many(drafts(100))
            sent += 100
        else:
            await asyncio.sleep(0.005)
        if delivered.count >= len(samples) * count // _SAMPLES:
            file_bytes = sum(file.stat().st_size for file in path.parent.glob(path.name + "*"))
            samples.append(Sample(delivered.count, process.memory_info().rss, file_bytes))
    return samples
