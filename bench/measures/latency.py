"""The time from a request to its first attempt, on an idle system, over HTTP from end to end."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

from bench.figures import Figure, at_most
from bench.receiver import Receiver
from bench.serving import Client, Serving
from bench.setting import PAYLOAD, Setting
from bench.stock import Wanted, stock
from bench.timing import percentile

TARGET = at_most(10.0)
_PAUSE_SECONDS = 0.02


def measure(setting: Setting) -> Iterator[Figure]:
    for store in setting.stores:
        with setting.databases.fresh(store) as database:
            stock(database, Wanted(setting.receiver.url("stamp"), event_type="stamped"))
            with Serving(database) as serving:
                samples = arrivals_ms(serving, setting.receiver, setting.scaled(400, 120))
        yield Figure(f"{store}: request sent to arrival, p50", percentile(samples, 0.5), "ms", TARGET)
        yield Figure(
            f"{store}: request sent to arrival, p99", percentile(samples, 0.99), "ms", note=f"N={len(samples)}"
        )


def arrivals_ms(serving: Serving, receiver: Receiver, count: int) -> list[float]:
    """Send single events with pauses in between. Returns the milliseconds from each request to its arrival."""
    client = Client(serving.port)
    chance = random.Random(1)
    sent: dict[str, int] = {}
    _send(client)  # the first request opens the connections
    for _ in range(count):
        time.sleep(_PAUSE_SECONDS * (0.5 + chance.random()))
        at = time.monotonic_ns()
        sent[_send(client)] = at
    client.close()
    arrived = receiver.await_arrivals(sent)
    return [(arrived[event_id] - at) / 1e6 for event_id, at in sent.items()]


def _send(client: Client) -> str:
    return client.send(b'{"event_type": "stamped", "payload": %s}' % PAYLOAD)
