"""What logs, metrics and traces cost beside the delivering itself, in CPU per delivery.

One worker delivers slice after slice: silent, or writing its log to a file, having its metrics scraped once a slice (every
second or so; usual is every 15) and exporting spans to a collector. What a process does once, such as to load its libraries,
is left out. In each round every mode has its turn; the figure is the median of the rounds' ratios.

The store counts what happens (model/rollup.py) on both sides, because reports, targets and alerts live by it whether
anybody asks for metrics or not. A second ratio is against a store that counts nothing, with the server's CPU in it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, median

import uvloop

from bench.collector import collecting
from bench.databases import Database, StoreName
from bench.figures import Figure, at_most
from bench.setting import Setting
from bench.stock import Wanted, stock
from bench.switching import Mode, Slice, Spent, work_off_slices
from bench.timing import in_own_process

TARGET = at_most(1.10)
_USUALLY_EVERY = 40
"""At 4,000 events a second, a process begins a hundred traces: as many as it does unless told otherwise."""
_TRACED_EVERY = {Mode.TELLING: _USUALLY_EVERY, Mode.TRACING: 1}

Rounds = Mapping[Mode, Sequence[Spent]]
"""What each mode took, round by round."""


def measure(setting: Setting) -> Iterator[Figure]:
    with collecting() as url:
        for store in setting.stores:
            yield from _figures(store, _rounds(setting, store, url))


def _figures(store: StoreName, rounds: Rounds) -> Iterator[Figure]:
    for mode, spent in rounds.items():
        note = f"and the server {fmean(one.server for one in spent):.1f} µs; " if store == "postgres" else ""
        figure = median(one.worker for one in spent)
        yield Figure(f"{store}: CPU per delivery, {mode.name.lower()}", figure, "µs", note=note + mode.value)
    telling, silent, uncounted = rounds[Mode.TELLING], rounds[Mode.SILENT], rounds[Mode.UNCOUNTED]
    yield Figure(f"{store}: with telemetry ÷ without", _ratio(telling, silent), "×", TARGET)
    yield Figure(f"{store}: with every event traced ÷ without", _ratio(rounds[Mode.TRACING], silent), "×")
    yield Figure(f"{store}: with telemetry ÷ without, counting included", _ratio(telling, uncounted), "×")
    if store == "postgres":
        yield Figure(f"{store}: the same with the server's CPU", _ratio_altogether(telling, uncounted), "×")


def _ratio(more: Sequence[Spent], less: Sequence[Spent]) -> float:
    return median(a.worker / b.worker for a, b in zip(more, less, strict=True))


def _ratio_altogether(more: Sequence[Spent], less: Sequence[Spent]) -> float:
    """Of the sums: the system tells the time of other processes in steps of 10 ms, which is much for one slice."""
    return sum(one.worker + one.server for one in more) / sum(one.worker + one.server for one in less)


def _rounds(setting: Setting, store: StoreName, collector: str) -> Rounds:
    """The first round is thrown away: in it, connections are made and statements prepared."""
    count, rounds = setting.scaled(2_500, 2_000), setting.scaled(16, 8)
    slices = [Slice(f"slice-{number}", mode) for number, mode in enumerate(_turns(rounds + 1))]
    with setting.databases.fresh(store) as database:
        url = setting.receiver.url("ok")
        stock(database, *[Wanted(url, count, one.event_type, paused=True) for one in slices])
        _begin_traces(database, slices)
        pid = database.server.pid if database.server else None
        spent = in_own_process(_work_off, database.url, slices, count, pid, collector)
    kept = list(zip(slices, spent, strict=True))[len(Mode) :]
    return {mode: [took for one, took in kept if one.mode is mode] for mode in Mode}


def _turns(rounds: int) -> Iterator[Mode]:
    """All modes in each round, there and back again, so that none always follows the same one."""
    for number in range(rounds):
        yield from list(Mode) if number % 2 else reversed(Mode)


def _begin_traces(database: Database, slices: Sequence[Slice]) -> None:
    """As they are begun where events are accepted, which happened before anything was told."""
    uid = "lower(hex(uid))" if database.store == "sqlite" else "replace(uid::text, '-', '')"
    trace = f"'00-' || {uid} || '-0000000000000000-01'"
    for mode, every in _TRACED_EVERY.items():
        types = ", ".join(f"'{one.event_type}'" for one in slices if one.mode is mode)
        database.run(f"UPDATE doorstep_events SET trace = {trace} WHERE id % {every} = 0 AND event_type IN ({types})")


def _work_off(url: str, slices: Sequence[Slice], count: int, server_pid: int | None, collector: str) -> list[Spent]:
    os.environ |= {"OTEL_EXPORTER_OTLP_ENDPOINT": collector, "OTEL_BSP_SCHEDULE_DELAY": "250"}
    return uvloop.run(work_off_slices(url, slices, count, server_pid))
