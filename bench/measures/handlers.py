"""The cost of a delivery to a Python function: claim, call and settlement with an attempt row, in CPU per delivery.

The functions do nothing, so the whole cost is Doorstep's. Async functions run in the event loop, plain functions in
threads. The baseline is the bare HTTP client of `dispatch`. A delivery to a handler needs no HTTP client, so its whole
path may cost at most twice as much as that client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import uvloop

from bench.bare_client import Cost, post_all
from bench.databases import Database, StoreName
from bench.figures import Figure, at_most
from bench.setting import PAYLOAD, Setting, settings_for
from bench.timing import in_own_process
from bench.working_off import work_off
from doorstep.app import Doorstep
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.engine.accept import Draft
from doorstep.engine.directory import Tuning
from doorstep.telemetry.facts import Telemetry
from doorstep.transports.handler_replies import Handler, Received

TARGET = at_most(2.0)
JOB = b'{"text": "%s"}' % (b"x" * 488)
"""500 bytes of JSON, the same size as in the comparison with other queues (bench/rivals)."""
_CONNECTIONS = Tuning().connections_per_endpoint
_BATCH = 1_000


async def take_async(event: Received) -> None:
    """Does nothing, in the event loop."""


def take_plain(event: Received) -> None:
    """Does nothing, in a thread."""


_HANDLERS: dict[str, Handler] = {"async": take_async, "plain": take_plain}


@dataclass(frozen=True)
class _Round:
    cost: Cost
    server_us: float
    """CPU of the database server per delivery."""


def measure(setting: Setting) -> Iterator[Figure]:
    count, rounds = setting.scaled(20_000, 10_000), setting.scaled(3, 2)
    bare: list[float] = []
    done: dict[tuple[StoreName, str], list[_Round]] = {
        (store, kind): [] for store in setting.stores for kind in _HANDLERS
    }
    for _ in range(rounds):
        bare.append(in_own_process(post_all, setting.receiver.url("ok"), PAYLOAD, count, _CONNECTIONS).cpu_us)
        for (store, kind), own in done.items():
            own.append(_round(setting, store, kind, count))
    yield Figure("bare HTTP client, CPU per POST", min(bare), "µs", note=f"the baseline; {count:,} of each")
    for (store, kind), own in done.items():
        yield from _figures(store, f"{store}: {kind} handler", own, min(bare))


def _figures(store: StoreName, words: str, rounds: list[_Round], yardstick: float) -> Iterator[Figure]:
    """The figures of the cheapest round, because other load can only make a round more expensive."""
    cpu_us = min(one.cost.cpu_us for one in rounds)
    yield Figure(f"{words}, CPU per delivery", cpu_us, "µs")
    yield Figure(f"{words}, one process", max(one.cost.per_second for one in rounds), "/s")
    if store == "postgres":
        yield Figure(f"{words}, CPU in the server", min(one.server_us for one in rounds), "µs")
    yield Figure(f"{words} ÷ the bare HTTP client", cpu_us / yardstick, "×", TARGET)


def _round(setting: Setting, store: StoreName, kind: str, count: int) -> _Round:
    with setting.databases.fresh(store) as database:
        asyncio.run(_send_all(database, kind, count))
        before = database.server_cpu_seconds()
        cost = in_own_process(take_all, database.url, kind, count)
        server_us = 1e6 * (database.server_cpu_seconds() - before) / count
        attempts = database.ask("SELECT count(*) FROM doorstep_attempts WHERE code IS NULL")
        assert attempts == [(count,)], f"every delivery must have one successful attempt in the log, got {attempts}"
        return _Round(cost, server_us)


async def _send_all(database: Database, kind: str, count: int) -> None:
    doorstep = _doorstep(database.url, kind)
    await doorstep.open()
    draft = Draft(org_id=DEFAULT_ORG, event_type="bench", payload=JOB, correlation_id=f"{0:032x}")
    for start in range(0, count, _BATCH):
        await doorstep.components.accepter.accept([draft] * min(_BATCH, count - start))
    await doorstep.close()


def take_all(url: str, kind: str, count: int) -> Cost:
    """Deliver everything in this database, like a worker process that writes its log to a file."""
    return uvloop.run(work_off(partial(_doorstep, url, kind), count))


def _doorstep(url: str, kind: str, telemetry: Telemetry | None = None) -> Doorstep:
    doorstep = Doorstep(settings_for(url), telemetry=telemetry)
    doorstep.handler("bench", name="job")(_HANDLERS[kind])
    return doorstep
