"""The cost of events that are sent one at a time, from the POST to the settlement, compared with the bare client.

Slices of the bare client and of the store alternate, at the same rate, because a process that sleeps between two
requests pays for each wake-up: at 100 a second, a POST of the bare client costs many times what it costs at full speed.
All processes of the system count, and so does the database server.
"""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from statistics import median
from typing import NamedTuple

import uvloop

from bench.bare_client import Cost, post_all, post_steadily
from bench.calling import call_for, pauses
from bench.databases import Database, StoreName
from bench.figures import Figure, Target, at_most
from bench.receiver import Receiver
from bench.serving import Serving
from bench.setting import ADMIN_KEY, PAYLOAD, Setting
from bench.stock import Wanted, stock
from bench.timing import in_own_process, percentile
from bench.usage import Usage, count_futex_calls, memory_bytes, transactions_of, usage_of

MIB = 1024 * 1024
CONNECTIONS = 32
STEADY, SELDOM = 100, 5
_STEADY_CONNECTIONS = 4
_FULL_TARGETS = {"sqlite": at_most(8), "postgres": at_most(10)}
_STEADY_TARGETS = {"sqlite": at_most(6), "postgres": at_most(9)}
_P50_TARGETS = {"sqlite": 3.0, "postgres": 5.0}
_P99_TARGETS = {"sqlite": 9.0, "postgres": 12.0}
"""In milliseconds, on a machine where the bare client takes `_SCALE_US` per POST; slower machines get more."""
_SCALE_US = 50.0
_SELDOM_MS, _SELDOM_SCALE_US = 4.0, 400.0
"""The target at 5 events a second, on a machine where the bare client at 100 a second takes `_SELDOM_SCALE_US`."""
_TAIL_SECONDS = 0.3
"""The last settlements are written after the last arrival. They still count."""
_BODY = b'{"event_type": "single", "payload": %s}' % PAYLOAD
_HEAD = f"POST /v1/events HTTP/1.1\r\nHost: bench\r\nX-API-Key: {ADMIN_KEY}\r\nContent-Length: {len(_BODY)}\r\n\r\n"
_UNSETTLED = "SELECT count(*) FROM doorstep_deliveries WHERE state <> 'delivered'"


@dataclass(frozen=True)
class Pace:
    """How fast a slice sends, and how many events."""

    events: int
    per_second: int | None = None

    @property
    def connections(self) -> int:
        return CONNECTIONS if self.per_second is None else _STEADY_CONNECTIONS


class Sent(NamedTuple):
    """The result of a slice: what the system used, and the milliseconds from each request to its arrival."""

    usage: Usage
    transactions: int
    events: int
    seconds: float
    """From the first request to the last response."""
    arrival_ms: list[float]

    @property
    def cpu_us(self) -> float:
        return 1e6 * self.usage.cpu_seconds / self.events


def measure(setting: Setting) -> Iterator[Figure]:
    full = Pace(setting.scaled(4_000, 2_000))
    steady, seldom = Pace(setting.scaled(500, 300), STEADY), Pace(setting.scaled(50, 25), SELDOM)
    rounds = setting.scaled(5, 2)
    for store in setting.stores:
        with _serving(setting, store) as system:
            system.send(Pace(200))  # the first requests open the connections and prepare the statements
            yield from _full_speed(setting, system, full, rounds)
            yield Figure(
                f"{store}: memory after {system.sent:,} events",
                memory_bytes(system.serving.pid) / MIB,
                "MiB",
                at_most(110),
            )
            steady_us = yield from _steady(setting, system, steady, rounds)
            time.sleep(setting.scaled(60, 20))
            idle = system.rest(setting.scaled(20, 10))
            yield Figure(f"{store}: idle, CPU", 100 * idle.cpu_seconds, "% of a core", at_most(0.2))
            yield Figure(f"{store}: idle, wake-ups", idle.sleeps - idle.background_sleeps, "/s", at_most(5))
            if idle.background_sleeps:
                name = f"{store}: idle, wake-ups of the server's own processes"
                yield Figure(name, idle.background_sleeps, "/s")
            yield from _seldom(system, seldom, idle, steady_us)
            system.check_settled()


def _full_speed(setting: Setting, system: _System, pace: Pace, rounds: int) -> Iterator[Figure]:
    bare: list[Cost] = []
    sent: list[Sent] = []
    for _ in range(rounds):
        bare.append(in_own_process(post_all, setting.receiver.url("ok"), PAYLOAD, pace.events, CONNECTIONS))
        sent.append(system.send(pace))
    yardstick, cpu_us = min(one.cpu_us for one in bare), min(one.cpu_us for one in sent)
    name = f"{system.store}: {CONNECTIONS} connections at full speed"
    yield Figure("bare client at full speed, CPU per POST", yardstick, "µs")
    yield Figure(f"{name}, CPU per event", cpu_us, "µs")
    yield Figure(f"{name} ÷ the bare client", cpu_us / yardstick, "×", _FULL_TARGETS[system.store])
    yield Figure(f"{name}, one process", max(one.events / one.seconds for one in sent), "/s")


