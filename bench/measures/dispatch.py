"""The cost of a delivery compared with the bare client: the whole path from claim to settlement, in CPU per delivery.

Rounds of the baseline and of each store alternate. Only the cheapest round of each counts, because other load on the
machine can only make a round more expensive.
"""

from __future__ import annotations

from collections.abc import Iterator

import uvloop

from bench.bare_client import Cost, post_all
from bench.databases import StoreName
from bench.figures import Figure, at_most
from bench.setting import PAYLOAD, Setting, settings_for
from bench.stock import Wanted, stock
from bench.timing import in_own_process
from bench.working_off import work_off
from doorstep.app import Doorstep
from doorstep.engine.directory import Tuning

TARGET = at_most(2.0)
_CONNECTIONS = Tuning().connections_per_endpoint


def measure(setting: Setting) -> Iterator[Figure]:
    count, rounds = setting.scaled(20_000, 10_000), setting.scaled(3, 2)
    bare: list[Cost] = []
    paths: dict[StoreName, list[tuple[Cost, float]]] = {store: [] for store in setting.stores}
    for _ in range(rounds):
        bare.append(in_own_process(post_all, setting.receiver.url("ok"), PAYLOAD, count, _CONNECTIONS))
        for store, costs in paths.items():
            costs.append(_round(setting, store, count))
    yardstick = min(cost.cpu_us for cost in bare)
    yield Figure("bare client, CPU per POST", yardstick, "µs", note=f"{count:,} of 1 KiB, {_CONNECTIONS} connections")
    for store, costs in paths.items():
        yield from _figures(store, costs, yardstick)


def _figures(store: StoreName, costs: list[tuple[Cost, float]], yardstick: float) -> Iterator[Figure]:
    cpu_us = min(cost.cpu_us for cost, _ in costs)
    yield Figure(f"{store}: the whole path, CPU per delivery", cpu_us, "µs")
    yield Figure(f"{store}: the whole path, one process", max(cost.per_second for cost, _ in costs), "/s")
    if store == "postgres":
        yield Figure("postgres: CPU in the server, per delivery", min(server for _, server in costs), "µs")
    yield Figure(f"{store}: the whole path ÷ the bare client", cpu_us / yardstick, "×", TARGET)


def _round(setting: Setting, store: StoreName, count: int) -> tuple[Cost, float]:
    with setting.databases.fresh(store) as database:
        stock(database, Wanted(setting.receiver.url("ok"), count))
        before = database.server_cpu_seconds()
        cost = in_own_process(deliver_all, database.url, count)
        return cost, 1e6 * (database.server_cpu_seconds() - before) / count


def deliver_all(url: str, count: int) -> Cost:
    """Deliver everything in this database, like a worker process that writes its log to a file."""
    return uvloop.run(work_off(lambda telemetry: Doorstep(settings_for(url), telemetry=telemetry), count))
