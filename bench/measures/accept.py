"""How fast events are accepted durably: in single requests with and without group commit, in batches, and from Python.

Each event has one delivery, to a paused endpoint. So this measures accepting, not delivering.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import uvloop

from bench.databases import Database, StoreName
from bench.figures import Figure, at_least
from bench.sender import Load, post_events
from bench.serving import Serving
from bench.setting import PAYLOAD, Setting, settings_for
from bench.stock import Wanted, stock
from bench.timing import Stopwatch, in_own_process
from doorstep.app import Doorstep

TARGET = at_least(5.0)
_CONNECTIONS = 256
_BATCH = 100
_SINGLE = b'{"event_type": "bench", "payload": %s}' % PAYLOAD
_MANY = b"[%s]" % b",".join([_SINGLE] * _BATCH)


def measure(setting: Setting) -> Iterator[Figure]:
    for store in setting.stores:
        yield from _measure_store(setting, store)


def _measure_store(setting: Setting, store: StoreName) -> Iterator[Figure]:
    alone = _load(setting, store, "/v1/events", _SINGLE, program="bench.one_commit_each")
    grouped = _load(setting, store, "/v1/events", _SINGLE)
    batched = _load(setting, store, "/v1/events", _MANY, connections=8)
    yield Figure(f"{store}: one commit per request", alone.per_second, "/s", note=_note(alone))
    yield Figure(f"{store}: single events, group commit", grouped.per_second, "/s", note=_note(grouped))
    yield Figure(f"{store}: group commit ÷ one commit per request", grouped.per_second / alone.per_second, "×", TARGET)
    yield Figure(f"{store}: events in batches of {_BATCH}", batched.per_second * _BATCH, "/s", note=_note(batched))
    with _stocked(setting, store) as database:
        rate = in_own_process(send_from_python, database.url, setting.scaled(30_000, 10_000))
    yield Figure(f"{store}: send() from Python, {_CONNECTIONS} concurrent callers", rate, "/s")


def _load(
    setting: Setting,
    store: StoreName,
    path: str,
    body: bytes,
    *,
    program: str = "doorstep",
    connections: int = _CONNECTIONS,
) -> Load:
    seconds = setting.scaled(4, 1)
    with _stocked(setting, store) as database, Serving(database, program=program) as serving:
        in_own_process(post_events, serving.port, path, body, connections, 0.5)
        load = in_own_process(post_events, serving.port, path, body, connections, seconds)
    if load.refused:
        raise RuntimeError(f"{load.refused} requests were refused")
    return load


@contextmanager
def _stocked(setting: Setting, store: StoreName) -> Iterator[Database]:
    with setting.databases.fresh(store) as database:
        stock(database, Wanted(setting.receiver.url("ok"), paused=True))
        yield database


def send_from_python(url: str, count: int) -> float:
    """Events per second with concurrent callers of `send`, each waiting for its receipt."""
    return uvloop.run(_send_from_python(url, count))


async def _send_from_python(url: str, count: int) -> float:
    doorstep = Doorstep(settings_for(url))
    await doorstep.open(migrate=False)

    async def call(times: int) -> None:
        for _ in range(times):
            await doorstep.send("bench", PAYLOAD)

    watch = Stopwatch()
    await asyncio.gather(*(call(count // _CONNECTIONS) for _ in range(_CONNECTIONS)))
    elapsed = watch.wall_seconds
    await doorstep.close()
    return (count // _CONNECTIONS) * _CONNECTIONS / elapsed


def _note(load: Load) -> str:
    return f"p50 {load.p50_ms:.1f} ms, p99 {load.p99_ms:.1f} ms"