def _steady(setting: Setting, system: _System, pace: Pace, rounds: int) -> Generator[Figure, None, float]:
    """Also returns the CPU per POST of the bare client, in microseconds."""
    bare: list[Cost] = []
    sent: list[Sent] = []
    for _ in range(rounds):
        bare.append(in_own_process(post_steadily, setting.receiver.url("ok"), PAYLOAD, pace.events, STEADY))
        sent.append(system.send(pace))
    yardstick = median(one.cpu_us for one in bare)
    cpu_us = median(one.cpu_us for one in sent)
    full_us = in_own_process(post_all, setting.receiver.url("ok"), PAYLOAD, 2_000, CONNECTIONS).cpu_us
    name = f"{system.store}: {STEADY} events/s"
    yield Figure(f"bare client at {STEADY}/s, CPU per POST", yardstick, "µs")
    yield Figure(f"{name}, CPU per event", cpu_us, "µs")
    ratio = median(one.cpu_us / other.cpu_us for one, other in zip(sent, bare, strict=True))
    yield Figure(f"{name} ÷ the bare client", ratio, "×", _STEADY_TARGETS[system.store])
    yield from _per_event(system, name, sent, pace)
    arrivals = sorted(one for slice_ in sent for one in slice_.arrival_ms)
    scale = max(1.0, full_us / _SCALE_US)
    for share, target in ((0.5, _P50_TARGETS), (0.99, _P99_TARGETS)):
        wanted = Target(round(target[system.store] * scale, 1))
        yield Figure(f"{name}, request to arrival, p{share * 100:g}", percentile(arrivals, share), "ms", wanted)
    return yardstick


def _per_event(system: _System, name: str, sent: Sequence[Sent], pace: Pace) -> Iterator[Figure]:
    futexes = count_futex_calls(system.serving.pid, lambda: system.send(pace))
    if futexes is not None:
        yield Figure(f"{name}, futex calls per event", futexes / pace.events, "", at_most(12))
    yield Figure(
        f"{name}, context switches per event", median(one.usage.switches / one.events for one in sent), "", at_most(20)
    )
    yield Figure(
        f"{name}, written per event",
        median(one.usage.written_bytes / one.events for one in sent) / 1_000,
        "KB",
        at_most(50),
    )
    yield Figure(
        f"{name}, transactions per event", median(one.transactions / one.events for one in sent), "", at_most(2.1)
    )


def _seldom(system: _System, pace: Pace, idle: Usage, steady_us: float) -> Iterator[Figure]:
    sent = system.send(pace)
    cpu_ms = (1e3 * (sent.usage.cpu_seconds - idle.cpu_seconds * (sent.seconds + _TAIL_SECONDS))) / sent.events
    target = Target(round(_SELDOM_MS * max(1.0, steady_us / _SELDOM_SCALE_US), 1))
    yield Figure(f"{system.store}: {SELDOM} events/s, CPU per event without the idle cost", cpu_ms, "ms", target)


# -- the system under measurement --------------------------------------------------------------------------------


class _System:
    """A running `doorstep serve` with one endpoint."""

    def __init__(self, store: StoreName, database: Database, serving: Serving, receiver: Receiver) -> None:
        self.store = store
        self.serving = serving
        self._database = database
        self._receiver = receiver
        self.sent = 0

    def send(self, pace: Pace) -> Sent:
        """Send events, and wait until the receiver has them and they are settled."""
        transactions, before = transactions_of(self._database), usage_of(self.serving.pid, self._database)
        called, seconds = in_own_process(post_singles, self.serving.port, pace)
        arrived = self._receiver.await_arrivals(called)
        time.sleep(_TAIL_SECONDS)
        used = usage_of(self.serving.pid, self._database).since(before)
        transactions = transactions_of(self._database) - transactions
        self.sent += pace.events
        arrival_ms = [(arrived[one] / 1e9 - at) * 1e3 for one, at in called.items()]
        return Sent(used, transactions, pace.events, seconds, arrival_ms)

    def rest(self, seconds: float) -> Usage:
        """What the system uses per second while nothing happens."""
        before = usage_of(self.serving.pid, self._database)
        time.sleep(seconds)
        used = usage_of(self.serving.pid, self._database).since(before)
        return Usage(*(one / seconds for one in used))

    def check_settled(self) -> None:
        ((left,),) = self._database.ask(_UNSETTLED)
        if left:
            raise RuntimeError(f"{left} of {self.sent} deliveries were not settled")


@contextmanager
def _serving(setting: Setting, store: StoreName) -> Iterator[_System]:
    with setting.databases.fresh(store) as database:
        stock(database, Wanted(setting.receiver.url("stamp"), event_type="single"))
        with Serving(database) as serving:
            yield _System(store, database, serving, setting.receiver)


def post_singles(port: int, pace: Pace) -> tuple[dict[str, float], float]:
    """Send single events. Returns when each was sent, by its id, and how long all of it took."""
    shared = repeat(_HEAD.encode() + _BODY, pace.events)
    think = partial(next, pauses(pace.per_second))
    tally = uvloop.run(call_for(600, port, [shared] * pace.connections, b"HTTP/1.1 202", think))
    if len(tally.milliseconds) != pace.events:
        raise RuntimeError(f"{len(tally.milliseconds)} of {pace.events} requests were answered 202")
    called = {json.loads(answer.partition(b"\r\n\r\n")[2])["event_id"]: at for at, answer in tally.answers}
    return called, tally.last_answer_at - tally.started
