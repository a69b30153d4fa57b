"""What logs, metrics and traces cost beside the delivering itself, in CPU per delivery.

The same deliveries are made by a worker that says nothing, and by one that writes its log to a file, has its metrics
scraped four times a second, and exports spans to a collector. Their rounds take turns, and the cheapest of
each counts: whatever else the machine does can only add to a round.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context

import uvloop

from bench.bare_client import Cost
from bench.databases import Database, StoreName
from bench.figures import Figure, at_most
from bench.setting import Setting, settings_for
from bench.stock import Wanted, stock
from bench.timing import Stopwatch, in_own_process
from doorstep.app import Doorstep
from doorstep.cli.running import spare_collector
from doorstep.clock import Instant
from doorstep.model.settlement import Settled, Settlement
from doorstep.telemetry import metrics
from doorstep.telemetry.facts import Telemetry
from doorstep.telemetry.log_writer import open_log

TARGET = at_most(1.10)
_SECONDS_MAX = 120
_SCRAPE_SECONDS = 0.25
_USUALLY_EVERY = 40
"""At 4,000 events a second, a process begins a hundred traces: as many as it does unless told otherwise."""


def measure(setting: Setting) -> Iterator[Figure]:
    count, rounds = setting.scaled(20_000, 10_000), setting.scaled(4, 2)
    with _collector() as url:
        for store in setting.stores:
            silent, telling, tracing = [], [], []
            for _ in range(rounds):
                silent.append(_round(setting, store, count, None))
                telling.append(_round(setting, store, count, url, _USUALLY_EVERY))
                tracing.append(_round(setting, store, count, url, 1))
            yield from _figures(store, min(silent), min(telling), min(tracing))


def _figures(store: StoreName, silent: float, telling: float, tracing: float) -> Iterator[Figure]:
    yield Figure(f"{store}: CPU per delivery, nothing told", silent, "µs")
    yield Figure(
        f"{store}: CPU per delivery, log, metrics and traces", telling, "µs", note="traces as they are begun unasked"
    )
    yield Figure(f"{store}: with telemetry ÷ without", telling / silent, "×", TARGET)
    yield Figure(f"{store}: the same with every event traced ÷ without", tracing / silent, "×")


def _begin_traces(database: Database, every: int) -> None:
    """As they are begun where events are accepted; these were not accepted but put there."""
    if every:
        uid = "lower(hex(uid))" if database.url.startswith("sqlite") else "replace(uid::text, '-', '')"
        trace = f"'00-' || {uid} || '-0000000000000000-01'"
        database.run(f"UPDATE doorstep_events SET trace = {trace} WHERE id % {every} = 0")


def _round(setting: Setting, store: StoreName, count: int, collector: str | None, every: int = 0) -> float:
    with setting.databases.fresh(store) as database:
        stock(database, Wanted(setting.receiver.url("ok"), count))
        _begin_traces(database, every)
        return in_own_process(deliver_all, database.url, count, collector).cpu_us


def deliver_all(url: str, count: int, collector: str | None) -> Cost:
    """Deliver what waits in this database, as a worker process would."""
    if collector is not None:
        os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = collector
    return uvloop.run(_deliver_all(url, count, telling=collector is not None))


async def _deliver_all(url: str, count: int, telling: bool) -> Cost:
    with tempfile.TemporaryFile() as file:
        log = open_log("info", "json", file.fileno())
        doorstep = Doorstep(settings_for(url), telemetry=Telemetry(*([log] if telling else [])))
        await doorstep.open(migrate=False)
        settled = _settled(doorstep, count)
        spare_collector()
        watch = Stopwatch()
        doorstep.start()
        scraping = asyncio.create_task(_scrape(doorstep)) if telling else None
        await asyncio.wait_for(settled.wait(), _SECONDS_MAX)
        elapsed = watch.wall_seconds
        if scraping is not None:
            scraping.cancel()
            with suppress(asyncio.CancelledError):
                await scraping
        log.close()
        await doorstep.close()  # within what is measured: the last spans are sent then
        cost = Cost(1e6 * watch.cpu_seconds / count, count / elapsed)
        assert not telling or os.fstat(file.fileno()).st_size > 4 * 100 * count, "every delivery has four lines"
    return cost


def _settled(doorstep: Doorstep, wanted: int) -> asyncio.Event:
    """Set when all are settled. Seen at the store: to listen to facts would be to have them told."""
    complete, settle, count = asyncio.Event(), doorstep.store.settle, 0

    async def counting(settlements: Sequence[Settlement], now: Instant) -> Settled:
        nonlocal count
        result = await settle(settlements, now)
        count += len(settlements)
        if count >= wanted:
            asyncio.get_running_loop().call_soon(complete.set)  # what follows the settling is part of the cost
        return result

    doorstep.store.settle = counting  # type: ignore[method-assign]
    return complete


async def _scrape(doorstep: Doorstep) -> None:
    while True:
        metrics.text(await doorstep.sampler.snapshot(), doorstep.load(), doorstep.clock.now())
        await asyncio.sleep(_SCRAPE_SECONDS)


@contextmanager
def _collector() -> Iterator[str]:
    """A process that takes spans and forgets them."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_collect, args=(theirs,), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        process.kill()
        process.join()


def _collect(link: object) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    link.send(f"http://127.0.0.1:{server.server_address[1]}")  # type: ignore[attr-defined]
    server.serve_forever()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass
