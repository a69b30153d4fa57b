"""What an outage of the receiver costs after the receiver is back (R6.4): at 100 events a second, 20 ms an answer.

The targets: the last arrival within 1 s, a quarter of the outage, and the time that the backlog takes; events accepted
after the circuit has closed wait at most 2 s at p99; a receiver that flaps gets everything within 10 s of its last
return. Outages of ten minutes are a measurement of their own, which runs only if it is named.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

from bench.databases import Database
from bench.figures import Figure, Target, at_most
from bench.setting import PAYLOAD, Setting, settings_for
from bench.timing import percentile
from doorstep import Doorstep
from doorstep.model.endpoint import CircuitState
from doorstep.telemetry.facts import CircuitTransition, Fact, Telemetry
from tests.support.loop_receiver import Answer, Receiver, Request, receiving

_RATE = 100
_HEALTHY_SECONDS = 1.0
_AFTER_SECONDS = 5.0
_TIMEOUT_SECONDS = 2.0
_PATIENCE_SECONDS = 600.0
FRESH_TARGET = at_most(2.0)


class Outage(NamedTuple):
    """A receiver that is down for `down_seconds`, `times` in a row, each time after `up_seconds` without an outage."""

    name: str
    down_seconds: float
    target: Target
    hangs: bool = False
    fresh: bool = True
    """Whether events are sent all the time. If not, 20 are sent at the start of the outage and none later."""
    up_seconds: float = _HEALTHY_SECONDS
    times: int = 1


@dataclass
class Course:
    """What happened, in seconds of the monotonic clock."""

    sent: dict[str, float] = field(default_factory=dict)
    delivered: dict[str, float] = field(default_factory=dict)
    back_at: float = 0.0
    is_open: bool = False
    """Whether the circuit is open or half-open."""
    closed_at: float = 0.0
    probes: int = 0

    @property
    def last_arrival(self) -> float:
        """Of the events that were sent before the receiver was back."""
        return max(self.delivered[one] for one, at in self.sent.items() if at <= self.back_at) - self.back_at

    def waits_after(self, instant: float) -> list[float]:
        """How long each event that was sent after this instant waited."""
        return [self.delivered[one] - at for one, at in self.sent.items() if at > instant]


def measure(setting: Setting) -> Iterator[Figure]:
    yield from _measure(setting, _outages(quick=setting.quick))


def measure_long(setting: Setting) -> Iterator[Figure]:
    """Outages of ten minutes. Each takes about 13 minutes for each store."""
    yield from _measure(setting, _LONG_OUTAGES)


def _measure(setting: Setting, outages: Sequence[Outage]) -> Iterator[Figure]:
    for outage in outages:
        if setting.only not in outage.name:
            continue
        for store in setting.stores:
            with setting.databases.fresh(store) as database:
                course = asyncio.run(_run(database, outage))
                used = database.ask("SELECT coalesce(max(retry_attempts), 0), sum(attempt) FROM doorstep_deliveries")
            yield from _figures(f"{store}, {outage.name}", outage, course, *used[0])


_LONG_OUTAGES = (
    Outage("10 min of 500", 600, at_most(291)),
    Outage("10 min hanging", 600, at_most(291 + _TIMEOUT_SECONDS), hangs=True),
    Outage("10 min, 20 events", 600, at_most(151), fresh=False),
)
"""The target leaves as much time for each event of the backlog as the target for 60 s: 14 s for 6,000 events."""


def _outages(*, quick: bool) -> list[Outage]:
    outages = [
        Outage("3 s of 500", 3, at_most(4)),
        Outage("3 s hanging", 3, at_most(4 + _TIMEOUT_SECONDS), hangs=True),
        Outage("3 s, 20 events", 3, at_most(2), fresh=False),
    ]
    if not quick:
        outages += [
            Outage("60 s of 500", 60, at_most(30)),
            Outage("60 s hanging", 60, at_most(30 + _TIMEOUT_SECONDS), hangs=True),
            Outage("60 s, 20 events", 60, at_most(16), fresh=False),
            Outage("flapping for 2 minutes", 2, at_most(10), up_seconds=2, times=30),
        ]
    return outages


def _figures(name: str, outage: Outage, course: Course, retries: int, attempts: int) -> Iterator[Figure]:
    yield Figure(f"{name}: last arrival after it is back", course.last_arrival, "s", outage.target)
    if outage.fresh:
        waits = course.waits_after(max(course.closed_at, course.back_at))
        yield Figure(f"{name}: wait of fresh events, p99", percentile(waits, 0.99), "s", FRESH_TARGET)
        yield Figure(f"{name}: wait of fresh events, worst", max(waits), "s")
        yield Figure(
            f"{name}: wait of events sent after it is back, worst", max(course.waits_after(course.back_at)), "s"
        )
    yield Figure(f"{name}: most retries used by an event", retries, "")
    yield Figure(f"{name}: attempts per event", attempts / len(course.sent), "", note=f"N={len(course.sent)}")
    yield Figure(f"{name}: probes", course.probes, "")


async def _run(database: Database, outage: Outage) -> Course:
    course = Course()

    def hear(facts: Sequence[Fact]) -> None:
        for fact in facts:
            if isinstance(fact, CircuitTransition):
                course.probes += fact.new_state == CircuitState.HALF_OPEN
                course.is_open = fact.new_state != CircuitState.CLOSED
                if not course.is_open:
                    course.closed_at = time.monotonic()

    settings = settings_for(database.url, timeout_seconds=_TIMEOUT_SECONDS, lease_seconds=30.0, grace_seconds=1.0)
    async with receiving() as receiver:
        receiver.pause_seconds = 0.02
        _be(receiver, course, up=True)
        doorstep = Doorstep(settings, telemetry=Telemetry(hear))
        await doorstep.open()
        doorstep.start()
        await doorstep.create_endpoint(name="receiver", url=receiver.url(), event_types=("*",))
        sending = asyncio.create_task(_send(doorstep, course)) if outage.fresh else None
        for _ in range(outage.times):
            await asyncio.sleep(outage.up_seconds)
            _be(receiver, course, up=False, hangs=outage.hangs)
            if not outage.fresh:
                await asyncio.gather(*(_send_one(doorstep, course) for _ in range(20)))
            await asyncio.sleep(outage.down_seconds)
            _be(receiver, course, up=True)
            course.back_at = time.monotonic()
        if sending is not None:
            await _closed(course)
            await asyncio.sleep(_AFTER_SECONDS)
            sending.cancel()
            await asyncio.wait([sending])
        await _all_delivered(course)
        await doorstep.close()
    return course


def _be(receiver: Receiver, course: Course, *, up: bool, hangs: bool = False) -> None:
    """Let the receiver be up or down. Requests that hang when it comes back stay unanswered."""

    def answer(request: Request) -> Answer:
        if up:
            course.delivered.setdefault(request.event_id, request.at)
        return Answer() if up else Answer(500)

    receiver.answer = answer
    receiver.pause_seconds = 2 * _TIMEOUT_SECONDS if hangs else 0.02


async def _send(doorstep: Doorstep, course: Course) -> None:
    """Send at a fixed rate, however long each call takes."""
    start = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for number in count():
            await asyncio.sleep(max(0.0, start + number / _RATE - time.monotonic()))
            group.create_task(_send_one(doorstep, course))


async def _send_one(doorstep: Doorstep, course: Course) -> None:
    at = time.monotonic()
    receipt = await doorstep.send("order.paid", PAYLOAD)
    course.sent[str(receipt.event_id)] = at


async def _closed(course: Course) -> None:
    """Wait until the circuit has closed after the last outage. Events sent later are fresh."""
    give_up_at = time.monotonic() + _PATIENCE_SECONDS
    while course.is_open:
        assert time.monotonic() < give_up_at, "the circuit never closed"
        await asyncio.sleep(0.05)


async def _all_delivered(course: Course) -> None:
    give_up_at = time.monotonic() + _PATIENCE_SECONDS
    while missing := course.sent.keys() - course.delivered.keys():
        assert time.monotonic() < give_up_at, f"{len(missing)} of {len(course.sent)} events never arrived"
        await asyncio.sleep(0.05)
