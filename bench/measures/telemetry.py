"""The cost of logs, metrics and traces, in CPU per delivery.

One worker delivers continuously, in alternating turns of a fraction of a second (bench/switching.py). In one kind of
turn, telemetry is off. In the other, the worker writes its log to a file, has its metrics scraped every two seconds (15
is usual) and exports spans to a collector. The CPU of the log's and the exporter's threads is measured separately and
always counts as telemetry.

The store counts (model/rollup.py) in both kinds of turn, because reports, targets and alerts need its figures even
without metrics. A second ratio compares with a store that counts nothing, and includes the server's CPU.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

import uvloop

from bench.collector import collecting
from bench.databases import Database, StoreName
from bench.figures import Figure, at_most
from bench.setting import Setting
from bench.stock import Wanted, stock
from bench.switching import Mode, Spent, work_off
from bench.timing import in_own_process

TARGET = at_most(1.10)
_USUALLY_EVERY = 40
"""At 4,000 events a second, a process starts a hundred traces, which is the default."""


def measure(setting: Setting) -> Iterator[Figure]:
    with collecting() as url:
        for store in setting.stores:
            yield from _usually(store, _compared(setting, store, url, (Mode.SILENT, Mode.TELLING), _USUALLY_EVERY))
            yield from _traced(store, _compared(setting, store, url, (Mode.SILENT, Mode.TRACING), 1))
            yield from _counted(store, _compared(setting, store, url, (Mode.UNCOUNTED, Mode.TELLING), _USUALLY_EVERY))


def _usually(store: StoreName, spent: Mapping[Mode, Spent]) -> Iterator[Figure]:
    for mode, used in spent.items():
        note = f"and the server {used.server:.1f} µs; " if store == "postgres" else ""
        yield Figure(f"{store}: CPU per delivery, {mode.name.lower()}", used.worker, "µs", note=note + mode.value)
    ratio = spent[Mode.TELLING].worker / spent[Mode.SILENT].worker
    yield Figure(f"{store}: with telemetry ÷ without", ratio, "×", TARGET)


def _traced(store: StoreName, spent: Mapping[Mode, Spent]) -> Iterator[Figure]:
    ratio = spent[Mode.TRACING].worker / spent[Mode.SILENT].worker
    yield Figure(f"{store}: with every event traced ÷ without", ratio, "×")


def _counted(store: StoreName, spent: Mapping[Mode, Spent]) -> Iterator[Figure]:
    telling, uncounted = spent[Mode.TELLING], spent[Mode.UNCOUNTED]
    ratio = telling.worker / uncounted.worker
    yield Figure(f"{store}: with telemetry ÷ without, counting included", ratio, "×")
    if store == "postgres":
        yield Figure(f"{store}: the same with the server's CPU", sum(telling) / sum(uncounted), "×")


def _compared(
    setting: Setting, store: StoreName, collector: str, modes: tuple[Mode, Mode], traced_every: int
) -> dict[Mode, Spent]:
    count = setting.scaled(120_000, 40_000)
    with setting.databases.fresh(store) as database:
        stock(database, Wanted(setting.receiver.url("ok"), count))
        _begin_traces(database, traced_every)
        pid = database.server.pid if database.server else None
        return in_own_process(_work_off, database.url, modes, count, pid, collector)


def _begin_traces(database: Database, every: int) -> None:
    """Store traces with the events, as if the traces had been started when the events were accepted.

    The events were accepted before the measurement.
    """
    uid = "lower(hex(uid))" if database.store == "sqlite" else "replace(uid::text, '-', '')"
    trace = f"'00-' || {uid} || '-0000000000000000-01'"
    database.run(f"UPDATE doorstep_events SET trace = {trace} WHERE id % {every} = 0")


def _work_off(
    url: str, modes: tuple[Mode, Mode], count: int, server_pid: int | None, collector: str
) -> dict[Mode, Spent]:
    os.environ |= {"OTEL_EXPORTER_OTLP_ENDPOINT": collector, "OTEL_BSP_SCHEDULE_DELAY": "250"}
    return uvloop.run(work_off(url, modes, count, server_pid))
