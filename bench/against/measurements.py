"""The measurements. Each opens one server per revision and then runs short slices of the same work on it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from pathlib import Path

import uvloop

from bench.against.server import ADMIN_KEY, Server, Side, Slice
from bench.calling import call_for, pauses
from bench.receiver import Receiver

_SINGLE = b'{"event_type": "bench", "payload": {"text": "%s"}}' % (b"x" * 1_012)
_LOST_AFTER_SECONDS = 60.0
_IDLE_SECONDS = 2.0

Run = Callable[[], Slice]


@dataclass(frozen=True)
class Load:
    """A fixed number of requests, so that both databases grow by the same amount, no matter how fast a revision is."""

    requests: int
    connections: int
    batch: int | None = None
    """The number of events in each request; None for a single event outside a list."""
    per_second: float | None = None

    @property
    def events(self) -> int:
        return self.requests * (self.batch or 1)

    def send(self, port: int) -> None:
        """Make the requests; each must be answered 202."""
        body = _SINGLE if self.batch is None else b"[%s]" % b",".join([_SINGLE] * self.batch)
        head = (
            f"POST /v1/events HTTP/1.1\r\nHost: bench\r\nX-API-Key: {ADMIN_KEY}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        shared = [repeat(head.encode() + body, self.requests)] * self.connections
        think = partial(next, pauses(self.per_second))
        tally = uvloop.run(call_for(_LOST_AFTER_SECONDS, port, shared, b"HTTP/1.1 202", think))
        if len(tally.milliseconds) != self.requests:
            raise RuntimeError(f"{len(tally.milliseconds)} of {self.requests} requests were answered 202")


@contextmanager
def accept(load: Load, side: Side, receiver: Receiver) -> Iterator[Run]:
    """Send events that have one delivery to a paused endpoint. So this measures accepting, not delivering."""
    with Server(side, side.new_database()) as server:
        server.create_endpoint(receiver.url("ok"), paused=True)
        yield lambda: server.spend(lambda: load.send(server.port), load.events)


@contextmanager
def dispatch(load: Load, side: Side, receiver: Receiver) -> Iterator[Run]:
    with Server(side, side.new_database()) as server:
        server.create_endpoint(receiver.url("ok"))
        yield lambda: server.spend(lambda: _send_and_await(load, server, receiver.count), load.events)


@contextmanager
def handlers(load: Load, side: Side, _: Receiver) -> Iterator[Run]:
    shutil.copy(Path(__file__).with_name("program.py"), side.folder / "program.py")
    calls = side.folder / "calls"
    with Server(side, side.new_database(), app="program:doorstep") as server:
        yield lambda: server.spend(lambda: _send_and_await(load, server, lambda: calls.stat().st_size), load.events)


@contextmanager
def start_help(side: Side, _: Receiver) -> Iterator[Run]:
    yield lambda: side.run("--help")


@contextmanager
def start_serve(side: Side, _: Receiver) -> Iterator[Run]:
    database = side.new_database()
    yield lambda: _start(side, database)


@contextmanager
def start_first(side: Side, _: Receiver) -> Iterator[Run]:
    yield lambda: _start(side, side.new_database())


@contextmanager
def idle(side: Side, receiver: Receiver) -> Iterator[Run]:
    with Server(side, side.new_database()) as server:
        server.create_endpoint(receiver.url("ok"))
        yield lambda: server.spend(lambda: time.sleep(_IDLE_SECONDS), _IDLE_SECONDS)


@dataclass(frozen=True)
class Measurement:
    name: str
    unit: str
    scale: float
    """The factor that converts CPU seconds to the unit."""
    open: Callable[[Side, Receiver], AbstractContextManager[Run]]


MEASUREMENTS = (
    Measurement("accept-batch", "µs/event", 1e6, partial(accept, Load(100, connections=4, batch=100))),
    Measurement("accept-single", "µs/event", 1e6, partial(accept, Load(3_000, connections=32))),
    Measurement("dispatch", "µs/event", 1e6, partial(dispatch, Load(40, connections=4, batch=100))),
    Measurement("handlers", "µs/event", 1e6, partial(handlers, Load(40, connections=4, batch=100))),
    Measurement("steady", "µs/event", 1e6, partial(dispatch, Load(200, connections=4, per_second=100))),
    Measurement("start-help", "ms", 1e3, start_help),
    Measurement("start-serve", "ms", 1e3, start_serve),
    Measurement("start-first", "ms", 1e3, start_first),
    Measurement("idle", "ms/s", 1e3, idle),
)


def select(wanted: Sequence[str]) -> list[Measurement]:
    """The measurements with these names or first words; all if none are given."""
    names = {one.name: {one.name, one.name.split("-")[0]} for one in MEASUREMENTS}
    if unknown := set(wanted).difference(*names.values()):
        raise ValueError(f"no measurement {min(unknown)!r}; there are {', '.join(names)}")
    return [one for one in MEASUREMENTS if not wanted or names[one.name] & set(wanted)]


def _start(side: Side, database: str) -> Slice:
    with Server(side, database) as server:
        return Slice(server.cpu_seconds(), 1)


def _send_and_await(load: Load, server: Server, arrived: Callable[[], int]) -> None:
    goal = arrived() + load.events
    load.send(server.port)
    deadline = time.monotonic() + _LOST_AFTER_SECONDS
    while (missing := goal - arrived()) > 0:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{missing} of {load.events} events did not arrive")
        time.sleep(0.02)
