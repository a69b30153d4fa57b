"""Whether a dead endpoint with a hundred thousand waiting deliveries delays the deliveries to a healthy endpoint.

The dead endpoint accepts connections and never answers. Its circuit never opens, so it keeps its slots.
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from bench.databases import StoreName
from bench.figures import Figure, at_most
from bench.measures.latency import arrivals_ms
from bench.serving import Serving
from bench.setting import Setting
from bench.stock import OTHER_ORG, Wanted, stock
from bench.timing import percentile
from doorstep.bootstrap import DEFAULT_ORG

TARGET = at_most(2.0)
_TIMEOUT_SECONDS = 2.0
_DEAD_IN = (("its own", DEFAULT_ORG), ("another", OTHER_ORG))


def measure(setting: Setting) -> Iterator[Figure]:
    flood = setting.scaled(100_000, 10_000)
    for store in setting.stores:
        calm = _samples(setting, store, flood=0)
        idle = percentile(calm, 0.99)
        yield Figure(f"{store}: p99 to a healthy endpoint, idle", idle, "ms", note=_note(calm))
        for words, org_id in _DEAD_IN[: setting.scaled(2, 1)]:
            samples = _samples(setting, store, flood, org_id)
            p99 = percentile(samples, 0.99)
            yield Figure(f"{store}: p99 with {flood:,} dead deliveries in {words} org", p99, "ms", note=_note(samples))
            yield Figure(f"{store}: with a dead endpoint in {words} org ÷ idle", p99 / idle, "×", TARGET)


def _note(samples: list[float]) -> str:
    return f"p50 {percentile(samples, 0.5):.1f} ms, N={len(samples)}"


def _samples(setting: Setting, store: StoreName, flood: int, org_id: UUID = DEFAULT_ORG) -> list[float]:
    dead = Wanted(setting.receiver.url("hang"), flood, "dead", org_id, timeout_seconds=_TIMEOUT_SECONDS, patient=True)
    healthy = Wanted(setting.receiver.url("stamp"), event_type="stamped")
    with setting.databases.fresh(store) as database:
        stock(database, *([dead] if flood else []), healthy)
        with Serving(database) as serving:
            return arrivals_ms(serving, setting.receiver, setting.scaled(400, 120))
