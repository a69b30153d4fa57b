"""Response times of searches with a million events, and what declared fields cost at every accept.

The wanted events are the oldest, so a search without an index would examine all others first. The requests are made one
after the other. Each is timed from the first byte sent to the last byte received.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from urllib.parse import quote

from msgspec.structs import replace

from bench.databases import Database, StoreName
from bench.figures import Figure, Target, at_most
from bench.past import add_finished
from bench.serving import Client, Serving
from bench.setting import Setting, settings_for
from bench.stock import Wanted, stock
from bench.timing import Stopwatch, percentile
from bench.visitor import Visitor
from doorstep.app import Doorstep
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.clock import SECOND
from doorstep.engine.accept import Draft
from doorstep.stores.store import Put

_API, _CONSOLE = at_most(50.0), at_most(200.0)
_KEPT = {"DOORSTEP_RETENTION_DAYS": "400"}
_FIELDS = ("payload.order.id", "metadata.customer")
_RARE = {"correlation_id": "rare-request", "ordering_key": "rare-line", "idempotency_key": "rare-key"}
_ACCEPTED = 20_000


def measure(setting: Setting) -> Iterator[Figure]:
    events = setting.scaled(1_000_000, 50_000)
    for store in setting.stores:
        with setting.databases.fresh(store) as database:
            stock(database, Wanted(setting.receiver.url("ok")), Wanted(setting.receiver.url("ok"), event_type="rare"))
            event_id = asyncio.run(_send_rare(database))
            _add_others(database, events)
            with Serving(database, more=_KEPT) as serving:
                yield from _figures(setting, store, serving, event_id)
        yield from _accepting(setting, store)


async def _send_rare(database: Database) -> str:
    async with _opened(database) as doorstep:
        await _declare(doorstep, _FIELDS)
        receipt = await doorstep.send(
            "rare",
            {"order": {"id": "rare"}, "note": "rare"},
            metadata={"customer": 7},
            correlation_id=_RARE["correlation_id"],
            ordering_key=_RARE["ordering_key"],
            idempotency_key=_RARE["idempotency_key"],
        )
        return str(receipt.event_id)


@asynccontextmanager
async def _opened(database: Database) -> AsyncIterator[Doorstep]:
    doorstep = Doorstep(settings_for(database.url))
    await doorstep.open()
    try:
        yield doorstep
    finally:
        await doorstep.close()


async def _declare(doorstep: Doorstep, names: tuple[str, ...]) -> None:
    """Declare fields whose index is complete from the beginning."""
    org = await doorstep.components.search.org(DEFAULT_ORG)
    await doorstep.components.store.write([Put(document=replace(org, search_fields=dict.fromkeys(names, 1)))])


def _add_others(database: Database, events: int) -> None:
    add_finished(database, events, f"{time.time_ns() // 1_000 + 10 * SECOND} + i * 1000")
    first = "(SELECT min(id) FROM doorstep_events WHERE correlation_id = 'past')"
    database.run(
        f"UPDATE doorstep_events SET correlation_id = 'c' || id, ordering_key = 'o' || (id % 1000) WHERE id >= {first}",
        "INSERT INTO doorstep_search_values (event_id, value, org_id, event_uid)"
        " SELECT id, id, org_id, uid FROM doorstep_events WHERE ordering_key LIKE 'o%'",
        "ANALYZE",
    )


def _figures(setting: Setting, store: StoreName, serving: Serving, event_id: str) -> Iterator[Figure]:
    api = {name: f"/v1/events?{name}={value}" for name, value in _RARE.items()}
    api |= {
        "a declared field": "/v1/events?payload[order.id]=rare",
        "two declared fields": "/v1/events?payload[order.id]=rare&metadata[customer]=7",
        "an undeclared field, one page": "/v1/events?payload[note]=rare",
        "a rare event type": "/v1/events?event_type=rare",
        "a rare endpoint": "/v1/events?endpoint=rare",
        "a frequent ordering key": "/v1/events?ordering_key=o7",
        "a short id": f"/v1/find?id={event_id[-8:]}",
    }
    times = setting.scaled(100, 10)
    client = Client(serving.port)
    for words, path in api.items():
        yield _timed(f"{store}: {words}, p95", partial(client.call, "GET", path), times, _API)
    visitor = Visitor(serving.port)
    for text in (*_RARE.values(), "order.id=rare", "note=rare", "no such thing", event_id[-8:]):
        page = f"/console/search?q={quote(text)}"
        yield _timed(f"{store}: search box: {text}, p95", partial(visitor.see, page), times, _CONSOLE)
    client.close()
    visitor.close()


def _timed(words: str, ask: Callable[[], object], times: int, target: Target) -> Figure:
    taken = []
    for _ in range(times + 1):
        started = time.perf_counter()
        ask()
        taken.append(1_000 * (time.perf_counter() - started))
    taken = taken[1:]  # the first request prepares its statements
    note = f"N={times}, median {percentile(taken, 0.5):.1f} ms, highest {max(taken):.1f} ms"
    return Figure(words, percentile(taken, 0.95), "ms", target, note)


def _accepting(setting: Setting, store: StoreName) -> Iterator[Figure]:
    """The CPU of accepting events in batches, with and without declared fields."""
    for count in (0, 1, 2):
        with setting.databases.fresh(store) as database:
            stock(database, Wanted(setting.receiver.url("ok"), paused=True))
            cost = asyncio.run(_accept(database, _FIELDS[:count], setting.scaled(_ACCEPTED, 2_000)))
        yield Figure(f"{store}: accepting with {count} declared fields", cost, "µs", note="CPU per event")


async def _accept(database: Database, names: tuple[str, ...], events: int) -> float:
    async with _opened(database) as doorstep:
        await _declare(doorstep, names)
        server, watch = database.server_cpu_seconds(), Stopwatch()
        for start in range(0, events, 100):
            payloads = (b'{"order": {"id": %d}, "total": 99}' % number for number in range(start, start + 100))
            drafts = [_draft(payload) for payload in payloads]
            await doorstep.components.accepter.accept(drafts)
        return 1e6 * (watch.cpu_seconds + database.server_cpu_seconds() - server) / events


def _draft(payload: bytes) -> Draft:
    metadata = b'{"customer": 7}'
    return Draft(org_id=DEFAULT_ORG, event_type="bench", payload=payload, metadata=metadata, correlation_id="bench")
