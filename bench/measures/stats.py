"""The cost of reports with a million events (some dead, some retrying) and live traffic: every range of /v1/stats, the
health of two hundred endpoints, sorted and unsorted, a scrape of the metrics.

The requests are made one after the other. Each is timed from the first byte sent to the last byte received. The figures
in the responses are compared with counts of the rows.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

from bench.databases import Database, StoreName
from bench.figures import Figure, at_most
from bench.rolled_up import add_month
from bench.serving import Serving
from bench.setting import ADMIN_KEY, Setting
from bench.stock import Wanted, stock
from bench.timing import percentile
from bench.traffic import Traffic
from doorstep.clock import DAY
from doorstep.model.rollup import HOUR
from doorstep.operations.stats import SORTS
from doorstep.policy.reports import WINDOWS

TARGET = at_most(50.0)
_ENDPOINTS = 200
"""As many as are sorted at most."""
_EVENTS_PER_SECOND = 20
_KEPT = {"DOORSTEP_RETENTION_DAYS": "400"}
"""With this retention, nothing is cleaned up during the measurement."""


def measure(setting: Setting) -> Iterator[Figure]:
    events = setting.scaled(1_000_000, 50_000)
    for store in setting.stores:
        with setting.databases.fresh(store) as database:
            stock(database, *(Wanted(setting.receiver.url("ok"), event_type=f"bench.{n}") for n in range(_ENDPOINTS)))
            add_month(database, events, time.time_ns() // 1_000)
            with Serving(database, more=_KEPT) as serving:
                yield from _measure_store(setting, store, database, serving)


def _measure_store(setting: Setting, store: StoreName, database: Database, serving: Serving) -> Iterator[Figure]:
    """Measure the requests while events arrive and are delivered, then compare the reports with the rows."""
    asker = _Asker(serving.port)
    with Traffic(serving.port, [f"bench.{n}" for n in range(_ENDPOINTS)], per_second=_EVENTS_PER_SECOND):
        yield from _measure_answers(setting, store, asker, lambda: _cpu_seconds(serving, database))
    time.sleep(2)  # until the last events have arrived
    for name, (told, counted) in _accounts(asker, database).items():
        yield Figure(f"{store}: {name}, difference between /v1/stats and the rows", abs(told - counted), "", at_most(0))


def _measure_answers(
    setting: Setting, store: StoreName, asker: _Asker, cpu_seconds: Callable[[], float]
) -> Iterator[Figure]:
    times = setting.scaled(50, 5)
    endpoint_id = asker.ask("/v1/endpoints?limit=1")[1]["endpoints"][0]["endpoint_id"]
    paths = {f"stats of {name}": f"/v1/stats?range={name}" for name in WINDOWS}
    paths["stats of 30d of one endpoint"] = f"/v1/stats?range=30d&endpoint_id={endpoint_id}"
    paths |= {
        f"health of 50 endpoints over {name}": f"/v1/stats/endpoints?range={name}&limit=50" for name in ("24h", "30d")
    }
    sorts = {f"{by} over {name}": f"sort={by}&range={name}" for by in SORTS for name in ("24h", "30d")}
    paths |= {f"health sorted by {words}": f"/v1/stats/endpoints?{query}" for words, query in sorts.items()}
    paths["targets of 50 endpoints"] = "/v1/slo?limit=50"
    for words, path in paths.items():
        asker.ask(path)  # the first request prepares its statements
        before = cpu_seconds()
        taken = [asker.ask(path)[0] for _ in range(times)]
        yield _figure(f"{store}: {words}, p95", taken, 1_000 * (cpu_seconds() - before) / times)
    yield _figure(f"{store}: a scrape of /metrics, p95", _scrapes(asker, setting.scaled(20, 3)))


def _figure(words: str, taken: list[float], cpu_ms: float | None = None) -> Figure:
    note = f"N={len(taken)}, median {percentile(taken, 0.5):.1f} ms, highest {max(taken):.1f} ms"
    each = "" if cpu_ms is None else f", {cpu_ms:.1f} ms of CPU each, including that of the traffic"
    return Figure(words, percentile(taken, 0.95), "ms", TARGET, note + each)


def _cpu_seconds(serving: Serving, database: Database) -> float:
    """CPU seconds of the server, including its background services, and of the database."""
    return serving.cpu_seconds() + database.server_cpu_seconds()


def _scrapes(asker: _Asker, times: int) -> list[float]:
    """The durations of scrapes, made more than a second apart, because newer responses are served from memory."""
    taken = []
    for _ in range(times):
        time.sleep(1.05)
        taken.append(asker.ask("/metrics")[0])
    return taken


def _accounts(asker: _Asker, database: Database) -> dict[str, tuple[int, int]]:
    """The reported figures, each with the figure counted from the rows."""
    answer = asker.ask("/v1/stats?range=7d")[1]
    report, now = answer["report"], time.time_ns() // 1_000
    delivered = f"state = 'delivered' AND settled_at >= {now - now % HOUR + HOUR - 7 * DAY}"
    return {
        "events delivered in 7d": (sum(report["series"]["events"]["delivered"]), _rows(database, delivered)),
        "dead letters": (answer["deliveries"]["dead"], _rows(database, "state = 'dead'")),
        "waiting deliveries": (report["series"]["queue_depth"][-1], _rows(database, "due_at IS NOT NULL")),
    }


def _rows(database: Database, condition: str) -> int:
    return database.ask(f"SELECT count(*) FROM doorstep_deliveries WHERE {condition}")[0][0]


class _Asker:
    """A client with one connection that stays open."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(self, path: str) -> tuple[float, Any]:
        """The milliseconds until the response, and the response."""
        started = time.perf_counter()
        self._connection.request("GET", path, headers={"X-API-Key": ADMIN_KEY})
        response = self._connection.getresponse()
        content = response.read()
        taken = 1_000 * (time.perf_counter() - started)
        if response.status != 200:
            raise RuntimeError(f"{path} was answered {response.status}: {content[:500]!r}")
        return taken, json.loads(content) if content.startswith(b"{") else content
