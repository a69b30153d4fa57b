"""The inbox beside a million events that wait, a tenth of them leased, and a million that failed.

One client reads pages, then leases and acknowledges batches, without pauses.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from typing import Any, Self

from bench.databases import Database
from bench.figures import Figure, at_most
from bench.past import add_dead, add_waiting
from bench.serving import Client, Serving
from bench.setting import Setting
from bench.stock import Wanted, stock
from bench.timing import percentile
from doorstep.clock import DAY

TARGET = at_most(50.0)
_BATCH = 100
_LEASED = (
    "UPDATE doorstep_events SET visible_at = created_at + {day}, receive_count = 1, leased_by = 'bench' WHERE {which}"
)


def measure(setting: Setting) -> Iterator[Figure]:
    for count in (10_000, setting.scaled(1_000_000, 50_000)):
        for store in setting.stores:
            with setting.databases.fresh(store) as database:
                stock(database, Wanted(setting.receiver.url("ok")))
                _fill(database, count)
                yield from _measure_store(f"{store}, {count:,} waiting and failed", database, setting.scaled(80, 20))


def _fill(database: Database, count: int) -> None:
    """The leased events are older than all others."""
    now = time.time_ns() // 1_000
    last = add_waiting(database, count, now - DAY // 2)
    add_dead(database, count, now - DAY)
    leased = _LEASED.format(day=DAY, which=f"id > {last - count} AND id <= {last - count + count // 10}")
    database.run(leased, *(["VACUUM ANALYZE"] if database.store != "sqlite" else []))


def _measure_store(words: str, database: Database, rounds: int) -> Iterator[Figure]:
    with Serving(database) as serving:
        client = Client(serving.port)
        for name, path in (("inbox", "/v1/inbox"), ("failed inbox", "/v1/inbox?status=failed")):
            with _Meter(serving, database) as meter:
                took = _pages(client, path, rounds)
            yield from _figures(f"{words}: {name}, pages of 50", took, meter.seconds, rounds, "page")
        with _Meter(serving, database) as meter:
            leasing, acknowledging = _consume(client, rounds)
        yield from _figures(f"{words}: lease of {_BATCH}", leasing)
        yield from _figures(
            f"{words}: acknowledgement of {_BATCH}", acknowledging, meter.seconds, rounds * _BATCH, "event leased too"
        )
        client.close()


class _Meter:
    """The CPU that the server and its database used."""

    def __init__(self, serving: Serving, database: Database) -> None:
        self._serving, self._database = serving, database

    def __enter__(self) -> Self:
        self.seconds = -self._read()
        return self

    def __exit__(self, *exc: object) -> None:
        self.seconds += self._read()

    def _read(self) -> float:
        return self._serving.cpu_seconds() + self._database.server_cpu_seconds()


def _pages(client: Client, path: str, rounds: int) -> list[float]:
    """The times of consecutive pages."""
    took, cursor, joint = [], "", "&" if "?" in path else "?"
    for _ in range(rounds):
        seconds, page = _timed(client, "GET", path + cursor)
        took.append(seconds)
        following = page["pagination"]["cursor"]
        cursor = "" if following is None else f"{joint}cursor={following}"
    return took


def _consume(client: Client, rounds: int) -> tuple[list[float], list[float]]:
    """Lease and acknowledge batches of 100."""
    leasing, acknowledging = [], []
    for _ in range(rounds):
        seconds, leased = _timed(client, "POST", "/v1/inbox/lease", {"limit": _BATCH})
        assert len(leased["events"]) == _BATCH
        leasing.append(seconds)
        tokens = [{name: one[name] for name in ("event_id", "lease_token")} for one in leased["events"]]
        seconds, _ = _timed(client, "POST", "/v1/inbox/ack", {"events": tokens})
        acknowledging.append(seconds)
    return leasing, acknowledging


def _timed(client: Client, method: str, path: str, body: Any = None) -> tuple[float, Any]:
    content = None if body is None else json.dumps(body).encode()
    started = time.perf_counter()
    answer = client.call(method, path, content)
    return time.perf_counter() - started, answer


def _figures(
    words: str, took: Sequence[float], cpu_seconds: float = 0.0, count: int = 0, unit: str = ""
) -> Iterator[Figure]:
    took = took[1:]  # the first answer prepares statements
    note = f"N={len(took)}, median {1_000 * percentile(took, 0.5):.1f} ms"
    yield Figure(f"{words}, p95", 1_000 * percentile(took, 0.95), "ms", TARGET, note)
    if count:
        yield Figure(f"{words}, CPU per {unit}", 1e6 * cpu_seconds / count, "µs")
