"""Response times with a million events: 50 clients request statuses, then pages of failed events.

New events are delivered at the same time. The clients run in a separate process. Each client has a keep-alive
connection. It waits for its response, pauses for an exponentially distributed time, and requests another event or page.
The clients request 2,000 different events and 100 pages, so that shared responses do not improve the figures.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence

from bench.asker import Answers, ask_all
from bench.databases import Database, StoreName
from bench.figures import Figure, at_most
from bench.past import add_dead, add_finished
from bench.serving import Client, Serving
from bench.setting import Setting
from bench.stock import Wanted, stock
from bench.timing import in_own_process
from bench.traffic import Traffic
from doorstep.clock import DAY

TARGET = at_most(50.0)
_CLIENTS = 50
_THINK_SECONDS = 0.25
_LADDER = (1.0, 0.5, 0.25, 0.1, 0.05, 0.025, 0.01, 0.0)
"""Decreasing pauses in seconds, with which the highest rate is found."""
_FRESH_PER_SECOND = 50
_EVENTS_ASKED, _PAGES_ASKED = 2_000, 100


def measure(setting: Setting) -> Iterator[Figure]:
    events, failed = setting.scaled(1_000_000, 50_000), setting.scaled(10_000, 1_000)
    for store in setting.stores:
        with setting.databases.fresh(store) as database:
            stock(database, Wanted(setting.receiver.url("ok")))
            add_finished(database, events - failed, time.time_ns() // 1_000 - DAY)
            add_dead(database, failed, time.time_ns() // 1_000 - DAY)
            yield from _measure_store(setting, store, database)


def _measure_store(setting: Setting, store: StoreName, database: Database) -> Iterator[Figure]:
    with Serving(database) as serving, Traffic(serving.port, ["bench"], _FRESH_PER_SECOND) as traffic:
        asked = {"status": _statuses(database), "inbox of failed ones": _pages(serving.port)}
        asked["both"] = asked["status"] + asked["inbox of failed ones"] * (_EVENTS_ASKED // _PAGES_ASKED)
        before = setting.receiver.count()
        for words, paths in asked.items():
            yield from _figures(setting, f"{store}: {words}", serving, paths)
        arrived = setting.receiver.count() - before
        yield Figure(f"{store}: new events delivered during the reads", arrived, "", note=f"{len(traffic.sent):,} sent")


def _figures(setting: Setting, words: str, serving: Serving, paths: Sequence[str]) -> Iterator[Figure]:
    seconds = setting.scaled(10, 2)
    _ask(serving, paths, _THINK_SECONDS, 1)  # the first answers fill caches and prepare statements
    cpu, started = serving.cpu_seconds(), time.monotonic()
    answers = _ask(serving, paths, _THINK_SECONDS, seconds)
    share = (serving.cpu_seconds() - cpu) / (time.monotonic() - started)
    cores = f"of {os.cpu_count()} cores the server took {share:.2f}, the clients {answers.cpu_share:.2f}"
    yield Figure(f"{words}, p95, {_CLIENTS} clients", answers.p95_ms, "ms", TARGET, _note(answers, _THINK_SECONDS))
    yield Figure(f"{words}, p99", answers.p99_ms, "ms", note=cores)
    yield _highest(setting, f"{words}, highest rate with that p95", serving, paths)


def _highest(setting: Setting, words: str, serving: Serving, paths: Sequence[str]) -> Figure:
    """Shorten the pauses for as long as the p95 meets its target."""
    best, note = 0.0, "not even at the lowest rate"
    for think in _LADDER:
        answers = _ask(serving, paths, think, setting.scaled(5, 1))
        seen = f"{_note(answers, think)}, p95 {answers.p95_ms:.1f} ms"
        if not TARGET.met_by(answers.p95_ms):
            return Figure(words, best, "/s", note=f"{note}; next: {seen}")
        best, note = answers.per_second, seen
    return Figure(words, best, "/s", note=f"{note}; the clients cannot send requests faster")


def _ask(serving: Serving, paths: Sequence[str], think_seconds: float, seconds: float) -> Answers:
    answers = in_own_process(ask_all, serving.port, paths, _CLIENTS, think_seconds, seconds)
    if answers.refused:
        raise RuntimeError(f"{answers.refused} of {answers.count + answers.refused} answers were not 200")
    return answers


def _note(answers: Answers, think_seconds: float) -> str:
    return f"N={answers.count:,}, {answers.per_second:,.0f}/s, think time {1_000 * think_seconds:g} ms"


def _statuses(database: Database) -> list[str]:
    """The paths for the status of events from the whole table, including failed events."""
    ((last,),) = database.ask("SELECT max(id) FROM doorstep_events")
    step = max(1, last // _EVENTS_ASKED)
    ids = database.ids(f"SELECT uid FROM doorstep_events WHERE id % {step} = 0")
    return [f"/v1/events/{event_id}/status" for event_id in ids]


def _pages(port: int) -> list[str]:
    """The paths of consecutive pages of failed events."""
    client = Client(port)
    paths = ["/v1/inbox?status=failed"]
    while len(paths) < _PAGES_ASKED:
        cursor = client.call("GET", paths[-1])["pagination"]["cursor"]
        if cursor is None:
            break
        paths.append(f"{paths[0]}&cursor={cursor}")
    client.close()
    return paths
