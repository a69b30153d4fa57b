"""Deliveries per second with one process, and with additional worker processes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from bench.databases import StoreName
from bench.figures import Figure
from bench.serving import Serving
from bench.setting import Setting
from bench.stock import Wanted, stock

_ENDPOINTS = 8
_SECONDS_MAX = 60


def measure(setting: Setting) -> Iterator[Figure]:
    count = setting.scaled(40_000, 8_000)
    for store in setting.stores:
        alone = _per_second(setting, store, count, workers=0)
        yield Figure(f"{store}: serve alone", alone, "/s")
        for workers in (1,) if setting.quick else (1, 2):
            more = _per_second(setting, store, count, workers)
            words = f"serve and {workers} worker process{'es' if workers > 1 else ''}"
            yield Figure(f"{store}: {words}", more, "/s", note=f"{more / alone:.2f} × alone, on {os.cpu_count()} cores")


def _per_second(setting: Setting, store: StoreName, count: int, workers: int) -> float:
    """Deliveries per second between the first and the last tenth of the arrivals, which excludes start-up and tail."""
    url = setting.receiver.url("ok")
    with setting.databases.fresh(store) as database:
        stock(database, *(Wanted(url, count // _ENDPOINTS, f"bench.{n}") for n in range(_ENDPOINTS)))
        before = setting.receiver.count()
        with Serving(database, workers=workers):
            begun = _await_count(setting, before + count // 10)
            ended = _await_count(setting, before + count - count // 10)
    return (count - 2 * (count // 10)) / (ended - begun)


def _await_count(setting: Setting, wanted: int) -> float:
    deadline = time.monotonic() + _SECONDS_MAX
    while setting.receiver.count() < wanted:
        if time.monotonic() > deadline:
            raise RuntimeError(f"only {setting.receiver.count()} of {wanted} deliveries arrived")
        time.sleep(0.005)
    return time.monotonic()
