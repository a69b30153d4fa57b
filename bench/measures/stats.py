"""What reports cost beside a million events: every range of /v1/stats, the health of a hundred endpoints, a scrape.

One question after the other, each measured from its first byte out to its last byte in. What they answer is compared
with a count of the rows themselves.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from typing import Any

from bench.databases import Database, StoreName
from bench.figures import Figure, at_most
from bench.rolled_up import add_month
from bench.serving import Serving
from bench.setting import ADMIN_KEY, Setting
from bench.stock import Wanted, stock
from bench.timing import percentile
from doorstep.clock import DAY
from doorstep.model.rollup import HOUR
from doorstep.policy.reporting import WINDOWS

TARGET = at_most(50.0)
_ENDPOINTS = 100
_KEPT = {"DOORSTEP_RETENTION_DAYS": "400"}
"""Nothing is cleaned away while it is measured."""


def measure(setting: Setting) -> Iterator[Figure]:
    events = setting.scaled(1_000_000, 50_000)
    for store in setting.stores:
        with setting.databases.fresh(store) as database:
            stock(database, *(Wanted(setting.receiver.url("ok"), event_type=f"bench.{n}") for n in range(_ENDPOINTS)))
            add_month(database, events, time.time_ns() // 1_000)
            with Serving(database, more=_KEPT) as serving:
                yield from _measure_store(setting, store, database, serving)


def _measure_store(setting: Setting, store: StoreName, database: Database, serving: Serving) -> Iterator[Figure]:
    asker = _Asker(serving.port)
    times = setting.scaled(50, 5)
    endpoint_id = asker.ask("/v1/endpoints?limit=1")[1]["endpoints"][0]["endpoint_id"]
    paths = {f"stats of {name}": f"/v1/stats?range={name}" for name in WINDOWS}
    paths["stats of 30d of one endpoint"] = f"/v1/stats?range=30d&endpoint_id={endpoint_id}"
    paths |= {
        f"health of 50 endpoints over {name}": f"/v1/stats/endpoints?range={name}&limit=50" for name in ("24h", "30d")
    }
    paths["targets of 50 endpoints"] = "/v1/slo?limit=50"
    for words, path in paths.items():
        asker.ask(path)  # the first one prepares its statements
        cpu = _cpu_seconds(serving, database)
        taken = [asker.ask(path)[0] for _ in range(times)]
        yield _figure(f"{store}: {words}, p95", taken, 1_000 * (_cpu_seconds(serving, database) - cpu) / times)
    yield _figure(f"{store}: a scrape of /metrics, p95", _scrapes(asker, setting.scaled(20, 3)))
    told, counted = _told(asker), _counted(database)
    yield Figure(
        f"{store}: events of 7d that /v1/stats and the rows disagree about", abs(told - counted), "", at_most(0)
    )


def _figure(words: str, taken: list[float], cpu_ms: float | None = None) -> Figure:
    note = f"N={len(taken)}, median {percentile(taken, 0.5):.1f} ms, highest {max(taken):.1f} ms"
    each = "" if cpu_ms is None else f", {cpu_ms:.1f} ms of CPU each"
    return Figure(words, percentile(taken, 0.95), "ms", TARGET, note + each)


def _cpu_seconds(serving: Serving, database: Database) -> float:
    """Of the server, its services in the background included, and of the database."""
    return serving.cpu_seconds() + database.server_cpu_seconds()


def _scrapes(asker: _Asker, times: int) -> list[float]:
    """Each a second after the one before: what is younger than that is told from memory."""
    taken = []
    for _ in range(times):
        time.sleep(1.05)
        taken.append(asker.ask("/metrics")[0])
    return taken


def _told(asker: _Asker) -> int:
    report = asker.ask("/v1/stats?range=7d")[1]["report"]
    return sum(report["series"]["events"]["delivered"])


def _counted(database: Database) -> int:
    now = time.time_ns() // 1_000
    since = now - now % HOUR + HOUR - 7 * DAY
    return database.ask(f"SELECT count(*) FROM doorstep_deliveries WHERE settled_at >= {since}")[0][0]


class _Asker:
    """One connection, kept open."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(self, path: str) -> tuple[float, Any]:
        """The milliseconds until the answer was there, and the answer."""
        started = time.perf_counter()
        self._connection.request("GET", path, headers={"X-API-Key": ADMIN_KEY})
        response = self._connection.getresponse()
        content = response.read()
        taken = 1_000 * (time.perf_counter() - started)
        if response.status != 200:
            raise RuntimeError(f"{path} was answered {response.status}: {content[:500]!r}")
        return taken, json.loads(content) if content.startswith(b"{") else content
