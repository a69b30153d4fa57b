"""The cost of console pages with a million events, a hundred thousand dead letters and 200 endpoints.

All console pages are requested one after the other over one connection, with existing ids, all filters, all ranges, and
the second pages of lists. Each request is timed from the first byte sent to the last byte received. For the slowest
pages, the query plans of their slow statements are printed.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.console_pages import every_page
from bench.crowded import Ids, crowd
from bench.databases import Database, StoreName
from bench.figures import Figure, at_most
from bench.serving import Serving
from bench.setting import Setting
from bench.timing import percentile
from bench.visitor import Visitor

TARGET_MS = 200.0
_NONE = at_most(0)
_SHOWN = 5
_APP = "bench.reviewing:reviewing"
_KEPT = {"DOORSTEP_RETENTION_DAYS": "400"}
"""With this retention, nothing is cleaned up during the measurement."""


class Timed(NamedTuple):
    """The measurement of one page, which was requested repeatedly."""

    name: str
    """The path of the page, without the parts that differ between runs."""
    path: str
    milliseconds: list[float]
    size: int
    cpu_ms: float
    """The CPU that the server and its database used for each request."""

    @property
    def p95(self) -> float:
        return percentile(self.milliseconds, 0.95)

    @property
    def note(self) -> str:
        median = percentile(self.milliseconds, 0.5)
        return f"median {median:.1f} ms, {self.cpu_ms:.0f} ms of CPU, {self.size / 1_024:.0f} KiB"


def measure(setting: Setting) -> Iterator[Figure]:
    events = setting.scaled(1_000_000, 50_000)
    for store in setting.stores:
        with setting.databases.fresh(store) as database:
            ids = crowd(database, setting.receiver.url("ok"), events, time.time_ns() // 1_000)
            with Serving(database, app=_APP, more=_KEPT) as serving:
                times = setting.scaled(30, 5)
                timed = _visit_all(serving, ids, times, lambda: _cpu_seconds(serving, database))
            yield from _figures(store, timed)
            _print_plans(database, _slowest(timed))


def _figures(store: StoreName, timed: Sequence[Timed]) -> Iterator[Figure]:
    slow = [one for one in timed if one.p95 > TARGET_MS]
    note = f"of {len(timed)} pages, N={len(timed[0].milliseconds)} each"
    yield Figure(f"{store}: pages with a p95 above {TARGET_MS:g} ms", len(slow), "", _NONE, note)
    for one in _slowest(timed):
        yield Figure(f"{store}: {one.name}, p95", one.p95, "ms", at_most(TARGET_MS), one.note)
    dearest = max(timed, key=lambda one: one.cpu_ms)
    yield Figure(f"{store}: CPU of the most expensive page", dearest.cpu_ms, "ms", note=dearest.name)
    yield Figure(f"{store}: p95 of the median page", percentile([one.p95 for one in timed], 0.5), "ms")
    for one in sorted(timed, key=lambda one: -one.size)[:_SHOWN]:
        yield Figure(f"{store}: {one.name}, size", one.size / 1_024, "KiB")


def _slowest(timed: Sequence[Timed]) -> list[Timed]:
    return sorted(timed, key=lambda one: -one.p95)[:_SHOWN]


# -- asking ------------------------------------------------------------------------------------------------


def _visit_all(serving: Serving, ids: Ids, times: int, cpu_seconds: Callable[[], float]) -> list[Timed]:
    visitor = Visitor(serving.port)
    paths = _with_second_pages(visitor, every_page(ids))
    timed = [_timed(visitor, path, _named(path, ids), times, cpu_seconds) for path in paths]
    visitor.close()
    return timed


def _with_second_pages(visitor: Visitor, paths: Sequence[str]) -> list[str]:
    """These paths and the paths of their second pages. Each is requested once here, to prepare its statements."""
    followed = [visitor.see(path).next for path in paths]
    return [*paths, *(path for path in followed if path is not None)]


def _timed(visitor: Visitor, path: str, name: str, times: int, cpu_seconds: Callable[[], float]) -> Timed:
    size = len(visitor.see(path).content)
    before = cpu_seconds()
    taken = [visitor.see(path).milliseconds for _ in range(times)]
    return Timed(name, path, taken, size, 1_000 * (cpu_seconds() - before) / times)


def _named(path: str, ids: Ids) -> str:
    """The path with names instead of ids, so that runs can be compared."""
    for name, value in ids.items():
        path = path.replace(value, f"{{{name}}}")
    return re.sub(r"cursor=.*", "cursor=…", re.sub(r"\d{4}-\d\d-\d\d", "…", path))


def _cpu_seconds(serving: Serving, database: Database) -> float:
    return serving.cpu_seconds() + database.server_cpu_seconds()


def _print_plans(database: Database, slowest: Sequence[Timed]) -> None:
    """Print the plans of statements that took more than 10 ms, each statement once."""
    with tempfile.TemporaryDirectory(prefix="doorstep-plans-") as folder:
        plans = Path(folder) / "plans"
        with Serving(
            database, program="bench.explaining", app=_APP, more=_KEPT | {"BENCH_PLANS": str(plans)}
        ) as serving:
            visitor = Visitor(serving.port)
            for one in slowest:
                plans.write_text("")
                visitor.see(one.path)
                print(f"  {one.path}\n{plans.read_text()}", flush=True)
            visitor.close()
