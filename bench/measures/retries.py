"""How late retries start while a hundred thousand retries wait: the time from the due time to the attempt's start."""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench.databases import StoreName
from bench.figures import Figure, at_most
from bench.past import add_retries
from bench.serving import Serving
from bench.setting import Setting
from bench.stock import Wanted, stock
from bench.timing import percentile
from doorstep.clock import MILLISECOND, SECOND, Instant

TARGET = at_most(250.0)
_ENDPOINTS = 20
_SPACING = MILLISECOND
"""One retry becomes due every millisecond."""
_HEAD_START: dict[StoreName, Instant] = {"sqlite": 3 * SECOND, "postgres": 6 * SECOND}
"""About the time it takes to fill the database and start the process."""
_CATCH_UP: Instant = 2 * SECOND
"""Deliveries that are due within this time after the start do not count. They may have waited for the start itself."""


def measure(setting: Setting) -> Iterator[Figure]:
    waiting, seconds = 100_000, setting.scaled(15, 3)
    for store in setting.stores:
        late = _lateness_ms(setting, store, waiting, seconds)
        yield Figure(
            f"{store}: lateness p50, {waiting:,} waiting", percentile(late, 0.5), "ms", note=f"N={len(late):,}"
        )
        yield Figure(f"{store}: lateness p99, {waiting:,} waiting", percentile(late, 0.99), "ms", TARGET)


def _lateness_ms(setting: Setting, store: StoreName, waiting: int, seconds: int) -> list[float]:
    with setting.databases.fresh(store) as database:
        stock(database, *(Wanted(setting.receiver.url("ok"), event_type=f"bench.{n}") for n in range(_ENDPOINTS)))
        due_at = time.time_ns() // 1_000 + _HEAD_START[store]
        first = add_retries(database, waiting, due_at, _SPACING)
        with Serving(database):
            counted_from = max(due_at, time.time_ns() // 1_000 + _CATCH_UP)
            time.sleep(counted_from / SECOND - time.time() + seconds)
        started = database.ask("SELECT delivery_id, started_at FROM doorstep_attempts")
    due_and_start = [(due_at + (row - first) * _SPACING, started_at) for row, started_at in started]
    return [(started_at - due) / MILLISECOND for due, started_at in due_and_start if due >= counted_from]
